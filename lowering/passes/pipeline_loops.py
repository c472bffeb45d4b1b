"""Turns loads that move with a loop's counter into copies that run ahead of it, into a ring of stages.

Requires: layouts assigned, shared memory not planned yet. Does, in each `scf.for` from the inside out: takes the
loads (`async_candidates.candidates`) that TMA, or threads by `cp.async`, can copy; gives them a
ring of S stages (the most that fit, at most 4, or `max_concurrent_steps`); and rewrites the loop so that step n waits
for its own stage, and starts the copies of step n + S - 1. A tile that was only stored to swizzled shared memory, for
a matrix unit, arrives there. Leaves: the same values; loops whose loads cannot be copied, as they are.

    scf.for %k = 0 to 8 {                        barrier_init; barrier
      %x = "mgpu.load"(view(%k))                 start the copies of steps 0, 1, 2 into stages 0, 1, 2
      ..                                         scf.for %k = 0 to 8 {
    }                                              barrier                   // everybody is done with step k - 1
                                                   scf.if %k + 3 < 8 { start the copies of step k + 3 }
                                                   barrier_wait stage k % 4, parity (k / 4) % 2
                                                   %x = "mgpu.load"(stage k % 4)
                                                   ..
                                                 }
                                                 barrier; barrier_destroy

Steps are counted from 0, so any bounds and number of steps will do: copies are only started for steps that there
are, and each of them is waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir, scf
from mosaic_gpu.dialect.ops_async import (
    AsyncCommitOp,
    AsyncCopyOp,
    AsyncLoadOp,
    AsyncWaitCopiesOp,
    BarrierDestroyOp,
    BarrierExpectOp,
    BarrierInitOp,
    BarrierWaitOp,
)
from mosaic_gpu.dialect.ops_kernel import WHY, BarrierOp
from mosaic_gpu.dialect.ops_matmul import fence_async
from mosaic_gpu.dialect.types import SMEM, ref_space, shape_of
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.async_candidates import Candidate, candidates
from mosaic_gpu.lowering.passes.effects import Memories, is_defined_outside
from mosaic_gpu.lowering.passes.plan_shared_memory import alloc_bytes
from mosaic_gpu.lowering.passes.walk import body_of, kernels, walk
from mosaic_gpu.lowering.swizzles import SWIZZLE
from mosaic_gpu.lowering.targets import parse_target
from mosaic_gpu.lowering.views import constant_int

DEFAULT_STAGES = 4
_FIRST_WITH_COPIES = (8, 0)  # the compute capability from which on there is cp.async
RESERVE_BYTES = 16 * 1024
"""Shared memory that is left for exchanges between threads."""
THREADS_BYTES = 96 * 1024
"""The most for stages that threads read: these loops wait for memory, and want several blocks at once."""


@dataclass(frozen=True)
class PipelineLoops:
    """The pass.  `LoweringOptions.max_concurrent_steps` bounds the stages; 1 leaves all loops as they are."""

    name: str = "pipeline-loops"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        target = parse_target(options.target)
        most = options.max_concurrent_steps or DEFAULT_STAGES
        if target.capability < _FIRST_WITH_COPIES or most < 2:
            return
        for kernel in kernels(module):
            for loop in reversed([op for op in walk(body_of(kernel)) if op.name == "scf.for"]):
                has_tma = "tma" in target.features
                found = candidates(loop, Memories.of(kernel), kernel, has_tma=has_tma)
                stages = choose_stages(kernel, loop, found, most, target.max_shared_bytes)
                if stages >= 2:
                    _pipeline(loop, found, stages)


def choose_stages(kernel: Any, loop: Any, found: list[Candidate], most: int, limit_bytes: int) -> int:
    """How many stages the ring has; less than 2 where it does not pay."""
    if not found:
        return 0
    replaced = {c.alloc for c in found if c.alloc is not None}
    others = sum(alloc_bytes(op) for op in walk(body_of(kernel)) if op.name == "mgpu.alloc" and op not in replaced)
    room = limit_bytes - RESERVE_BYTES - others
    if all(c.is_read_by_threads for c in found):
        room = min(room, THREADS_BYTES)
    return min(most, room // sum(c.stage_bytes for c in found), steps_of(loop) or most)


def steps_of(loop: Any) -> int | None:
    """The number of steps of a loop, where it is known."""
    lower, upper, step = (constant_int(v) for v in list(loop.operands)[:3])
    if lower is None or upper is None or step is None or step < 1:
        return None
    return max(0, -(-(upper - lower) // step))


class Ring:
    """The stages of a loop's copies: buffers, and an mbarrier a stage that tells when TMA's copies have arrived.

    Copies that threads start (`cp.async`) are one group a step; no mbarrier hears of them.
    """

    def __init__(self, found: list[Candidate], stages: int) -> None:
        """Allocates at the insertion point."""
        self.found, self.stages = found, stages
        self.buffers = [_buffer(c, stages) for c in found]
        self.num_bytes = sum(c.plan.num_bytes for c in found if c.plan is not None)
        self.full = emit.alloc([stages], ir.IntegerType.get_signless(64)) if self.num_bytes else None
        self.by_threads = [c for c in found if c.plan is None]

    def prepare(self) -> None:
        """Makes the mbarriers, and what no copy will write zero."""
        if self.full is not None:
            BarrierInitOp(self.full, emit.int_attr(1))
        for candidate, buffer in zip(self.found, self.buffers, strict=True):
            for stage in range(self.stages if candidate.tails else 0):
                candidate.store_tails(_stage_of(buffer, emit.int_constant(stage)))

    def start(self, views: list[ir.Value], stage: ir.Value) -> None:
        """Starts the copies of `views` into a stage."""
        if self.full is not None:
            BarrierExpectOp(self.full, stage, emit.int_attr(self.num_bytes))
        for view, candidate, buffer in zip(views, self.found, self.buffers, strict=True):
            box = candidate.box_of(_stage_of(buffer, stage))
            if candidate.plan is None:
                AsyncCopyOp(view, box, candidate.load.results[0].type.encoding)
            else:
                AsyncLoadOp(view, box, self.full, stage)

    def commit(self) -> None:
        """Ends the group of the copies that threads have started for a step."""
        if self.by_threads:
            AsyncCommitOp()

    def await_threads(self) -> None:
        """Waits for the group of the step that begins; the next barrier tells the others."""
        if self.by_threads:
            AsyncWaitCopiesOp(emit.int_attr(self.stages - 2))
        if any(not c.is_read_by_threads for c in self.by_threads):
            fence_async("matrix units read what threads have copied")

    def await_tma(self, stage: ir.Value, parity: ir.Value) -> None:
        """Waits for a stage."""
        if self.full is not None:
            BarrierWaitOp(self.full, stage, parity)

    def take(self, stage: ir.Value) -> None:
        """Puts a stage in the place of the loads; the insertion point is where it has arrived."""
        for candidate, buffer in zip(self.found, self.buffers, strict=True):
            candidate.replace(_stage_of(buffer, stage))


def _buffer(candidate: Candidate, stages: int) -> ir.Value:
    buffer = emit.alloc([stages, *candidate.stage_shape], candidate.element)
    if candidate.swizzle:
        buffer.owner.attributes[SWIZZLE] = emit.int_attr(candidate.swizzle)
    return buffer


def _stage_of(buffer: ir.Value, stage: ir.Value) -> ir.Value:
    _, *shape = shape_of(buffer.type)
    zero = emit.int_constant(0)
    return emit.subview(buffer, [stage, *[zero] * len(shape)], [1, *shape], dropped=[0])


@dataclass(frozen=True)
class Steps:
    """The steps of a loop, counted from 0 in i32."""

    loop: Any

    def counter(self, number: ir.Value) -> ir.Value:
        """The loop's counter in step `number`."""
        lower, _, step = list(self.loop.operands)[:3]
        if constant_int(lower) == 0 and constant_int(step) == 1:
            return _resized(number, lower.type)
        return arith.addi(lower, arith.muli(_resized(number, lower.type), step))

    def number(self, counter: ir.Value) -> ir.Value:
        """The number of the step in which the loop's counter is `counter`."""
        lower, _, step = list(self.loop.operands)[:3]
        distance = counter if constant_int(lower) == 0 else arith.subi(counter, lower)
        if constant_int(step) != 1:
            distance = arith.divui(distance, step)
        return _resized(distance, ir.IntegerType.get_signless(32))

    def total(self) -> ir.Value:
        """How many steps there are; not negative."""
        known = steps_of(self.loop)
        if known is not None:
            return emit.int_constant(known)
        lower, upper, step = list(self.loop.operands)[:3]
        distance = arith.maxsi(arith.subi(upper, lower), emit.int_constant(0, lower.type))
        if constant_int(step) != 1:
            one = emit.int_constant(1, step.type)
            distance = arith.divui(arith.addi(distance, arith.subi(step, one)), step)
        return _resized(distance, ir.IntegerType.get_signless(32))


