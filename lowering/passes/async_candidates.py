"""The loads of a loop that a copy beside the threads can take the place of.

A candidate is an `mgpu.load` in the loop's body itself, unmasked, of memory that the kernel does not write, through a
view that TMA can copy (`lowering.tma`), or else threads in pieces of at least 4 bytes (`cp.async`).  Its view is
computed from the loop's counter and values from outside alone, so that it can be computed for a later step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.attrs import layout_of
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_memory import LoadOp
from mosaic_gpu.dialect.types import element_of, is_tile, shape_of, storage_bits
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.passes.effects import Memories, is_defined_outside
from mosaic_gpu.lowering.passes.walk import body_of
from mosaic_gpu.lowering.swizzles import panels_of, swizzle_of
from mosaic_gpu.lowering.tma import DEST_ALIGNMENT, CopyPlan, plan_copy
from mosaic_gpu.lowering.views import RefView, constant_int, vector_elements, view_of

MIN_ACCESS_BYTES = 4
"""The least that one `cp.async` copies."""
MIN_BYTES = 2048
"""The least that a tile that threads read is worth a copy."""
_PURE = frozenset({"mgpu.subview", "mgpu.program_id", "mgpu.num_programs"})


@dataclass
class Candidate:
    """A load, and where its copy goes.

    Attributes:
      load: the op.
      view: what it reads.
      plan: the copy by TMA; None where threads start it (`cp.async`).
      alloc: the swizzled `mgpu.alloc` that the tile is only stored to, or None: threads read the copy.
      tails: stores of zeros beside the tile in that allocation.
    """

    load: Any
    view: RefView
    plan: CopyPlan | None
    alloc: Any | None
    stores: list[Any]
    tails: list[Any]

    @property
    def is_read_by_threads(self) -> bool:
        """Whether threads load the tile from the stage (matrix units do not count)."""
        return self.alloc is None

    @property
    def element(self) -> ir.Type:
        """Of the tile."""
        return element_of(self.load.results[0].type)

    @property
    def stage_shape(self) -> tuple[int, ...]:
        """Of one stage."""
        return self.view.shape if self.alloc is None else shape_of(self.alloc.results[0].type)

    @property
    def swizzle(self) -> int:
        """Of the stages, in bytes."""
        return 0 if self.alloc is None else swizzle_of(self.alloc)

    @property
    def stage_bytes(self) -> int:
        """Of one stage."""
        count = 1
        for n in self.stage_shape:
            count *= n
        return count * storage_bits(self.element) // 8

    def box_of(self, stage: ir.Value) -> ir.Value:
        """The part of a stage that the copy writes, of the tile's shape."""
        shape = self.view.shape
        if shape == self.stage_shape:
            return stage
        zero = emit.int_constant(0)
        return emit.subview(stage, [zero] * len(shape), shape)

    def store_tails(self, stage: ir.Value) -> None:
        """Stores the zeros beside the tile in a stage."""
        for store in self.tails:
            value, view = store.operands
            constant = value.owner.operation.clone().operation.results[0]
            emit.store(constant, _moved(view, _root_and_start(view)[0], stage))

    def replace(self, stage: ir.Value) -> None:
        """Puts a stage in the place of the load (and of the allocation); emits at the insertion point."""
        old = self.load.results[0]
        if self.alloc is None:
            with ir.InsertionPoint(self.load), self.load.location:
                old.replace_all_uses_with(LoadOp(old.type, stage).result)
        else:
            for store in [*self.stores, *self.tails]:
                store.erase()
            self.alloc.results[0].replace_all_uses_with(stage)
            self.alloc.erase()
            _erase_unused(old)
        self.load.erase()


def _moved(view: ir.Value, root: ir.Value, new: ir.Value) -> ir.Value:
    """A view of `root`, of constant offsets, as a view of `new`."""
    if view == root:
        return new
    op = view.owner.operation
    offsets = [emit.int_constant(constant_int(o) or 0) for o in list(op.operands)[1:]]
    sizes = [ir.IntegerAttr(a).value for a in op.attributes["sizes"]]
    return emit.subview(_moved(op.operands[0], root, new), offsets, sizes)


def _erase_unused(value: ir.Value) -> None:
    """Erases the conversions of a value that nobody uses any more."""
    for use in list(value.uses):
        user = use.owner.operation
        _erase_unused(user.results[0])
        user.erase()


