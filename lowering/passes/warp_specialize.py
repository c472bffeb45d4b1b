"""Gives the copies of a kernel's loops to warps of their own.

Requires: layouts assigned, shared memory not planned yet; before `pipeline-loops`, which takes the loops that are left.
Does, in a kernel of 4 or 8 warps, for the loops at its top level whose loads TMA can copy (see `pipeline_loops`), or
one such loop in a loop there (over tiles), if it has as many steps each time:
everything the kernel does goes to the *consumer* warps, as it was; a *producer*, a warpgroup more, keeps only those
loops, their addresses and the copies.  Two rings of mbarriers connect them: `full` tells the consumers that a stage has
arrived, `empty` tells the producer that all consumer warps are done with it. Leaves: the same values.

    scf.for %k = .. {                    "mgpu.specialize"() ({
      %a = "mgpu.load"(view(%k))           scf.for %k = .. { wait empty; start the copies of step k }
      ..                                 }, {
    }                                      scf.for %k = .. { wait full; %a = load(stage); ..; arrive empty }
                                           ..
                                         })

The first pass of the producer over the ring waits for the phase before the first one, which counts as ended.  The ring
of a loop in a loop goes round and round: the producer is ahead in the next tile while the consumers end theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir, scf
from mosaic_gpu.dialect.dot_layouts import WARPGROUP_WARPS
from mosaic_gpu.dialect.ops_async import BarrierArriveOp, BarrierInitOp, BarrierWaitOp, SpecializeOp
from mosaic_gpu.dialect.ops_matmul import fence_async
from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.diagnostics import location_source
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.async_candidates import Candidate, can_move, candidates
from mosaic_gpu.lowering.passes.effects import Memories, is_defined_outside
from mosaic_gpu.lowering.passes.keep_in_flight import keep_in_flight
from mosaic_gpu.lowering.passes.pipeline_loops import (
    DEFAULT_STAGES,
    Ring,
    Steps,
    barrier,
    choose_stages,
    copied,
    drop_fences,
    fences_in,
    place_in_ring,
    stores_to_shared,
)
from mosaic_gpu.lowering.passes.plan_shared_memory import KEEP
from mosaic_gpu.lowering.passes.rebuild import terminator
from mosaic_gpu.lowering.passes.walk import body_of, kernels, walk
from mosaic_gpu.lowering.targets import parse_target

PRODUCER_WARPS = "mgpu.producer_warps"
"""The attribute of a kernel that says how many warps its producer has."""
REGISTERS = {2: (40, 232)}
"""By the number of consumer warpgroups: registers of a producer's and of a consumer's thread; 64 K in all."""


@dataclass(frozen=True)
class _Loop:
    """A loop whose copies the producer does; `outer`: the loop at the top level that it is in, if it is in one."""

    op: Any
    found: list[Candidate]
    stages: int
    outer: Any = None

    def steps_before(self, outer: Any, op: Any) -> ir.Value | None:
        """The steps of `op`, this loop or its copy, in the earlier steps of `outer`, computed in front of `op`."""
        if outer is None:
            return None
        with ir.InsertionPoint(op):
            tile = Steps(outer).number(outer.regions[0].blocks[0].arguments[0])
            return arith.muli(tile, Steps(op).total())


@dataclass(frozen=True)
class WarpSpecialize:
    """The pass; `LoweringOptions.warp_specialize` asks for it or forbids it.

    Raises UnsupportedError where it is asked for and cannot be done.
    """

    name: str = "warp-specialize"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        target = parse_target(options.target)
        most = options.max_concurrent_steps or DEFAULT_STAGES
        if options.warp_specialize is False or "tma" not in target.features or most < 2:
            return
        for kernel in kernels(module):
            loops = _loops(kernel, most, target.max_shared_bytes, options.warp_specialize is True)
            groups, rest = divmod(ir.IntegerAttr(kernel.attributes["num_warps"]).value, WARPGROUP_WARPS)
            if loops and groups in (1, 2) and not rest:
                _specialize(kernel, loops, groups)
            elif options.warp_specialize:
                raise UnsupportedError(
                    "warp_specialize=True, but this kernel has no loop of copies for warps of their own",
                    expected="4 or 8 warps, and a sequential grid dimension or loop whose blocks TMA can copy",
                    source=location_source(kernel.location),
                )


def _loops(kernel: Any, most: int, limit_bytes: int, is_asked_for: bool) -> list[_Loop]:
    found: list[_Loop] = []
    room = limit_bytes
    for view in body_of(kernel).operations:
        op = view.operation
        if op.name != "scf.for" or not (is_asked_for or _pays(op)):
            continue
        for loop, outer in ((op, None), *((inner, op) for inner in _loops_in(op))):
            loads = [c for c in candidates(loop, Memories.of(kernel), kernel) if c.plan is not None]
            if outer is not None:
                loads = [c for c in loads if can_move(c.load.operands[0], outer, loop)]
            stages = choose_stages(kernel, loop, loads, most, room)
            if stages >= 2 and (
                is_asked_for or not stores_to_shared(loop, {s for c in loads for s in (*c.stores, *c.tails)})
            ):
                found.append(_Loop(loop, loads, stages, outer))
                room -= stages * sum(c.stage_bytes for c in loads)
                break
    return found


def _loops_in(outer: Any) -> list[Any]:
    """The loops in the body of a loop that have as many steps each time."""
    inner = [view.operation for view in outer.regions[0].blocks[0].operations if view.operation.name == "scf.for"]
    return [op for op in inner if all(is_defined_outside(v, outer) for v in list(op.operands)[:3])]


def _pays(loop: Any) -> bool:
    """Whether a loop feeds the matrix units of warpgroups."""
    return any(
        op.name == "mgpu.dot" and ir.StringAttr(op.attributes["kind"]).value == "wgmma"
        for op in walk(loop.regions[0].blocks[0])
    )


def _specialize(kernel: Any, loops: list[_Loop], groups: int) -> None:
    body = body_of(kernel)
    registers = REGISTERS.get(groups, (0, 0))
    originals = [view.operation for view in body.operations]
    with ir.InsertionPoint(body), kernel.location:
        op = SpecializeOp(*(emit.int_attr(n) for n in registers)).operation
    producer, consumer = (region.blocks.append() for region in op.regions)
    with ir.InsertionPoint(op), kernel.location:
        rings = [_rings(loop, groups * WARPGROUP_WARPS) for loop in loops]
        fence_async("shared memory is written by copies next")
        barrier("the mbarriers are made")
    anchor = _anchor(consumer)
    for original in originals:
        original.move_before(anchor)
    anchor.erase()
    names: dict[Any, Any] = {}
    for loop, (full, empty) in zip(loops, rings, strict=True):
        with ir.InsertionPoint(producer), loop.op.location:
            _produce(loop, full, empty, kernel, names)
        _consume(loop, full, empty)
    kernel.attributes[PRODUCER_WARPS] = emit.int_attr(WARPGROUP_WARPS)


def _anchor(block: Any) -> Any:
    with ir.InsertionPoint(block), ir.Location.unknown():
        return arith.ConstantOp(ir.IntegerType.get_signless(32), 0).operation


def _rings(loop: _Loop, warps: int) -> tuple[Ring, ir.Value]:
    """The ring of a loop's stages, and the mbarriers that tell that a stage is free."""
    ring = Ring(loop.found, loop.stages)
    empty = emit.alloc([loop.stages], ir.IntegerType.get_signless(64))
    for words in (ring.full, empty):
        if words is not None:
            words.owner.attributes[KEEP] = ir.UnitAttr.get()
    ring.prepare()
    BarrierInitOp(empty, emit.int_attr(warps))
    return ring, empty


