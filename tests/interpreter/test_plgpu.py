"""What `plgpu` primitives mean: copies, barriers, threads, warps, clusters, accumulators, transformed references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mosaic_gpu
from mosaic_gpu import InterpretParams, SimulationError, UnsupportedError

X = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float16)
SMEM = plgpu.SMEM(X.shape, X.dtype)
TILE = plgpu.SMEM(X.shape, X.dtype, transforms=(plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128)))


def run(body: Callable[..., None], *arrays: Any, out: Any = X, scratch: Any = (), seed: Any = None, **mesh: Any) -> Any:
    like = jax.ShapeDtypeStruct(out.shape, out.dtype)
    call = plgpu.kernel(body, out_type=like, scratch_types=list(scratch), **mesh)
    return mosaic_gpu.interpret(call, *(arrays or (X,)), params=InterpretParams(seed=seed))


def test_a_copy_reads_zeros_outside_of_an_array_and_writes_nothing_there() -> None:
    def body(x_ref: Any, o_ref: Any, smem: Any, barrier: Any) -> None:
        plgpu.copy_gmem_to_smem(x_ref.at[pl.ds(lax.axis_index("g") + 40, 64)], smem, barrier)
        plgpu.barrier_wait(barrier)
        o_ref[...] = smem[...]

    expected = np.concatenate([X[40:], np.zeros((40, 64), X.dtype)])
    np.testing.assert_array_equal(run(body, scratch=[SMEM, plgpu.Barrier()], grid=(1,), grid_names=("g",)), expected)


def test_a_copy_that_promises_to_stay_inside_is_held_to_it() -> None:
    from jax.experimental.mosaic.gpu.launch_context import OOBFillMode

    def body(x_ref: Any, o_ref: Any, smem: Any, barrier: Any) -> None:
        rows = pl.ds(lax.axis_index("g") + 1, 64)
        plgpu.copy_gmem_to_smem(x_ref.at[rows], smem, barrier, oob_mode=OOBFillMode.PROMISE_IN_BOUNDS)
        plgpu.barrier_wait(barrier)
        o_ref[...] = smem[...]

    with pytest.raises(SimulationError, match="promises otherwise"):
        run(body, scratch=[SMEM, plgpu.Barrier()], grid=(1,), grid_names=("g",))


@pytest.mark.parametrize(("operation", "function"), [("add", np.add), ("max", np.maximum), ("min", np.minimum)])
def test_a_copy_out_may_combine_with_what_is_there(operation: Any, function: Any) -> None:
    def body(x_ref: Any, o_ref: Any, smem: Any) -> None:
        o_ref[...] = jnp.ones(X.shape, X.dtype)
        smem[...] = x_ref[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(smem, o_ref, reduction_op=operation)
        plgpu.wait_smem_to_gmem(0)

    np.testing.assert_array_equal(run(body, scratch=[SMEM]), function(X, np.float16(1)))


@pytest.mark.parametrize("predicate", [False, True])
def test_a_predicate_leaves_a_copy_out(predicate: bool) -> None:
    def body(x_ref: Any, o_ref: Any, smem: Any) -> None:
        o_ref[...] = jnp.zeros(X.shape, X.dtype)
        smem[...] = x_ref[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(smem, o_ref, predicate=jnp.asarray(predicate))
        plgpu.wait_smem_to_gmem(0)

    np.testing.assert_array_equal(run(body, scratch=[SMEM]), X * predicate)


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_barrier_hands_memory_from_thread_to_thread(seed: int | None) -> None:
    def body(x_ref: Any, o_ref: Any, smem: Any, full: Any, empty: Any) -> None:
        @pl.when(lax.axis_index("t") == 0)
        def _() -> None:
            for i in range(4):
                smem[pl.ds(0, 16)] = 2 * x_ref[pl.ds(16 * i, 16)]
                plgpu.barrier_arrive(full)
                plgpu.barrier_wait(empty)

        @pl.when(lax.axis_index("t") == 1)
        def _() -> None:
            for i in range(4):
                plgpu.barrier_wait(full)
                o_ref[pl.ds(16 * i, 16)] = smem[pl.ds(0, 16)]
                plgpu.barrier_arrive(empty)

    scratch = [SMEM, plgpu.Barrier(), plgpu.Barrier()]
    np.testing.assert_array_equal(run(body, scratch=scratch, seed=seed, num_threads=2, thread_name="t"), 2 * X)


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_cluster_barrier_counts_arrivals_of_all_blocks(seed: int | None) -> None:
    def body(x_ref: Any, o_ref: Any, barrier: Any) -> None:
        me = lax.axis_index("c")
        o_ref[pl.ds(32 * me, 32)] = x_ref[pl.ds(32 * me, 32)]
        plgpu.barrier_arrive(barrier)
        plgpu.barrier_wait(barrier)
        o_ref[pl.ds(32 * me, 32)] = o_ref[pl.ds(32 * me, 32)] + x_ref[pl.ds(32 * (1 - me), 32)]

    scratch = [plgpu.ClusterBarrier(collective_axes=("c",))]
    expected = X + np.concatenate([X[32:], X[:32]])
    np.testing.assert_array_equal(run(body, scratch=scratch, seed=seed, cluster=(2,), cluster_names=("c",)), expected)


@pytest.mark.parametrize("transposed", [False, True])
def test_wgmma_multiplies_tiles(transposed: bool) -> None:
    def body(x_ref: Any, o_ref: Any, a: Any, barrier: Any) -> None:
        plgpu.copy_gmem_to_smem(x_ref, a, barrier)
        plgpu.barrier_wait(barrier)

        def scope(acc: Any) -> None:
            plgpu.wgmma(acc, a, a.transpose((1, 0)) if transposed else a)
            plgpu.wgmma(acc, a, a)
            o_ref[...] = acc[...]

        pl.run_scoped(scope, plgpu.ACC((64, 64), jnp.float32))

    wide = X.astype(np.float32)
    out = np.zeros((64, 64), np.float32)
    found = run(body, out=out, scratch=[TILE, plgpu.Barrier()])
    np.testing.assert_allclose(found, wide @ (wide.T if transposed else wide) + wide @ wide, rtol=1e-4, atol=1e-4)


def test_an_accumulator_may_start_as_a_value() -> None:
    def body(x_ref: Any, o_ref: Any, a: Any, barrier: Any) -> None:
        plgpu.copy_gmem_to_smem(x_ref, a, barrier)
        plgpu.barrier_wait(barrier)

        def scope(acc: Any) -> None:
            plgpu.wgmma(acc, a, a)

        start = x_ref[...].astype(jnp.float32)
        o_ref[...] = pl.run_state(scope)(plgpu.ACC.init(start))

    wide = X.astype(np.float32)
    found = run(body, out=wide, scratch=[TILE, plgpu.Barrier()])
    np.testing.assert_allclose(found, wide + wide @ wide, rtol=1e-4, atol=1e-4)


def test_a_union_of_references_is_one_memory() -> None:
    union = plgpu.RefUnion([plgpu.SMEM((64,), jnp.float32)], [plgpu.SMEM((128,), jnp.float16)])

    def body(x_ref: Any, o_ref: Any, refs: Any) -> None:
        (words,), (halves,) = refs
        words[...] = x_ref[0].astype(jnp.float32)
        o_ref[0] = words[...].astype(jnp.float16)
        halves[...] = jnp.concatenate([x_ref[1], x_ref[2]])
        o_ref[1] = halves[pl.ds(64, 64)]

    np.testing.assert_array_equal(run(body, out=X[:2], scratch=[union]), X[[0, 2]])


@pytest.mark.parametrize("seed", [None, 4])
def test_warps_of_a_warpgroup_run_by_themselves(seed: int | None) -> None:
    def body(x_ref: Any, o_ref: Any, smem: Any, barrier: Any) -> None:
        @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
        def _() -> None:
            warp = lax.axis_index("warp")

            @pl.when(warp == 2)
            def _() -> None:
                plgpu.copy_gmem_to_smem(x_ref, smem, barrier)

        plgpu.barrier_wait(barrier)
        o_ref[...] = smem[...]

    np.testing.assert_array_equal(run(body, scratch=[SMEM, plgpu.Barrier()], seed=seed), X)


def test_blocks_add_to_one_element_atomically() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        plgpu.atomic_add(o_ref.at[0], x_ref[lax.axis_index("g")])

    def kernel(x: Any) -> Any:
        out = jax.new_ref(jnp.zeros((1, 64), jnp.float32))
        del out
        return plgpu.kernel(
            lambda x_ref, o_ref: body(x_ref, o_ref),
            out_type=jax.ShapeDtypeStruct((1, 64), jnp.float32),
            grid=(4,),
            grid_names=("g",),
        )(x)

    params = InterpretParams(uninitialised="zero", uninitialised_reads="ignore")
    x = X[:4].astype(np.float32)
    np.testing.assert_allclose(mosaic_gpu.interpret(kernel, x, params=params)[0], x.sum(0), rtol=1e-5)


def test_blackwells_primitives_are_refused_by_name() -> None:
    def body(x_ref: Any, o_ref: Any, tmem: Any) -> None:
        o_ref[...] = plgpu.async_load_tmem(tmem)

    with pytest.raises(UnsupportedError, match=r"tensor memory|async_load|not supported"):
        run(body, out=np.zeros((128, 128), np.float32), scratch=[plgpu.TMEM((128, 128), jnp.float32)])