def _resized(value: ir.Value, type_: ir.Type) -> ir.Value:
    if isinstance(value.type, ir.IndexType) != isinstance(type_, ir.IndexType):
        return arith.index_cast(type_, value)
    return value if value.type == type_ else emit.resize_int(value, type_)


def place_in_ring(number: ir.Value, stages: int) -> tuple[ir.Value, ir.Value]:
    """(stage, parity) of step `number`."""
    count = emit.int_constant(stages)
    parity = arith.andi(arith.divui(number, count), emit.int_constant(1))
    return arith.remui(number, count), parity


def views_at(found: list[Candidate], loop: Any, counter: ir.Value) -> list[ir.Value]:
    """The views that the loads would read where the loop's counter is `counter`, computed at the insertion point."""
    names = {loop.regions[0].blocks[0].arguments[0]: counter}
    return [copied(c.load.operands[0], loop, names) for c in found]


def copied(
    value: ir.Value, loop: Any, names: dict[Any, Any], keep: Callable[[ir.Value], bool] = lambda value: False
) -> ir.Value:
    """What `value`, computed in `loop` from `names` and from outside, is for the new names; `keep`: stays as it is."""
    if value in names:
        return names[value]
    if keep(value) or is_defined_outside(value, loop):
        return value
    op = value.owner.operation
    clone = op.clone().operation
    for number, operand in enumerate(op.operands):
        with ir.InsertionPoint(clone):
            clone.operands[number] = copied(operand, loop, names, keep)
    names.update(zip(op.results, clone.results, strict=True))
    return names[value]


