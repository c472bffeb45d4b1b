"""mbarriers: inline PTX for the ops of `dialect.ops_async` that make them, arrive at them and wait for them."""

from __future__ import annotations

from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import LANE_BITS
from mosaic_gpu.dialect.types import shape_of
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.conversion import Conversion, converts

BARRIER_BYTES = 8
_FULL_WARP = 0xFFFFFFFF


@converts("mgpu.barrier_init")
def convert_barrier_init(conversion: Conversion, op: Any) -> list[ir.Value]:
    """Thread 0 initialises, and makes it known to the async proxy (PTX ISA, `fence.mbarrier_init`)."""
    base, count = conversion.get(op.barriers).pointer, shape_of(op.barriers.type)[0]
    arrivals = ir.IntegerAttr(op.arrivals).value
    lines = [f"@$0 mbarrier.init.shared::cta.b64 [$1+{BARRIER_BYTES * i}], {arrivals};" for i in range(count)]
    lines.append("@$0 fence.mbarrier_init.release.cluster;")
    _effect("\n".join(lines), "b,l", [first_thread(conversion), base])
    return []


@converts("mgpu.barrier_destroy")
def convert_barrier_destroy(conversion: Conversion, op: Any) -> list[ir.Value]:
    """Thread 0 invalidates."""
    base, count = conversion.get(op.barriers).pointer, shape_of(op.barriers.type)[0]
    lines = [f"@$0 mbarrier.inval.shared::cta.b64 [$1+{BARRIER_BYTES * i}];" for i in range(count)]
    _effect("\n".join(lines), "b,l", [first_thread(conversion), base])
    return []


@converts("mgpu.barrier_expect")
def convert_barrier_expect(conversion: Conversion, op: Any) -> list[ir.Value]:
    """The thread that starts the copies arrives, with their bytes."""
    text = f"@$0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [$1], {ir.IntegerAttr(op.num_bytes).value};"
    _effect(text, "b,l", [first_thread(conversion), barrier_at(conversion, op)])
    return []


@converts("mgpu.barrier_arrive")
def convert_barrier_arrive(conversion: Conversion, op: Any) -> list[ir.Value]:
    """The first lane of each warp arrives, behind all its lanes."""
    lane = emit.and_(conversion.threads.tid, (1 << LANE_BITS) - 1)
    first = emit.compare(emit.EQ, lane, 0)
    text = f"bar.warp.sync {_FULL_WARP};\n@$0 mbarrier.arrive.shared::cta.b64 _, [$1];"
    _effect(text, "b,l", [first, barrier_at(conversion, op)])
    return []


@converts("mgpu.barrier_wait")
def convert_barrier_wait(conversion: Conversion, op: Any) -> list[ir.Value]:
    """Tries until the phase has ended; the instruction itself waits for a while each time."""
    text = (
        "{\n.reg .pred done;\nwaiting:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\n@!done bra waiting;\n}"
    )
    _effect(text, "l,r", [barrier_at(conversion, op), conversion.get(op.parity)])
    return []


def barrier_at(conversion: Conversion, op: Any) -> ir.Value:
    """The address of barrier `op.index` of `op.barriers`."""
    base = conversion.get(op.barriers).pointer
    return emit.gep(base, emit.mul(conversion.get(op.index), BARRIER_BYTES))


def first_thread(conversion: Conversion) -> ir.Value:
    """Whether this is the thread that starts copies: the first of those that run this code."""
    return emit.compare(emit.EQ, conversion.threads.tid, conversion.first_thread)


def _effect(text: str, constraints: str, operands: list[ir.Value]) -> None:
    emit.inline_asm(text, f"{constraints},~{{memory}}", operands, [], effects=True)
