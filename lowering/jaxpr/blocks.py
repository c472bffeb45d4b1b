"""The views of whole arrays that the kernel's body works on: one block an operand and grid step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.types import shape_of
from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.compat import Blocked, Element, Squeezed
from mosaic_gpu.lowering.jaxpr.context import KernelState, lower_jaxpr
from mosaic_gpu.lowering.jaxpr.intervals import interval_of
from mosaic_gpu.lowering.jaxpr.open_arrays import OpenBlock, last_symbolic

_I32_MAX = 2**31 - 1


def check_block(block: Any) -> None:
    """Refuses, by name, the kinds of block that are not supported."""
    if block.transforms:
        raise UnsupportedError(
            f"memory transforms on {block.origin} (tiling, swizzling, ..) are not supported",
            hint="leave them out: how shared memory is laid out is the compiler's choice",
        )
    if "tmem" in str(block.transformed_block_aval.memory_space).lower():
        raise UnsupportedError(f"{block.origin} is placed in tensor memory, which is not supported")
    for dim in block.block_shape:
        if not isinstance(dim, (Blocked, Element, Squeezed)):
            raise UnsupportedError(f"block dimension {dim} of {block.origin} is not supported")


def block_view(
    kernel: KernelState,
    block: Any,
    array: ir.Value,
    arguments: Sequence[ir.Value],
    unknown: Mapping[Any, ir.Value] | None = None,
) -> ir.Value:
    """The block of `array` (a reference to the whole) at a step of the grid.

    `arguments`: of the index map: the step's number (i32) in each dimension, references to the index operands;
    `unknown`: the values (i32) of sizes of arrays that are not known.

    Blocked and Squeezed dimensions: index map times block size; Element: the index map gives the first
    element, from which the low padding is taken away.  Where a block is not known to lie inside the array,
    what is outside reads as zero and is never written.
    """
    shape = shape_of(array.type)
    if not shape:
        return array
    indices = lower_jaxpr(kernel, block.index_map_jaxpr, arguments)
    kinds = tuple(block.block_shape)
    last = last_symbolic(block.array_aval.shape)
    known = 0 if last is None else last + 1
    sizes = [1 if isinstance(b, Squeezed) else int(b.block_size) for b in kinds]
    rest = list(zip(indices, kinds, sizes, shape, strict=True))[known:]
    offsets = [_offset(i, b, n) for i, b, _, n in rest]
    checked = [0 if interval_of(o).inside(0, n - s) else 1 for o, (_, _, s, n) in zip(offsets, rest, strict=True)]
    if known:
        opened = OpenBlock(tuple(block.array_aval.shape), kinds, unknown or {})
        return opened.view(array, indices[:known], offsets, checked)
    dropped = [d for d, b in enumerate(kinds) if isinstance(b, Squeezed)]
    if not dropped and tuple(sizes) == shape and not any(checked):
        return array
    return emit.subview(array, _of_one_type(offsets), sizes, dropped=dropped, checked=checked)


def _offset(index: ir.Value, dim: Any, extent: int) -> ir.Value:
    index = _near(index, dim, extent)
    if isinstance(dim, Blocked) and dim.block_size != 1:
        return _fold(arith.muli, index, int(dim.block_size))
    if isinstance(dim, Element) and dim.padding[0]:
        return _fold(arith.subi, index, int(dim.padding[0]))
    return index


def _near(index: ir.Value, dim: Any, extent: int) -> ir.Value:
    """The index of a block, moved next to the array where it is far outside: its offset must not wrap around.

    As i64 where the array is so large that i32 is too small for offsets just outside of it, else as i32.
    """
    size = 1 if isinstance(dim, Squeezed) else int(dim.block_size)
    padding = int(dim.padding[0]) if isinstance(dim, Element) else 0
    stride = 1 if isinstance(dim, Element) else max(size, 1)
    low, high = -(size + padding) // stride, -(-(extent + padding) // stride)
    wide = (high + 2) * stride + size > _I32_MAX
    if wide:
        index = emit.resize_int(index, ir.IntegerType.get_signless(64))
    known, most = interval_of(index), 2 ** (62 if wide else 30) // stride
    if known.low < -most:
        index = arith.maxsi(index, emit.int_constant(low, index.type))
    if known.high > most:
        index = arith.minsi(index, emit.int_constant(high, index.type))
    return index if wide else emit.resize_int(index, emit.i32())


def _fold(operation: Any, index: ir.Value, number: int) -> ir.Value:
    """`operation(index, number)`, computed here where the index is a constant."""
    known = interval_of(index).constant
    if known == 0 and operation is arith.muli:
        return index
    return operation(index, emit.int_constant(number, index.type))


def _of_one_type(offsets: Sequence[ir.Value]) -> list[ir.Value]:
    """The offsets as i32, or all as i64 where one of them is."""
    wide = any(o.type.width > 32 for o in offsets)
    element = ir.IntegerType.get_signless(64 if wide else 32)
    return [emit.resize_int(o, element) for o in offsets]
