"""`mgpu.specialize`: the warps of a block part, with registers and barriers of their own for each side."""

from __future__ import annotations

from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.conversion import Conversion, converts

CONSUMER_BARRIER = 1
"""Number of the hardware barrier at which the consumers meet; 0 is everybody's."""


@converts("mgpu.specialize")
def convert_specialize(conversion: Conversion, op: Any) -> list[ir.Value]:
    """Threads beyond the kernel's own are the producer's; the first of them does what there is to do."""
    consumers = 1 << conversion.threads.num_bits
    is_producer = emit.compare(emit.UGE, conversion.threads.tid, consumers)
    branch = emit.op_with_regions("scf.if", [is_producer], 2)
    with ir.InsertionPoint(branch.regions[0].blocks.append()):
        _set_registers("dec", op.producer_registers)
        _convert_producer(conversion, op, consumers)
        emit.op("scf.yield", [], [])
    with ir.InsertionPoint(branch.regions[1].blocks.append()):
        _set_registers("inc", op.consumer_registers)
        conversion.block(op.consumer.blocks[0])
        emit.op("scf.yield", [], [])
    for barrier in _barriers(branch.regions[1].blocks[0]):
        _narrow(barrier, consumers)
    return []


def _set_registers(direction: str, registers: Any) -> None:
    """`setmaxnreg` (PTX ISA), which the whole warpgroup executes."""
    count = ir.IntegerAttr(registers).value
    if count:
        emit.inline_asm(f"setmaxnreg.{direction}.sync.aligned.u32 {count};", "", [], [], effects=True)


def _convert_producer(conversion: Conversion, op: Any, first: int) -> None:
    elected = emit.op_with_regions("scf.if", [emit.compare(emit.EQ, conversion.threads.tid, first)], 2)
    conversion.first_thread = first
    with ir.InsertionPoint(elected.regions[0].blocks.append()):
        conversion.block(op.producer.blocks[0])
        emit.op("scf.yield", [], [])
    conversion.first_thread = 0


def _barriers(block: ir.Block) -> list[Any]:
    """The barriers in a block, at any depth."""
    found = []
    for view in block.operations:
        op = view.operation
        if op.name == "nvvm.barrier":
            found.append(op)
        for region in op.regions:
            for inner in region.blocks:
                found += _barriers(inner)
    return found


def _narrow(barrier: Any, threads: int) -> None:
    """Makes a barrier one of the consumers alone."""
    with ir.InsertionPoint(barrier), barrier.location:
        operands = [emit.const(CONSUMER_BARRIER), emit.const(threads)]
        emit.op("nvvm.barrier", [], operands, {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1])})
    barrier.erase()