def _produce(loop: _Loop, ring: Ring, empty: ir.Value, kernel: Any, names: dict[Any, Any]) -> None:
    """The loop, with nothing in it but the copies; in the loop that it is in, if it is in one."""
    if loop.outer is None:
        _produce_steps(loop, ring, empty, kernel, names, None)
        return
    outer = _same_loop(loop.outer, kernel, names)
    with ir.InsertionPoint(outer.body):
        inner = names | {loop.outer.regions[0].blocks[0].arguments[0]: outer.induction_variable}
        _produce_steps(loop, ring, empty, kernel, inner, outer.operation)
        scf.YieldOp([])


def _same_loop(loop: Any, kernel: Any, names: dict[Any, Any]) -> Any:
    """An empty loop with the bounds of `loop`."""
    return scf.ForOp(*(copied(v, kernel, names, keep=_is_argument) for v in list(loop.operands)[:3]))


def _produce_steps(loop: _Loop, ring: Ring, empty: ir.Value, kernel: Any, names: dict[Any, Any], outer: Any) -> None:
    new = _same_loop(loop.op, kernel, names)
    before = loop.steps_before(outer, new.operation)
    with ir.InsertionPoint(new.body):
        stage, parity = place_in_ring(_after(before, Steps(new.operation).number(new.induction_variable)), loop.stages)
        BarrierWaitOp(empty, stage, arith.xori(parity, emit.int_constant(1)))
        inner = names | {loop.op.regions[0].blocks[0].arguments[0]: new.induction_variable}
        views = [copied(c.load.operands[0], kernel, inner, keep=_is_argument) for c in loop.found]
        ring.start(views, stage)
        scf.YieldOp([])


def _after(before: ir.Value | None, number: ir.Value) -> ir.Value:
    return number if before is None else arith.addi(before, number)


def _is_argument(value: ir.Value) -> bool:
    """Whether a value is an argument of the kernel."""
    return isinstance(value.owner, ir.Block) and value.owner.owner.operation.name == "mgpu.kernel"


def _consume(loop: _Loop, ring: Ring, empty: ir.Value) -> None:
    body = loop.op.regions[0].blocks[0]
    by_threads = any(c.is_read_by_threads for c in loop.found)
    fences = fences_in(loop.op)
    with loop.op.location:
        before = loop.steps_before(loop.outer, loop.op)
    with ir.InsertionPoint(body.operations[0]), loop.op.location:
        number = Steps(loop.op).number(body.arguments[0])
        place = _after(before, number)
        stage, parity = place_in_ring(place, loop.stages)
        BarrierWaitOp(ring.full, stage, parity)
        ring.take(stage)
    drop_fences(loop.op, fences)
    wait = None if by_threads else keep_in_flight(loop.op)
    with ir.InsertionPoint(terminator(body)), loop.op.location:
        if by_threads:
            fence_async("threads have read the stage that copies write next")
        if wait is None:
            BarrierArriveOp(empty, stage)
        else:
            _release_step_before(number, place, loop.stages, empty)
    if wait is not None and before is not None:
        with ir.InsertionPoint.after(wait), loop.op.location:
            total = Steps(loop.op).total()
            _release_step_before(total, arith.addi(before, total), loop.stages, empty)


def _release_step_before(number: ir.Value, place: ir.Value, stages: int, empty: ir.Value) -> None:
    """The dot of the step before step `number`, which is step `place` of the ring, has ended: its stage is free."""
    branch = scf.IfOp(arith.cmpi(emit.SGT, number, emit.int_constant(0)))
    with ir.InsertionPoint(branch.then_block):
        before, _ = place_in_ring(arith.subi(place, emit.int_constant(1)), stages)
        BarrierArriveOp(empty, before)
        scf.YieldOp([])
