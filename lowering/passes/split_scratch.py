"""Tiles that are put together of pieces, in scratch memory or at once: what `split-tiles` has to know of them.

`concatenate` of unlike tiles, `pad` and `roll` store pieces side by side in an allocation, and read it as one tile:

    "mgpu.store"(%a, (subview %s[0] sizes [70]))            element i of %x is  %a[i]        for i < 70
    "mgpu.store"(%b, (subview %s[70] sizes [30]))                               %b[i - 70]   else
    %x = "mgpu.load"(%s)

Parts of %x are then parts of %a and %b, and the memory is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import is_tile, shape_of
from mosaic_gpu.lowering.passes.effects import root_of
from mosaic_gpu.lowering.views import constant_int

_UNMASKED = 2  # operands of a store without a mask


@dataclass(frozen=True)
class Pieced:
    """What a load of scratch memory reads, or a concatenation gives.

    Attributes:
      shape: of the memory.
      offsets: where in the memory the loaded box begins; it may leave it (`checked`) where it is larger.
      pieces: the stored tiles and where each begins, those that overwrite others behind them.
    """

    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    pieces: tuple[tuple[Any, tuple[int, ...]], ...]

    def leaves(self, axis: int, size: int) -> bool:
        """Whether a loaded box of this size leaves the memory along a dimension."""
        return self.offsets[axis] < 0 or self.offsets[axis] + size > self.shape[axis]

    def is_still(self, axis: int, size: int) -> bool:
        """Whether along a dimension everything is where it was, in a loaded box of this size."""
        still = self.offsets[axis] == 0 and self.shape[axis] == size
        return still and all(at[axis] == 0 and shape_of(v.type)[axis] == size for v, at in self.pieces)


def pieced(op: Any) -> Pieced | None:
    """The pieces of a concatenation, or of what a load reads of scratch memory.

    None where a load does not just read what was stored before in its block.
    """
    return _concatenated(op) if op.name == "mgpu.concatenate" else _loaded(op)


def _concatenated(op: Any) -> Pieced:
    shape, axis = shape_of(op.results[0].type), ir.IntegerAttr(op.attributes["dimension"]).value
    size = shape[axis] // len(op.operands)
    starts = [tuple(number * size if d == axis else 0 for d in range(len(shape))) for number in range(len(op.operands))]
    return Pieced(shape, (0,) * len(shape), tuple(zip(op.operands, starts, strict=True)))


def _loaded(load: Any) -> Pieced | None:
    view = load.opview
    place, root = _place(view.source), root_of(view.source)
    if place is None or isinstance(root.owner, ir.Block) or view.mask is not None:
        return None
    if view.other is not None and is_tile(view.other.type):
        return None
    stores = _stores(root)
    if stores is None or not all(store.block == load.block and len(store.operands) == _UNMASKED for store in stores):
        return None
    order = [op.operation for op in load.block.operations]
    before = order[: order.index(load)]
    pieces = [(store.operands[0], _place(store.operands[1])) for store in before if store in stores]
    if not pieces or any(at is None for _, at in pieces):
        return None
    known = Pieced(shape_of(root.type), place, tuple((v, at) for v, at in pieces if at is not None))
    return known if _covers(known) else None


def _place(ref: Any) -> tuple[int, ...] | None:
    """Where in its memory a reference begins; None where that is computed, or where it steps or drops dimensions."""
    total = (0,) * len(shape_of(ref.type))
    while not isinstance(ref.owner, ir.Block) and ref.owner.operation.name == "mgpu.subview":
        op = ref.owner.operation
        offsets = [constant_int(v) for v in list(op.operands)[1:]]
        if ints(op.attributes["dropped"]) or any(n != 1 for n in ints(op.attributes["strides"])) or None in offsets:
            return None
        total = tuple(a + (b or 0) for a, b in zip(total, offsets, strict=True))
        ref = op.operands[0]
    return total


def _stores(ref: Any) -> list[Any] | None:
    """The stores to a memory, by whatever view; None where something else may write to it."""
    found: list[Any] = []
    for use in ref.uses:
        user = use.owner.operation
        if user.name == "mgpu.store":
            found.append(user)
        elif user.name == "mgpu.subview":
            inner = _stores(user.results[0])
            if inner is None:
                return None
            found += inner
        elif user.name not in ("mgpu.load", "mgpu.gather"):
            return None
    return found


def _covers(known: Pieced) -> bool:
    """Whether the pieces, side by side along one dimension at most, fill the memory and lie inside of it."""
    sizes = [(shape_of(value.type), at) for value, at in known.pieces]
    partial = [d for d, n in enumerate(known.shape) if any(shape[d] != n or at[d] for shape, at in sizes)]
    if any(at[d] < 0 or at[d] + shape[d] > known.shape[d] for d in partial for shape, at in sizes):
        return False
    if len(partial) > 1:
        return False
    end = 0
    for start, stop in sorted((at[d], at[d] + shape[d]) for d in partial for shape, at in sizes):
        if start > end:
            return False
        end = max(end, stop)
    return all(end >= known.shape[d] for d in partial)


def is_never_read(memory: Any) -> bool:
    """Whether an allocation is only written."""
    if isinstance(memory.owner, ir.Block):
        return False
    users = [use.owner.operation for use in memory.uses]
    return all(op.name == "mgpu.store" or (op.name == "mgpu.subview" and is_never_read(op.results[0])) for op in users)
