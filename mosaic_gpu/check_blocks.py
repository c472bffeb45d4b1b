"""Rules on the arrays of a kernel and the blocks they are cut into; before any IR."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mosaic_gpu.errors import KernelError, UnsupportedError
from mosaic_gpu.lowering.jaxpr import compat

_INTEGERS = ("int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_FP8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz")
SUPPORTED_DTYPES = frozenset(("bool", *_INTEGERS, *_FLOATS, *_FP8))

MAX_DIMENSION = 2**31 - 1
"""The largest size of an array along one dimension: offsets along a dimension are 32-bit integers."""

MAX_BYTES = 2**47
"""The largest array: the address space of a GPU."""

_SPACES = ("default", "any", "gmem", "smem", "vmem")
"""Where a block lies while a program works on it ("vmem": a TPU's word) is the compiler's choice."""


def check_block(block: Any) -> None:
    """One array of the kernel (a Pallas BlockMapping): its dtype, size, memory space and block."""
    array, what = block.array_aval, block.origin
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        raise UnsupportedError(f"{what} is not an array", got=array)
    check_dtype(array.dtype, what)
    check_array_size(array, what)
    check_memory_space(block, what)
    check_block_shape(block, what)
    check_symbolic_sizes(block, what)


def check_dtype(dtype: Any, what: str) -> None:
    """`dtype` can be held in a kernel; `what` has it."""
    name = str(dtype)
    if name in SUPPORTED_DTYPES:
        return
    hint = "pass the real and the imaginary part as two arrays" if name.startswith("complex") else ""
    raise UnsupportedError(f"{what} has dtype {name}, which is not supported in a kernel", hint=hint)


def check_array_size(array: Any, what: str) -> None:
    """Sizes that are known are no larger than offsets in a kernel can be."""
    sizes = {dim: size for dim, size in enumerate(array.shape) if not compat.is_symbolic(size)}
    for dim, size in sizes.items():
        if size > MAX_DIMENSION:
            raise UnsupportedError(
                f"{what} is too large in dimension {dim}", got=size, expected=f"at most {MAX_DIMENSION} elements"
            )
    size_bytes = math.prod(sizes.values()) * max(1, np.dtype(array.dtype).itemsize)
    if size_bytes > MAX_BYTES:
        raise UnsupportedError(f"{what} is too large", got=f"{size_bytes} bytes", expected=f"at most {MAX_BYTES} bytes")


def check_symbolic_sizes(block: Any, what: str) -> None:
    """Sizes that are not known (`jax.export` with symbolic dimensions) are where the kernel can do without.

    They may be the leading ones: behind the last of them all sizes are known, and before it the block has one element.
    """
    shape, kinds = block.array_aval.shape, block.block_shape
    last = max((d for d, size in enumerate(shape) if compat.is_symbolic(size)), default=None)
    if last is None:
        return
    for dim in range(last):
        if compat.block_kind(kinds[dim]) != "Squeezed" and kinds[dim].block_size != 1:
            raise UnsupportedError(
                f"{what} has a symbolic size in dimension {last}, behind dimension {dim} of which a block has several"
                " elements",
                got=f"size {shape[last]}, block {list(kinds)}",
                expected=f"a block of one element (None) in dimension {dim}",
                hint="make the size static, or transpose the array so that symbolic sizes come first",
            )
    for dim in range(last + 1):
        if compat.block_kind(kinds[dim]) == "Element":
            raise UnsupportedError(f"{what} has a symbolic size, and a pl.Element block in dimension {dim}", got=shape)


def check_known_sizes(array: Any, what: str) -> None:
    """All sizes are known."""
    for dim, size in enumerate(array.shape):
        if compat.is_symbolic(size):
            raise UnsupportedError(
                f"{what} has a symbolic size in dimension {dim}",
                got=size,
                hint="pad it to a static size; only arrays that are cut into blocks may have symbolic sizes",
            )


def check_memory_space(block: Any, what: str) -> None:
    """The block is a plain view of its array."""
    space = str(block.transformed_block_aval.memory_space)
    if space not in _SPACES:
        raise UnsupportedError(
            f"the block of {what} is in memory space {space!r}, which is not supported",
            hint="leave memory_space out of the BlockSpec",
        )
    if block.transforms:
        raise UnsupportedError(f"the block of {what} has transforms, which are not supported", got=block.transforms)


def check_block_shape(block: Any, what: str) -> None:
    """One block dimension for each of the array's, of a kind and size that a kernel can be cut into."""
    array, shape = block.array_aval, block.block_shape
    if len(shape) != len(array.shape):
        raise KernelError(
            f"the block of {what} has another rank than the array",
            got=list(shape),
            expected=f"{len(array.shape)} sizes",
        )
    if len(block.index_map_jaxpr.outvars) != len(shape):
        raise UnsupportedError(f"the index map of {what} does not give one index a dimension", got=list(shape))
    for dim, (size, whole) in enumerate(zip(shape, array.shape, strict=True)):
        kind = compat.block_kind(size)
        if kind not in ("Blocked", "Element", "Squeezed"):
            raise UnsupportedError(
                f"the block of {what} has a pl.{kind} in dimension {dim}, which is not supported",
                expected="an int, None, pl.Blocked, pl.Squeezed or pl.Element",
            )
        extent = 1 if kind == "Squeezed" else size.block_size
        if type(extent) is not int or extent < 0 or (extent == 0 and whole > 0):
            raise KernelError(
                f"the block of {what} has no size that a block can have in dimension {dim}",
                got=extent,
                expected="an int > 0",
            )
