"""Puts `mgpu.barrier` between accesses that may touch one place from different threads.

Requires: layouts assigned, shared memory planned; no barrier is needed before. Does: inserts a barrier
between a store to memory and another access to it (either one first) on every path on which none lies
yet, loops included. Leaves: the accesses as they are.

    "mgpu.store"(%x, %buffer)                         "mgpu.store"(%x, %buffer)
    %y = "mgpu.load"(%view_of_buffer)                 "mgpu.barrier"()
                                                      %y = "mgpu.load"(%view_of_buffer)

What is one memory: kernel arguments of one `aliases` number; allocations that share bytes.  No barrier is
needed where the views lie in different constant ranges of one array, or where each element is touched by
one thread both times: the same view (value by value) and the same layout, no gather or scatter, and no
replication (only one holder stores, all holders load; two stores have the same holder).

How: each block is summarised, bottom up, by the accesses that no barrier in it precedes (`head`), those
that none follows (`tail`), and whether every way through passes a barrier (`sealed`).  A barrier goes
where the tail of what comes before conflicts with the head of what follows: before a whole loop or branch
where its insides conflict with what came before, and at the end of a loop's body where one iteration
conflicts with the next.  Scalars being uniform, all threads take the same branches, so barriers inside are fine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.attrs import layout_of
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_kernel import WHY, BarrierOp
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import RefType
from mosaic_gpu.errors import InternalError
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.walk import blocks_of, body_of, kernels
from mosaic_gpu.lowering.views import RefView, constant_int, view_of

_REFERENCE = {"mgpu.load": 0, "mgpu.gather": 0, "mgpu.store": 1, "mgpu.scatter": 1}
_WRITES = frozenset({"mgpu.store", "mgpu.scatter"})
_INDEXED = frozenset({"mgpu.gather", "mgpu.scatter"})
_LOOPS = frozenset({"scf.for", "scf.while"})


@dataclass(frozen=True)
class Access:
    """One load or store.

    Attributes:
      writes: whether it stores.
      memory: number of the argument's memory; -1 for shared memory.
      first, last: bytes of shared memory that its root takes, the end excluded.
      bounds: as of `RefView`.
      view: what names the view: its root, then each subview's offsets and constants.
      layout: of the tile; None for a scalar or an access through indices, which no view tells apart.
      loops: the loops whose iterations move the view.
    """

    writes: bool
    memory: int
    first: int
    last: int
    bounds: tuple[tuple[int, int] | None, ...]
    view: tuple[Any, ...]
    layout: Layout | None
    loops: frozenset[Any]

    def conflicts(self, other: Access, loop: Any = None) -> bool:
        """Whether threads must meet between the two; `loop`: they lie in different iterations of it."""
        if not (self.writes or other.writes) or self.memory != other.memory:
            return False
        if self.view[0] != other.view[0]:
            return self.memory >= 0 or (self.first < other.last and other.first < self.last)
        return not self._is_apart(other) and not self._is_same_thread(other, loop)

    def _is_apart(self, other: Access) -> bool:
        pairs = zip(self.bounds, other.bounds, strict=True)
        return any(a is not None and b is not None and (a[1] < b[0] or b[1] < a[0]) for a, b in pairs)

    def _is_same_thread(self, other: Access, loop: Any) -> bool:
        if self.layout is None or self.layout != other.layout or self.view != other.view or loop in self.loops:
            return False
        return (self.writes and other.writes) or self.layout.free_threads == 0


Accesses = dict[Access, None]


@dataclass
class Summary:
    """What a piece of a kernel does to memory; see the head of this file."""

    head: Accesses = field(default_factory=dict)
    tail: Accesses = field(default_factory=dict)
    sealed: bool = False

    def then(self, other: Summary) -> None:
        """Goes on with `other`."""
        if not self.sealed:
            self.head |= other.head
        self.tail = dict(other.tail) if other.sealed else self.tail | other.tail
        self.sealed = self.sealed or other.sealed

    def seal(self) -> None:
        """A barrier."""
        self.tail = {}
        self.sealed = True

    def meets(self, other: Summary, loop: Any = None) -> str:
        """Why a barrier is needed between this and `other`; empty where none is."""
        pairs = ((a, b) for a in self.tail for b in other.head if a.conflicts(b, loop))
        return next((_reason(a, b, loop) for a, b in pairs), "")


@dataclass(frozen=True)
class InsertBarriers:
    """The pass; it has no options."""

    name: str = "insert-barriers"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        for kernel in kernels(module):
            block = body_of(kernel)
            aliases = ints(kernel.attributes["aliases"])
            memories = dict(zip(block.arguments, aliases, strict=True))
            _Inserter(memories).block(block)


class _Inserter:
    """Summarises blocks and inserts barriers on the way."""

    def __init__(self, memories: dict[Any, int]) -> None:
        self.memories = memories

    def block(self, block: Any) -> Summary:
        done = Summary()
        for view in list(block.operations):
            op = view.operation
            step = self.operation(op)
            if step is None:
                continue
            if why := done.meets(step):
                _barrier_before(op, why)
                done.seal()
            done.then(step)
        return done

    def operation(self, op: Any) -> Summary | None:
        """What an op does to memory, barriers inside of it in place; None where it does nothing."""
        if op.name in _REFERENCE:
            return _both_ways([self.access(op)])
        if op.name == "mgpu.dot":
            return _both_ways([self.read_by_unit(v) for v in op.operands[:2] if isinstance(v.type, RefType)])
        if op.name == "mgpu.specialize":
            return self.block(blocks_of(op)[1])  # its producer does not touch memory itself
        if op.name == "mgpu.barrier":
            return Summary(sealed=True)
        blocks = blocks_of(op) if len(op.regions) else []
        if not blocks:
            return None
        if op.name == "scf.for":
            return self.loop(op, blocks[0])
        if op.name == "scf.while":
            return self.while_loop(op, *blocks)
        if op.name in ("scf.if", "scf.index_switch"):
            return _either([self.block(block) for block in blocks], len(blocks) == len(op.regions))
        raise InternalError(f"no rule for the memory accesses inside of {op.name}")

    def loop(self, op: Any, block: Any) -> Summary:
        body = self.block(block)
        if why := body.meets(body, op):
            _barrier_before(_last(block), why)
            body.seal()
        return Summary(body.head, body.tail, sealed=False)

    def while_loop(self, op: Any, before: Any, after: Any) -> Summary:
        """`before` runs once more than `after`, and the loop ends behind it."""
        test, body = self.block(before), self.block(after)
        if why := test.meets(body):
            _barrier_before(after.operations[0].operation, why)
            body = Summary({}, body.tail, sealed=True)
        both = Summary(dict(test.head), dict(test.tail), test.sealed)
        both.then(body)
        if why := both.meets(both, op):
            _barrier_before(_last(after), why)
            both.seal()
        tail = dict(test.tail) if test.sealed else test.tail | both.tail
        return Summary(both.head, tail, test.sealed)

    def read_by_unit(self, ref: Any) -> Access:
        """What a matrix unit reads, of no thread's in particular."""
        return self.access_through(ref, False, None)

    def access(self, op: Any) -> Access:
        operands = op.operands
        ref = operands[_REFERENCE[op.name]]
        value = operands[0] if op.name in _WRITES else op.results[0]
        layout = None if op.name in _INDEXED else layout_of(value.type)
        return self.access_through(ref, op.name in _WRITES, layout)

    def access_through(self, ref: Any, writes: bool, layout: Layout | None) -> Access:
        view = view_of(ref)
        in_smem = view.space == "smem"
        first = ir.IntegerAttr(view.root.owner.attributes["mgpu.offset"]).value if in_smem else 0
        return Access(
            writes=writes,
            memory=-1 if in_smem else self.memories[view.root],
            first=first,
            last=first + math.prod(view.root_shape) * view.element_bytes,
            bounds=view.bounds,
            view=_name_of(view),
            layout=layout,
            loops=_moving_loops(view),
        )


