"""Kernels with one fault each, beside their repaired twins: `make(True)` is faulty, `make(False)` is not.

The line that the report has to name carries the comment "the fault" (the last such line of the function).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mosaic_gpu

X = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float16)
LIKE_X = jax.ShapeDtypeStruct(X.shape, X.dtype)
SMEM = plgpu.SMEM(X.shape, X.dtype)
SWIZZLED = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
TILE = plgpu.SMEM(X.shape, X.dtype, transforms=SWIZZLED)

Make = Callable[[bool], Callable[..., Any]]


@dataclass(frozen=True)
class Fault:
    """A fault: what its report says, and the field of `InterpretParams` that finds it ("" where none is needed)."""

    make: Make
    message: str
    check: str

    def line(self) -> int:
        """The number of the line that the report names."""
        lines, first = inspect.getsourcelines(self.make)
        return first + max(i for i, text in enumerate(lines) if "the fault" in text)


CORPUS: dict[str, Fault] = {}


def fault(name: str, message: str, check: str) -> Callable[[Make], Make]:
    """Adds a kernel to the corpus."""

    def add(make: Make) -> Make:
        CORPUS[name] = Fault(make, message, check)
        return make

    return add


def kernel(body: Callable[..., None], *scratch: Any, **options: Any) -> Callable[..., Any]:
    """A `plgpu.kernel` from X to an array like it."""
    return plgpu.kernel(body, out_type=LIKE_X, scratch_types=list(scratch), **options)  # type: ignore[no-any-return]


def plain(body: Callable[..., None], **options: Any) -> Callable[..., Any]:
    """A `pallas_call` from X to an array like it."""
    return mosaic_gpu.pallas_call(body, LIKE_X, **options)


@fault("a read out of bounds", r"x_ref is read out of bounds[^$]*index 64 in dimension 0 of size 64", "out_of_bounds")
def reads_outside(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any) -> None:
        def step(i: Any, _: Any) -> None:
            o_ref[i] = x_ref[i + faulty]  # the fault

        lax.fori_loop(0, 64, step, None)

    return plain(body)


@fault("a write out of bounds", r"o_ref is written out of bounds[^$]*slice from 60 to 68", "out_of_bounds")
def writes_outside(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]
        start = pl.program_id(0) + (60 if faulty else 56)
        o_ref[pl.ds(start, 8)] = x_ref[pl.ds(start - 8, 8)]  # the fault

    return plain(body, grid=(1,))


@fault("a gather out of bounds", r"x_ref is read out of bounds[^$]*index 64 in dimension 0", "out_of_bounds")
def gathers_outside(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[jnp.arange(64) + faulty]  # the fault

    return plain(body)


@fault("a read of uninitialised scratch", r"scratch_ref \(smem\) is read before it is written", "uninitialised_reads")
def reads_scratch(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any, scratch_ref: Any) -> None:
        if not faulty:
            scratch_ref[...] = jnp.zeros(X.shape, X.dtype)
        o_ref[...] = x_ref[...] + scratch_ref[...]  # the fault

    return plain(body, scratch_shapes=[SMEM])


@fault("a sum into an output that nothing set", r"o_ref is read before[^$]*4096 of 4096", "uninitialised_reads")
def adds_to_nothing(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any) -> None:
        @pl.when((pl.program_id(0) == 0) & (not faulty))
        def _() -> None:
            o_ref[...] = jnp.zeros(X.shape, X.dtype)

        o_ref[...] += x_ref[...]  # the fault

    return plain(body, grid=(2,))


@fault("an output that is not written", r"result o_ref unwritten[^$]*2048 of 4096[^$]*\[32, 0\]", "unwritten_outputs")
def writes_half(faulty: bool) -> Callable[..., Any]:
    spec = pl.BlockSpec((32, 64), lambda i: (i, 0))

    def body(x_ref: Any, o_ref: Any) -> None:  # the fault
        o_ref[...] = x_ref[...]

    return plain(body, grid=(1 if faulty else 2,), in_specs=[spec], out_specs=spec)


@fault(
    "two blocks that write one element", r"block \(1\) writes an element that another block wrote", "block_conflicts"
)
def shares_blocks(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]  # the fault

    return plain(
        body,
        grid=(2,),
        in_specs=[pl.BlockSpec((32, 64), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((33 if faulty else 32, 64), lambda i: (i, 0))
        if not faulty
        else pl.BlockSpec((32, 64), lambda i: (0, 0)),
        compiler_params=mosaic_gpu.CompilerParams(dimension_semantics=("parallel",)),
    )


@fault("two blocks of a mesh that write one row", r"block \(1\) writes an element that another", "block_conflicts")
def shares_rows(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any) -> None:
        block = lax.axis_index("g")
        rows = pl.ds(block * (31 if faulty else 32), 33 if faulty else 32)
        o_ref[rows] = x_ref[rows]  # the fault

    return kernel(body, grid=(2,), grid_names=("g",))


@fault("a block that reads what another wrote", r"reads what another block wrote of refs\[1\]", "block_conflicts")
def reads_neighbour(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any) -> None:
        block = lax.axis_index("g")
        o_ref[pl.ds(block * 32, 32)] = x_ref[pl.ds(block * 32, 32)]
        first = jnp.where(faulty, 0, block) * 32
        o_ref[pl.ds(block * 32, 32)] = 2 * o_ref[pl.ds(first, 32)]  # the fault

    return kernel(body, grid=(2,), grid_names=("g",))


@fault(
    "a race of two threads",
    r"race on [^:]*: block \(\) thread 1 writes it[^$]*the write by block \(\) thread 0",
    "races",
)
def races(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any, smem: Any) -> None:
        thread = lax.axis_index("t")
        row = pl.ds(0 if faulty else thread * 32, 32)
        smem[row] = x_ref[row]  # the fault
        o_ref[pl.ds(thread * 32, 32)] = smem[row]

    return kernel(body, SMEM, num_threads=2, thread_name="t")


@fault(
    "a thread that reads too early",
    r"race on [^:]*: block \(\) thread 0 reads it[^$]*the write by block \(\) thread 1",
    "races",
)
def reads_early(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any, smem: Any, filled: Any, emptied: Any) -> None:
        half = pl.ds(lax.axis_index("t") * 32, 32)
        other = pl.ds((1 - lax.axis_index("t")) * 32, 32)
        smem[half] = x_ref[half]
        plgpu.barrier_arrive(filled)
        plgpu.barrier_wait(filled)
        o_ref[half] = smem[other]  # the fault
        if not faulty:
            plgpu.barrier_arrive(emptied)
            plgpu.barrier_wait(emptied)
        smem[half] = jnp.zeros((32, 64), X.dtype)

    barrier = plgpu.Barrier(num_arrivals=2)
    return kernel(body, SMEM, barrier, barrier, num_threads=2, thread_name="t")


@fault("a copy that nobody waits for", r"(is read while|the write by) the copy to shared memory", "missing_waits")
def reads_before_the_copy(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any, smem: Any, barrier: Any) -> None:
        plgpu.copy_gmem_to_smem(x_ref, smem, barrier)
        if not faulty:
            plgpu.barrier_wait(barrier)
        o_ref[...] = smem[...]  # the fault

    return kernel(body, SMEM, plgpu.Barrier())


@fault("a copy into memory that is still read", r"thread 1 reads it, and the write by the copy", "missing_waits")
def refills_early(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any, smem: Any, full: Any, empty: Any) -> None:
        @pl.when(lax.axis_index("t") == 0)
        def _() -> None:
            plgpu.copy_gmem_to_smem(x_ref, smem, full)
            if not faulty:
                plgpu.barrier_wait(empty)
            plgpu.copy_gmem_to_smem(x_ref, smem, full)

        @pl.when(lax.axis_index("t") == 1)
        def _() -> None:
            plgpu.barrier_wait(full)
            o_ref[...] = smem[...]  # the fault
            plgpu.barrier_arrive(empty)
            plgpu.barrier_wait(full)

    return kernel(body, SMEM, plgpu.Barrier(), plgpu.Barrier(), num_threads=2, thread_name="t")


@fault("a write to memory that is still copied", r"writes it, and the read by the copy to global", "missing_waits")
def overwrites_a_copy(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any, smem: Any) -> None:
        for half in (pl.ds(0, 32), pl.ds(32, 32)):
            smem[pl.ds(0, 32)] = x_ref[half]  # the fault
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(smem.at[pl.ds(0, 32)], o_ref.at[half])
            if not faulty:
                plgpu.wait_smem_to_gmem(0)
        plgpu.wait_smem_to_gmem(0)

    return kernel(body, SMEM)


@fault("a barrier that never completes", r"never ends[^$]*thread 0 waits for barrier[^$]*1 of 2 arrivals", "")
def waits_for_ever(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any, barrier: Any) -> None:
        thread = lax.axis_index("t")

        @pl.when(thread == 0)
        def _() -> None:
            plgpu.barrier_arrive(barrier)

        plgpu.barrier_wait(barrier)  # the fault
        o_ref[pl.ds(thread * 32, 32)] = x_ref[pl.ds(thread * 32, 32)]

    return kernel(body, plgpu.Barrier(num_arrivals=2 if faulty else 1), num_threads=2, thread_name="t")


@fault("a barrier that went on without a thread", r"went on without[^$]*waits for phase 1, and phase 2", "")
def misses_a_phase(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any, barrier: Any) -> None:
        plgpu.barrier_arrive(barrier)
        if not faulty:
            plgpu.barrier_wait(barrier)
        plgpu.barrier_arrive(barrier)
        plgpu.barrier_wait(barrier)  # the fault
        o_ref[...] = x_ref[...]

    return kernel(body, plgpu.Barrier())


@fault("a missing commit_smem", r"the copy to global memory[^$]*was not committed", "missing_commits")
def copies_uncommitted(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any, smem: Any) -> None:
        smem[...] = x_ref[...]
        if not faulty:
            plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(smem, o_ref)  # the fault
        plgpu.wait_smem_to_gmem(0)

    return kernel(body, SMEM)


@fault("a copy that is in no group", r"is never committed to a group", "missing_commits")
def forgets_the_group(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any, smem: Any) -> None:
        smem[...] = x_ref[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(smem, o_ref, commit_group=False)  # the fault
        if not faulty:
            plgpu.commit_smem_to_gmem_group()
        plgpu.wait_smem_to_gmem(0)

    return kernel(body, SMEM)


@fault("a copy that outlives its block", r"ends while the copy to global memory", "missing_waits")
def leaves_early(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any, smem: Any) -> None:
        smem[...] = x_ref[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(smem, o_ref)  # the fault
        if not faulty:
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)

    return kernel(body, SMEM)


@fault("a copy that is never used", r"nobody has waited for more than 0 phases", "missing_waits")
def forgets_a_copy(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any, smem: Any, barrier: Any) -> None:
        plgpu.copy_gmem_to_smem(x_ref, smem, barrier)  # the fault
        if not faulty:
            plgpu.barrier_wait(barrier)
        o_ref[...] = x_ref[...]

    return kernel(body, SMEM, plgpu.Barrier())


@fault("an accumulator that is read too early", r"accumulator [^$]* is read while a wgmma writes it", "missing_waits")
def reads_the_accumulator(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any, a: Any, barrier: Any) -> None:
        plgpu.copy_gmem_to_smem(x_ref, a, barrier)
        plgpu.barrier_wait(barrier)

        def scope(acc: Any) -> None:
            plgpu.wgmma(acc, a, a)
            o_ref[...] = plgpu.wgmma_accumulator_load(acc, wait_n=None if faulty else 0).astype(X.dtype)  # the fault
            plgpu.wgmma_wait(0)

        pl.run_scoped(scope, plgpu.ACC((64, 64), jnp.float32))

    return kernel(body, TILE, plgpu.Barrier())


@fault("an operand that a wgmma still reads", r"writes it, and the read by the wgmma", "missing_waits")
def overwrites_an_operand(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any, a: Any, barrier: Any) -> None:
        plgpu.copy_gmem_to_smem(x_ref, a, barrier)
        plgpu.barrier_wait(barrier)

        def scope(acc: Any) -> None:
            plgpu.wgmma(acc, a, a)
            plgpu.wgmma_wait(1 if faulty else 0)
            a[...] = jnp.zeros(X.shape, X.dtype)  # the fault
            o_ref[...] = acc[...].astype(X.dtype)

        pl.run_scoped(scope, plgpu.ACC((64, 64), jnp.float32))

    return kernel(body, TILE, plgpu.Barrier())


@fault("an operand that is not committed", r"the wgmma[^$]*was not committed", "missing_commits")
def multiplies_uncommitted(faulty: bool) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any, a: Any) -> None:
        a[...] = x_ref[...]
        if not faulty:
            plgpu.commit_smem()

        def scope(acc: Any) -> None:
            plgpu.wgmma(acc, a, a)  # the fault
            o_ref[...] = acc[...].astype(X.dtype)

        pl.run_scoped(scope, plgpu.ACC((64, 64), jnp.float32))

    return kernel(body, TILE)
