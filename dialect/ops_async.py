"""Copies that run beside the threads (TMA, cp.async), mbarriers that tell of their end, and who of the block does what.

An *mbarrier* (PTX ISA, "mbarrier") counts arrivals, and bytes that copies have still to bring; when both reach
zero its phase ends and the next one begins.  Who waits names the parity of the phase that is to end: 0 for
the first one, 1 for the second, and so on.  A ring of S of them guards the S stages of a buffer:

    step         0  1  2  3  4  5  ..          step n: stage n mod S, parity (n / S) mod 2
    stage (S=3)  0  1  2  0  1  2
    parity       0  0  0  1  1  1

`barriers` is a reference to n 64-bit words of shared memory, `index` (i32) the number of one of them.
"""

from typing import Any

from mosaic_gpu.dialect._mlir import ext, ir
from mosaic_gpu.dialect.attrs import LayoutAttr
from mosaic_gpu.dialect.diagnostics import require
from mosaic_gpu.dialect.mgpu import Mgpu
from mosaic_gpu.dialect.types import GMEM, SMEM, RefType, element_of, ref_space, shape_of


def _check_barriers(op: Any) -> bool:
    type_ = op.barriers.type
    word = ir.IntegerType.get_signless(64)
    fitting = ref_space(type_) == SMEM and len(shape_of(type_)) == 1 and element_of(type_) == word
    return require(op, fitting, "barriers must be 64-bit words of shared memory in one dimension")


def _check_copy(op: Any, source: str, dest: str) -> bool:
    types = op.source.type, op.dest.type
    return (
        require(op, [ref_space(t) for t in types] == [source, dest], f"copies from {source} to {dest}")
        and require(op, shape_of(types[0]) == shape_of(types[1]), "shapes of source and dest differ")
        and require(op, element_of(types[0]) == element_of(types[1]), "element types of source and dest differ")
    )


class BarrierInitOp(Mgpu.Operation, name="barrier_init"):
    """One thread makes mbarriers of all words of `barriers`; each phase ends after `arrivals` arrivals.

    Others may use them behind the next `mgpu.barrier`.
    """

    barriers: ext.Operand[RefType]
    arrivals: ir.IntegerAttr

    def verify_invariants(self) -> bool:
        positive = ir.IntegerAttr(self.arrivals).value > 0
        return _check_barriers(self) and require(self, positive, "arrivals must be positive")


class BarrierDestroyOp(Mgpu.Operation, name="barrier_destroy"):
    """One thread ends the mbarriers of `barriers`, which nobody uses any more: the memory is free for other things."""

    barriers: ext.Operand[RefType]

    def verify_invariants(self) -> bool:
        return _check_barriers(self)


class BarrierExpectOp(Mgpu.Operation, name="barrier_expect"):
    """One thread arrives and says that copies will bring `num_bytes` bytes more before the phase ends."""

    barriers: ext.Operand[RefType]
    index: ext.Operand[Any]
    num_bytes: ir.IntegerAttr

    def verify_invariants(self) -> bool:
        positive = ir.IntegerAttr(self.num_bytes).value > 0
        return _check_barriers(self) and require(self, positive, "num_bytes must be positive")


class BarrierArriveOp(Mgpu.Operation, name="barrier_arrive"):
    """Each warp arrives once, when all its lanes are here."""

    barriers: ext.Operand[RefType]
    index: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        return _check_barriers(self)


class BarrierWaitOp(Mgpu.Operation, name="barrier_wait"):
    """Every thread waits until the phase of parity `parity` (i32, 0 or 1) has ended."""

    barriers: ext.Operand[RefType]
    index: ext.Operand[Any]
    parity: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        return _check_barriers(self)


class AsyncLoadOp(Mgpu.Operation, name="async_load"):
    """One thread starts the copy of a view of global memory to shared memory; the mbarrier hears of its bytes.

    What lies outside of the array arrives as zeros.
    """

    source: ext.Operand[RefType]
    dest: ext.Operand[RefType]
    barriers: ext.Operand[RefType]
    index: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        return _check_barriers(self) and _check_copy(self, GMEM, SMEM)


class AsyncStoreOp(Mgpu.Operation, name="async_store"):
    """One thread starts the copy of shared memory to a view of global memory.

    What lies outside of the array is not written.  Goes behind an `mgpu.fence_async` of all who stored to
    `source` and an `mgpu.barrier`.
    """

    source: ext.Operand[RefType]
    dest: ext.Operand[RefType]

    def verify_invariants(self) -> bool:
        return _check_copy(self, SMEM, GMEM)


class AsyncWaitStoresOp(Mgpu.Operation, name="async_wait_stores"):
    """The thread that started the copies of `mgpu.async_store` waits until they have read shared memory."""


class AsyncCopyOp(Mgpu.Operation, name="async_copy"):
    """Each thread starts the copies of the elements that it holds in layout `layout` from global to shared memory.

    What lies outside of a checked view arrives as zeros.  PTX ISA, `cp.async`: accesses of 4, 8 or 16 bytes.
    """

    source: ext.Operand[RefType]
    dest: ext.Operand[RefType]
    layout: LayoutAttr

    def verify_invariants(self) -> bool:
        return _check_copy(self, GMEM, SMEM)


class AsyncCommitOp(Mgpu.Operation, name="async_commit"):
    """Makes a group, which may be empty, of what a thread has started by `mgpu.async_copy` since the last one."""


class AsyncWaitCopiesOp(Mgpu.Operation, name="async_wait_copies"):
    """Each thread waits until at most `pending` of its groups are under way.

    Others see what arrived behind the next `mgpu.barrier`, matrix units behind a `mgpu.fence_async` before it.
    """

    pending: ir.IntegerAttr

    def verify_invariants(self) -> bool:
        return require(self, ir.IntegerAttr(self.pending).value >= 0, "pending must not be negative")


class SpecializeOp(Mgpu.Operation, name="specialize", traits=[ir.NoTerminatorTrait]):
    """The warps of the block part: the kernel's `num_warps` warps do `consumer`, a warpgroup more does `producer`.

    In `consumer` an `mgpu.barrier` is one of those warps alone; in `producer` there is none.  `producer_registers`
    and `consumer_registers` are what a thread of each has from then on; 0 leaves them as they are.
    """

    producer_registers: ir.IntegerAttr
    consumer_registers: ir.IntegerAttr
    producer: ext.Region
    consumer: ext.Region
