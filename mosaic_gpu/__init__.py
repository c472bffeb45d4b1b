"""A compiler for Pallas kernels on NVIDIA Hopper GPUs."""

from pkgutil import extend_path

# JAX's own plugin wheels may use `mosaic_gpu` as a namespace package: both import.
__path__ = extend_path(__path__, __name__)
