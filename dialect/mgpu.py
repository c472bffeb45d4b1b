"""The `mgpu` dialect object: the class that every type, attribute and op of the dialect hangs on."""

from mosaic_gpu.dialect._mlir import ext


class Mgpu(ext.Dialect, name="mgpu"):
    """Tiles, memory references and the kernels that work on them."""
