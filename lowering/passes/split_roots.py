"""What `split-tiles` splits, where it may stand, and what is left behind.

A root is a store, a reduction or a product.  Its parts are computed in a loop that stands behind it; what it loads must
be in memory there as it was in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.types import shape_of
from mosaic_gpu.lowering.passes.effects import Memories, root_of
from mosaic_gpu.lowering.passes.split_axes import Window
from mosaic_gpu.lowering.passes.split_parts import MIN_ROW_ELEMENTS, Part, Scope
from mosaic_gpu.lowering.passes.split_scratch import is_never_read
from mosaic_gpu.lowering.views import constant_int


@dataclass
class Root:
    """A store, reduction or product, the dimension its value is split along, and what is computed for it."""

    op: Any
    window: Window
    part: Part

    @property
    def least(self) -> int:
        """The smallest part to cut: of the last dimension, whose neighbours are neighbours in memory, some together."""
        return MIN_ROW_ELEMENTS if self.window.axis == len(shape_of(self.op.operands[0].type)) - 1 else 1


def ops_of(block: Any) -> list[Any]:
    """The operations of a block."""
    return [view.operation for view in block.operations]


def keeps_order(root: Root, stores: Sequence[Root], ops: Sequence[Any], scope: Scope) -> bool:
    """Whether the loads of a root read the same in a loop where the last of `stores` (or itself) stands."""
    members, last, memories = [s.op for s in stores], stores[-1].op, scope.memories
    for load, window in root.part.loads:
        read = memories.effects(load).reads
        if not read & scope.written:
            continue
        for op in ops[ops.index(load) + 1 : ops.index(last) + 1]:
            if not memories.effects(op).writes & read:
                continue
            if op not in members or load.name != "mgpu.load":
                return False
            is_same_part = window == stores[members.index(op)].window
            if not (is_same_part and _is_same_view(load.operands[0], op.operands[1], memories)):
                return False
    return True


def _is_same_view(a: Any, b: Any, memories: Memories) -> bool:
    """Whether two references certainly are the same elements of one memory."""
    if a == b:
        return True
    if isinstance(a.owner, ir.Block) or isinstance(b.owner, ir.Block):
        is_root = isinstance(a.owner, ir.Block) and isinstance(b.owner, ir.Block)
        return is_root and a.type == b.type and memories.memory(a) == memories.memory(b)
    left, right = a.owner.operation, b.owner.operation
    if left.name != "mgpu.subview" or right.name != "mgpu.subview" or left.attributes != right.attributes:
        return False
    offsets = zip(list(left.operands)[1:], list(right.operands)[1:], strict=True)
    equal = all(x == y or (constant_int(x) is not None and constant_int(x) == constant_int(y)) for x, y in offsets)
    return equal and _is_same_view(left.operands[0], right.operands[0], memories)


def erase_unused(block: Any) -> None:
    """Erases what nothing uses any more, of the ops that only compute or load, and scratch memory that is not read."""
    for op in reversed(ops_of(block)):
        if op.name == "mgpu.store" and is_never_read(root_of(op.operands[1])):
            op.erase()
            continue
        idle = op.name.startswith(("arith.", "math.")) or op.name in _ERASABLE
        if idle and not any(list(result.uses) for result in op.results):
            op.erase()


_ERASABLE = frozenset(
    {
        "mgpu.alloc", "mgpu.load", "mgpu.gather", "mgpu.subview", "mgpu.iota", "mgpu.broadcast", "mgpu.reshape",
        "mgpu.transpose", "mgpu.slice", "mgpu.concatenate", "mgpu.reduce", "mgpu.scan", "mgpu.bitcast",
        "mgpu.dot", "mgpu.libdevice", "mgpu.ptx",
    }
)  # fmt: skip
