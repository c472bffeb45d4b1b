"""The `mgpu` dialect object: the class that every type, attribute and op of the dialect hangs on.

IRDL unifies the types of all values in one variadic list: a `Sequence[Operand[Any]]` holds values of
ONE type.  An op that takes values of several types names each of them.
"""

from mosaic_gpu.dialect._mlir import ext


class Mgpu(ext.Dialect, name="mgpu"):
    """Tiles, memory references and the kernels that work on them."""