def candidates(loop: Any, memories: Memories, kernel: Any, *, has_tma: bool = True) -> list[Candidate]:
    """The candidates of a loop, in order; `has_tma`: whether the target has TMA."""
    loads = [o.operation for o in loop.regions[0].blocks[0].operations if o.operation.name == "mgpu.load"]
    loads = [op for op in loads if len(op.operands) == 1 and is_tile(op.results[0].type)]
    if not loads:
        return []
    written: set[Any] = set()
    for op in body_of(kernel).operations:
        written |= memories.effects(op.operation).writes
    found = (_candidate(op, loop, has_tma) for op in loads if memories.memory(op.operands[0]) not in written)
    return [c for c in found if c is not None]


def _candidate(load: Any, loop: Any, has_tma: bool) -> Candidate | None:
    source = load.operands[0]
    if is_defined_outside(source, loop) or not can_move(source, loop):
        return None
    view = view_of(source)
    if view.space != "gmem":
        return None
    layout = layout_of(load.results[0].type)
    by_threads = layout is not None and vector_elements(view, layout) * view.element_bytes >= MIN_ACCESS_BYTES
    place = _only_staged(load, loop)
    if place is not None:
        plan = plan_copy(view, panels_of(place[0])) if has_tma else None
        if plan is not None or by_threads:
            return Candidate(load, view, plan, *place)
    num_bytes = math.prod(view.shape) * view.element_bytes
    plan = plan_copy(view, None) if has_tma and num_bytes % DEST_ALIGNMENT == 0 else None
    if num_bytes < MIN_BYTES or (plan is None and not (by_threads and _has_whole_rows(view, layout))):
        return None
    return Candidate(load, view, plan, None, [], [])


def _has_whole_rows(view: RefView, layout: Layout | None) -> bool:
    """Whether accesses are as wide in a row-major stage as in global memory."""
    width = vector_elements(view, layout)
    return view.shape[-1] % width == 0 and view.vector_dim == len(view.shape) - 1


def can_move(value: ir.Value, loop: Any, inner: Any = None) -> bool:
    """Whether a value is computed by scalar arithmetic and views alone, from outside of `loop` and from its counter.

    `inner`: a loop inside of it, whose counter counts as well.
    """
    if is_defined_outside(value, loop):
        return True
    owner = value.owner
    if isinstance(owner, ir.Block):
        return any(value == each.regions[0].blocks[0].arguments[0] for each in (loop, inner) if each is not None)
    op = owner.operation
    scalar = op.name.startswith("arith.") and not any(is_tile(r.type) for r in op.results)
    return (scalar or op.name in _PURE) and all(can_move(o, loop, inner) for o in op.operands)


def _only_staged(load: Any, loop: Any) -> tuple[Any, list[Any], list[Any]] | None:
    """The swizzled allocation that a tile is stored to, once and at its start, and nowhere else; with its stores."""
    stores = _stores_of(load.results[0])
    if stores is None or len(stores) != 1:
        return None
    view = stores[0].operands[1]
    root, starts_at_zero = _root_and_start(view)
    owner = root.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "mgpu.alloc" or not starts_at_zero:
        return None
    alloc = owner.operation
    if not swizzle_of(alloc) or alloc.block != loop.regions[0].blocks[0]:
        return None
    tails = [op for op in _writers(root) if op != stores[0]]
    if not all(op.name == "mgpu.store" and len(op.operands) == 2 and _is_zeros(op.operands[0]) for op in tails):
        return None
    return alloc, stores, tails


def _stores_of(value: ir.Value) -> list[Any] | None:
    """The unmasked stores that are all that is done with a tile, changes of layout aside; None otherwise."""
    found = []
    for use in value.uses:
        user = use.owner.operation
        if user.name == "mgpu.convert_layout":
            inner = _stores_of(user.results[0])
            if inner is None:
                return None
            found += inner
        elif user.name == "mgpu.store" and len(user.operands) == 2:
            found.append(user)
        else:
            return None
    return found


def _root_and_start(view: ir.Value) -> tuple[ir.Value, bool]:
    at_zero = True
    while not isinstance(view.owner, ir.Block) and view.owner.operation.name == "mgpu.subview":
        operands = list(view.owner.operation.operands)
        at_zero = at_zero and all(constant_int(o) == 0 for o in operands[1:])
        view = operands[0]
    return view, at_zero


def _writers(ref: ir.Value) -> list[Any]:
    """The ops that write memory through a reference and views of it."""
    found = []
    for use in ref.uses:
        user = use.owner.operation
        if user.name == "mgpu.subview":
            found += _writers(user.results[0])
        elif user.name not in ("mgpu.load", "mgpu.dot", "mgpu.gather"):
            found.append(user)
    return found


def _is_zeros(value: ir.Value) -> bool:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.constant":
        return False
    attr = owner.operation.attributes["value"]
    return isinstance(attr, ir.DenseElementsAttr) and attr.is_splat and attr.get_splat_value().value == 0