def barrier(why: str) -> None:
    """All threads meet."""
    BarrierOp().operation.attributes[WHY] = ir.StringAttr.get(why)


def _pipeline(loop: Any, found: list[Candidate], stages: int) -> None:
    steps, body, fences = Steps(loop), loop.regions[0].blocks[0], fences_in(loop)
    with ir.InsertionPoint(loop), loop.location:
        ring = Ring(found, stages)
        ring.prepare()
        if ring.full is not None:
            fence_async("shared memory that threads used before is written by copies next")
        barrier("the mbarriers are made, and nobody uses the stages")
        total = steps.total()
        for ahead in range(stages - 1):
            _start_if(ring, steps, emit.int_constant(ahead), total, emit.int_constant(ahead))
            ring.commit()
    with ir.InsertionPoint(body.operations[0]), loop.location:
        number = steps.number(body.arguments[0])
        stage, parity = place_in_ring(number, stages)
        ring.await_threads()
        if any(c.is_read_by_threads and c.plan is not None for c in found):
            fence_async("threads read the stage that copies write next")
        barrier("everybody is done with the stage that copies write next")
        ahead = arith.addi(number, emit.int_constant(stages - 1))
        _start_if(ring, steps, ahead, total, arith.remui(ahead, emit.int_constant(stages)))
        ring.commit()
        ring.await_tma(stage, parity)
        ring.take(stage)
    drop_fences(loop, fences)
    if ring.full is not None:
        with ir.InsertionPoint.after(loop), loop.location:
            barrier("everybody has waited for the last copies")
            BarrierDestroyOp(ring.full)


def _start_if(ring: Ring, steps: Steps, number: ir.Value, total: ir.Value, stage: ir.Value) -> None:
    """Starts the copies of step `number`, if there is one."""
    known, count = constant_int(number), steps_of(steps.loop)
    if known is not None and count is not None:
        if known < count:
            ring.start(views_at(ring.found, steps.loop, steps.counter(number)), stage)
        return
    branch = scf.IfOp(arith.cmpi(emit.SLT, number, total))
    with ir.InsertionPoint(branch.then_block):
        ring.start(views_at(ring.found, steps.loop, steps.counter(number)), stage)
        scf.YieldOp([])


def stores_to_shared(loop: Any, besides: set[Any]) -> bool:
    """Whether threads store to shared memory in a loop, with other ops than `besides`."""
    stores = [op for op in walk(loop.regions[0].blocks[0]) if op.name in ("mgpu.store", "mgpu.scatter")]
    return any(ref_space(op.operands[1].type) == SMEM for op in stores if op not in besides)


def fences_in(loop: Any) -> list[Any]:
    """The fences of a loop."""
    return [op for op in walk(loop.regions[0].blocks[0]) if op.name == "mgpu.fence_async"]


def drop_fences(loop: Any, fences: list[Any]) -> None:
    """Takes away fences of a loop if threads no longer store to shared memory in it."""
    if not stores_to_shared(loop, set()):
        for op in fences:
            op.erase()