def _reason(before: Access, after: Access, loop: Any) -> str:
    """What a barrier between two accesses orders, for who reads the IR."""
    verbs = ["writes" if access.writes else "reads" for access in (before, after)]
    memory = "shared memory" if before.memory < 0 else f"the memory of argument {before.memory}"
    when = "another one in the next step" if loop is not None else "then another one"
    return f"one thread {verbs[0]} {memory}, {when} {verbs[1]} it"


def _both_ways(accesses: list[Access]) -> Summary | None:
    """Accesses of one op, with no barrier before or behind."""
    found = dict.fromkeys(accesses)
    return Summary(found, dict(found)) if accesses else None


def _either(ways: list[Summary], is_complete: bool) -> Summary:
    """One of several ways is taken (or none of them, where they are not complete)."""
    merged = Summary(sealed=is_complete and all(way.sealed for way in ways))
    for way in ways:
        merged.head |= way.head
        merged.tail |= way.tail
    return merged


def _name_of(view: RefView) -> tuple[Any, ...]:
    name: list[Any] = [view.root]
    for step in view.chain:
        offsets = tuple(_offset_name(offset) for offset in step.offsets)
        name.append((offsets, step.sizes, step.strides, step.checked, step.kept))
    return tuple(name)


def _offset_name(offset: Any) -> Any:
    constant = constant_int(offset)
    return offset if constant is None else constant


def _moving_loops(view: RefView) -> frozenset[Any]:
    """The loops that some offset of the view is computed in."""
    loops: set[Any] = set()
    for step in view.chain:
        for offset in step.offsets:
            if constant_int(offset) is None:
                owner = offset.owner
                around = owner.owner if isinstance(owner, ir.Block) else owner.operation.parent
                while around is not None:
                    if around.operation.name in _LOOPS:
                        loops.add(around.operation)
                    around = around.operation.parent
    return frozenset(loops)


def _last(block: Any) -> Any:
    operations = block.operations
    return operations[len(operations) - 1].operation


def _barrier_before(op: Any, why: str) -> None:
    with ir.InsertionPoint(op), op.location:
        BarrierOp().operation.attributes[WHY] = ir.StringAttr.get(why)
