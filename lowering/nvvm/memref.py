"""References to memory, as the visitor knows them: a pointer, strides, and bounds to test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import element_of, shape_of, storage_bits
from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.conversion import Conversion, converts
from mosaic_gpu.lowering.nvvm.sources import source_of
from mosaic_gpu.lowering.swizzles import Panels, panels_of
from mosaic_gpu.lowering.views import constant_int, divisor


@dataclass(frozen=True)
class Check:
    """An access is inside where 0 <= start + scale * (coordinate along `dim`) < extent.

    `start` is a uniform i32 or i64; `dim` is None where the dimension was dropped (the coordinate is 0), or where the
    view is inside or outside as a whole.
    """

    dim: int | None
    start: ir.Value
    scale: int
    extent: int


@dataclass(frozen=True)
class SwizzledBox:
    """Where a view lies in swizzled shared memory; see `lowering.swizzles`.

    Attributes:
      panels: the arrangement of the whole tile.
      start: the view's first row and column in it, each an int or (i32, i64) value.
    """

    panels: Panels
    start: tuple[ir.Value | int, ir.Value | int] = (0, 0)

    def moved(self, rows: ir.Value | int, columns: ir.Value | int) -> SwizzledBox:
        """The view that starts so much further."""
        return SwizzledBox(self.panels, (_sum(self.start[0], rows), _sum(self.start[1], columns)))

    @property
    def is_whole(self) -> bool:
        """Whether the view starts where the tile does."""
        return self.start == (0, 0)


def _sum(a: ir.Value | int, b: ir.Value | int) -> ir.Value | int:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if isinstance(a, int):
        return b if a == 0 else _sum(b, a)
    return emit.add(a, b)


@dataclass(frozen=True)
class MemRef:
    """A strided box of memory.

    Attributes:
      pointer: the address of element (0, .., 0).
      element: the dialect's element type.
      shape, strides: one entry a dimension; strides in elements.
      checks: bounds to test before an access.
      invariant: nothing writes this memory while the kernel runs.
      box: of swizzled memory, whose last two dimensions are not addressed by strides; `pointer` is the address of
        the whole tile then.
    """

    pointer: ir.Value
    element: ir.Type
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    checks: tuple[Check, ...]
    invariant: bool
    box: SwizzledBox | None = None

    @property
    def element_bytes(self) -> int:
        """Bytes one element takes."""
        return storage_bits(self.element) // 8

    @property
    def space(self) -> str:
        """PTX's name of the state space."""
        return "shared" if self.pointer.type == emit.pointer_type(3) else "global"


def root(pointer: ir.Value, shape: Sequence[int], element: ir.Type, *, invariant: bool = False) -> MemRef:
    """Row-major memory of `shape` that starts at `pointer`."""
    return MemRef(pointer, element, tuple(shape), row_major(shape), (), invariant)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides = [1] * len(shape)
    for d in reversed(range(len(shape) - 1)):
        strides[d] = strides[d + 1] * shape[d + 1]
    return tuple(strides)


@converts("mgpu.alloc")
def convert_alloc(conversion: Conversion, op: Any) -> list[MemRef]:
    """The place in shared memory that was planned for it."""
    offset = ir.IntegerAttr(op.operation.attributes["mgpu.offset"]).value
    pointer = emit.gep(conversion.shared.base, offset)
    shape, element = shape_of(op.result.type), element_of(op.result.type)
    panels = panels_of(op.operation)
    box = None if panels is None else SwizzledBox(panels)
    return [MemRef(pointer, element, shape, row_major(shape), (), invariant=False, box=box)]


@converts("mgpu.subview")
def convert_subview(conversion: Conversion, op: Any) -> list[MemRef]:
    """Moves the pointer by the offsets, and notes the bounds of checked dimensions."""
    source: MemRef = conversion.get(op.source)
    offsets = conversion.all(op.offsets)
    dropped, sizes, steps, checked = ints(op.dropped), ints(op.sizes), ints(op.strides), ints(op.checked)
    kept = [d for d in range(len(offsets)) if d not in dropped]
    checks = [_moved(c, offsets, steps, kept) for c in source.checks]
    for d in range(len(offsets)):
        if checked[d]:
            whole = _is_inside_or_outside(list(op.offsets)[d], sizes[d] * steps[d], source.shape[d])
            start = _check_start(offsets[d], sizes[d] * steps[d])
            checks.append(Check(None if whole else _position(d, kept), start, steps[d], source.shape[d]))
    strides = tuple(source.strides[d] * steps[d] for d in kept)
    box = source.box
    if box is not None:
        if any(steps[d] != 1 for d in kept) or len(kept) < 2 or kept[-2:] != [len(steps) - 2, len(steps) - 1]:
            raise UnsupportedError("a strided or flat view of swizzled shared memory", source=source_of(op.location))
        box = box.moved(*(_known(o, v) for o, v in zip(list(op.offsets)[-2:], offsets[-2:], strict=True)))
    pointer = _moved_pointer(source, offsets if box is None else offsets[:-2])
    shape = shape_of(op.result.type)
    return [MemRef(pointer, source.element, shape, strides, tuple(checks), source.invariant, box)]


def _known(offset: ir.Value, converted: ir.Value) -> ir.Value | int:
    number = constant_int(offset)
    return converted if number is None else number


def _moved_pointer(source: MemRef, offsets: Sequence[ir.Value]) -> ir.Value:
    total: ir.Value | None = None
    for offset, stride in zip(offsets, source.strides[: len(offsets)], strict=True):
        part = emit.mul(emit.convert_int(offset, 64), stride * source.element_bytes)
        total = part if total is None else emit.add(total, part)
    return source.pointer if total is None else emit.gep(source.pointer, total)


def _moved(check: Check, offsets: Sequence[ir.Value], steps: Sequence[int], kept: Sequence[int]) -> Check:
    """A check of the source, in coordinates of the view."""
    if check.dim is None:
        return check
    offset = emit.convert_int(offsets[check.dim], 64)
    start = emit.add(emit.convert_int(check.start, 64), emit.mul(offset, check.scale))
    return Check(_position(check.dim, kept), start, check.scale * steps[check.dim], check.extent)


def _is_inside_or_outside(offset: ir.Value, span: int, extent: int) -> bool:
    """Whether a box of `span` elements that starts at `offset` never lies across an end: one test is enough then."""
    unit = divisor(offset)
    return 0 < span <= unit and extent % unit == 0


def _position(dim: int, kept: Sequence[int]) -> int | None:
    return kept.index(dim) if dim in kept else None


def _check_start(offset: ir.Value, span: int) -> ir.Value:
    """The offset in 32 bits, or in 64 where it or the `span` of coordinates added to it may need them.

    Sums that wrap in 32 bits stay outside of every extent below 2**31, as long as the span is small.
    """
    wide = isinstance(offset.type, ir.IndexType) or emit.bits_of(offset.type) > 32 or abs(span) >= 2**30
    return emit.convert_int(offset, 64 if wide else 32)
