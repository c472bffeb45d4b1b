"""Parts of tiles along one dimension, for one step of a loop over them.

For `split-tiles`; what there is to compute for a part says `split_parts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.ops_tile import SliceOp
from mosaic_gpu.dialect.types import element_of, is_tile, shape_of, tile_type
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.passes.promote_refs import zero
from mosaic_gpu.lowering.passes.split_axes import Window, operand_windows
from mosaic_gpu.lowering.passes.split_parts import Part, may_be_pieced, piece_windows
from mosaic_gpu.lowering.passes.split_scratch import Pieced


class Parts:
    """Computes the parts of tiles in one step of a loop, at the current insertion point."""

    def __init__(self, counter: Any, length: int, size: int) -> None:
        self.counter, self.length, self.size, self.is_ragged = counter, length, size, size % length != 0
        self._starts: dict[Window, Any] = {}
        self._made: dict[tuple[Any, Window], Any] = {}
        self._pieced: dict[Any, Pieced] = {}

    def compute(self, part: Part) -> None:
        """All values of `part`."""
        self._pieced |= part.pieced
        for value, window in part.values:
            if (value, window) not in self._made:
                self._compute(value.owner.operation, window)

    def of(self, value: Any, window: Window | None) -> Any:
        """The part of a value; the value itself where it is needed whole."""
        return value if window is None else self._made[value, window]

    def view(self, ref: Any, window: Window) -> Any:
        """The part of a reference."""
        shape, axes = list(shape_of(ref.type)), range(len(shape_of(ref.type)))
        offsets = [self._start(window) if d == window.axis else emit.int_constant(0) for d in axes]
        strides = [window.stride if d == window.axis else 1 for d in axes]
        checked = [int(self._may_leave(window) and d == window.axis) for d in axes]
        shape[window.axis] = self._length(window)
        return emit.subview(ref, offsets, shape, strides, checked=checked)

    def inside(self, shape: Sequence[int], window: Window, size: int) -> Any:
        """Which elements of a part of this shape are inside of the whole, which has `size` along the dimension."""
        place = self._placed(emit.iota(shape, window.axis), window)
        return arith.cmpi(emit.ULT, place, emit.int_constant(size, place.type))

    def _may_leave(self, window: Window) -> bool:
        """Whether some elements of the part may be outside of the whole."""
        return self.is_ragged or window.is_loose

    def _length(self, window: Window) -> int:
        return int(self.length * window.scale)

    def _start(self, window: Window) -> Any:
        """Where in the whole the part begins (i32)."""
        along = replace(window, axis=0)
        if along not in self._starts:
            start = arith.muli(self.counter, emit.int_constant(self._length(window) * window.stride))
            self._starts[along] = arith.addi(start, emit.int_constant(window.start)) if window.start else start
        return self._starts[along]

    def _compute(self, op: Any, window: Window) -> None:
        made = self._special(op, window)
        if made is None:
            made = self._cloned(op, window)
        for old, new in zip(op.results, made, strict=True):
            self._made[old, window] = new

    def _special(self, op: Any, window: Window) -> list[Any] | None:
        """The parts of an op that is not just done on parts of its operands; else None."""
        match op.name:
            case "arith.constant":
                element = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
                type_ = self._type(op.results[0].type, window)
                return [arith.ConstantOp(type_, ir.DenseElementsAttr.get_splat(type_, element)).result]
            case "mgpu.slice" if operand_windows(op, window) != [window]:
                return [self._sliced(op, window)]
            case "mgpu.load" | "mgpu.concatenate" if op.results[0] in self._pieced and may_be_pieced(op, window):
                return [self._pieced_part(op, window)]
            case "mgpu.gather" if self._may_leave(window):
                return [self._gathered(op, window)]
            case "mgpu.iota" if ir.IntegerAttr(op.attributes["dimension"]).value == window.axis:
                (iota,) = self._cloned(op, window)
                return [self._placed(iota, window)]
        return None

    def _cloned(self, op: Any, window: Window) -> list[Any]:
        operands = [self.of(v, inner) for v, inner in zip(op.operands, self._windows(op, window), strict=True)]
        if op.name == "mgpu.load":
            operands[0] = self.view(op.operands[0], window)
        clone = op.clone().operation
        for number, operand in enumerate(operands):
            clone.operands[number] = operand
        for old, new in zip(op.results, clone.results, strict=True):
            new.set_type(self._type(old.type, window))
        return list(clone.results)

    def _windows(self, op: Any, window: Window) -> list[Window | None]:
        windows = operand_windows(op, window)
        assert windows is not None
        return windows

    def _sliced(self, op: Any, window: Window) -> Any:
        """The part of a slice: along the split dimension its operand's part is what is wanted already."""
        (inner,) = self._windows(op, window)
        starts, strides = (list(ints(op.attributes[name])) for name in ("starts", "strides"))
        starts[window.axis], strides[window.axis] = 0, 1
        type_ = self._type(op.results[0].type, window)
        return SliceOp(type_, self.of(op.operands[0], inner), emit.int_array(starts), emit.int_array(strides)).result

    def _gathered(self, op: Any, window: Window) -> Any:
        """The part of a gather; past the end of the whole, where indices may be anything, nothing is read."""
        gather = op.opview
        indices = [self._made[index, window] for index in gather.indices]
        mask, other = (
            None if v is None else self.of(v, window if is_tile(v.type) else None) for v in (gather.mask, gather.other)
        )
        inside = self.inside(shape_of(indices[0].type), window, shape_of(op.results[0].type)[window.axis])
        if mask is not None:
            inside = arith.andi(inside, emit.broadcast(mask, shape_of(inside.type), ()))
        return emit.gather(gather.source, indices, inside, other)

    def _pieced_part(self, op: Any, window: Window) -> Any:
        """The part of what is put together of pieces: see `lowering.passes.split_scratch`."""
        known, type_ = self._pieced[op.results[0]], self._type(op.results[0].type, window)
        whole = shape_of(op.results[0].type)
        windows = piece_windows(known, whole, window)
        assert windows is not None
        parts = [(self._made[v, w], at) for (v, at), w in zip(known.pieces, windows, strict=True)]
        if known.is_still(window.axis, whole[window.axis]):
            return self._through_memory(op, known, parts, window)
        shape, axis, made = shape_of(type_), window.axis, None
        if known.leaves(axis, whole[axis]):
            other = op.opview.other
            made = zero(type_) if other is None else emit.broadcast(other, shape, ())
        for (value, _), (part, at) in zip(known.pieces, parts, strict=True):
            here = replace(window, start=window.start + known.offsets[axis] - at[axis])
            inside = self.inside(shape, here, shape_of(value.type)[axis]) if made is not None else None
            made = part if inside is None else arith.select(inside, part, made)
        return made

    def _through_memory(self, load: Any, known: Pieced, parts: Sequence[tuple[Any, Any]], window: Window) -> Any:
        """The same with a memory for the part alone, where nothing moves along the dimension."""
        shape, axis = list(known.shape), window.axis
        shape[axis] = self._length(window)
        memory = emit.alloc(shape, element_of(load.results[0].type))
        for part, at in parts:
            emit.store(part, emit.subview(memory, [emit.int_constant(n) for n in at], shape_of(part.type)))
        whole = shape_of(load.results[0].type)
        size = shape_of(self._type(load.results[0].type, window))
        checked = [int(d != axis and known.leaves(d, n)) for d, n in enumerate(whole)]
        box = emit.subview(memory, [emit.int_constant(n) for n in known.offsets], size, checked=checked)
        return emit.load(box, other=load.opview.other)

    def _placed(self, iota: Any, window: Window) -> Any:
        """Coordinates of the part as those in the whole."""
        element, shape = element_of(iota.type), shape_of(iota.type)
        if window.stride != 1:
            iota = arith.muli(iota, emit.int_constant(window.stride, iota.type))
        return arith.addi(iota, emit.broadcast(emit.resize_int(self._start(window), element), shape, ()))

    def _type(self, type_: Any, window: Window) -> Any:
        shape = list(shape_of(type_))
        shape[window.axis] = self._length(window)
        return tile_type(tuple(shape), element_of(type_))
