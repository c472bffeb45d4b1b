"""Gives the copies of a kernel's loops to warps of their own.

Requires: layouts assigned, shared memory not planned yet; before `pipeline-loops`, which takes the loops that are left.
Does, in a kernel of 4 or 8 warps, for the loops at its top level whose loads TMA can copy (see `pipeline_loops`):
everything the kernel does goes to the *consumer* warps, as it was; a *producer*, a warpgroup more, keeps only those
loops, their addresses and the copies.  Two rings of mbarriers connect them: `full` tells the consumers that a stage has
arrived, `empty` tells the producer that all consumer warps are done with it. Leaves: the same values.

    scf.for %k = .. {                    "mgpu.specialize"() ({
      %a = "mgpu.load"(view(%k))           scf.for %k = .. { wait empty; start the copies of step k }
      ..                                 }, {
    }                                      scf.for %k = .. { wait full; %a = load(stage); ..; arrive empty }
                                           ..
                                         })

The first pass of the producer over the ring waits for the phase before the first one, which counts as ended.
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
from mosaic_gpu.lowering.passes.async_candidates import Candidate, candidates
from mosaic_gpu.lowering.passes.effects import Memories
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
    """A loop whose copies the producer does."""

    op: Any
    found: list[Candidate]
    stages: int


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
        loads = [c for c in candidates(op, Memories.of(kernel), kernel) if c.plan is not None]
        stages = choose_stages(kernel, op, loads, most, room)
        if stages >= 2 and (
            is_asked_for or not stores_to_shared(op, {s for c in loads for s in (*c.stores, *c.tails)})
        ):
            found.append(_Loop(op, loads, stages))
            room -= stages * sum(c.stage_bytes for c in loads)
    return found


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
    """The loop, with nothing in it but the copies."""
    bounds = [copied(v, kernel, names, keep=_is_argument) for v in list(loop.op.operands)[:3]]
    new = scf.ForOp(*bounds)
    with ir.InsertionPoint(new.body):
        number = Steps(new.operation).number(new.induction_variable)
        stage, parity = place_in_ring(number, loop.stages)
        BarrierWaitOp(empty, stage, arith.xori(parity, emit.int_constant(1)))
        inner = names | {loop.op.regions[0].blocks[0].arguments[0]: new.induction_variable}
        views = [copied(c.load.operands[0], kernel, inner, keep=_is_argument) for c in loop.found]
        ring.start(views, stage)
        scf.YieldOp([])


def _is_argument(value: ir.Value) -> bool:
    """Whether a value is an argument of the kernel."""
    return isinstance(value.owner, ir.Block) and value.owner.owner.operation.name == "mgpu.kernel"


def _consume(loop: _Loop, ring: Ring, empty: ir.Value) -> None:
    body = loop.op.regions[0].blocks[0]
    by_threads = any(c.is_read_by_threads for c in loop.found)
    fences = fences_in(loop.op)
    with ir.InsertionPoint(body.operations[0]), loop.op.location:
        number = Steps(loop.op).number(body.arguments[0])
        stage, parity = place_in_ring(number, loop.stages)
        BarrierWaitOp(ring.full, stage, parity)
        ring.take(stage)
    drop_fences(loop.op, fences)
    in_flight = not by_threads and keep_in_flight(loop.op)
    with ir.InsertionPoint(terminator(body)), loop.op.location:
        if by_threads:
            fence_async("threads have read the stage that copies write next")
        if in_flight:
            _release_step_before(number, loop.stages, empty)
        else:
            BarrierArriveOp(empty, stage)


def _release_step_before(number: ir.Value, stages: int, empty: ir.Value) -> None:
    """The dot of the step before has ended: its stage is free."""
    branch = scf.IfOp(arith.cmpi(emit.SGT, number, emit.int_constant(0)))
    with ir.InsertionPoint(branch.then_block):
        before, _ = place_in_ring(arith.subi(number, emit.int_constant(1)), stages)
        BarrierArriveOp(empty, before)
        scf.YieldOp([])
