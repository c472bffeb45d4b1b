"""Loops whose loads run ahead of them give what they give without: any number of steps, any shape, any depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mosaic_gpu
from tests.support.backends import run_on_simulator
from tests.support.kernels import accumulate_product

CHOICES = st.sampled_from(
    [
        {"max_concurrent_steps": 2},
        {"max_concurrent_steps": 3, "warp_specialize": False},
        {"warp_specialize": False},
        {},
        {"num_warps": 4},
    ]
)


def values(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> np.ndarray[Any, Any]:
    """Random numbers that sums of products of a few hundred represent well."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def ir_of(call: Callable[..., Any], *arrays: Any) -> str:
    """The kernel as stage "pipelined" leaves it."""
    return str(mosaic_gpu.compile(call, *arrays).ir("pipelined"))


def matmul(m: int, n: int, k: int, block: tuple[int, int, int], dtype: Any, **choices: Any) -> Callable[..., Any]:
    """The matmul of Pallas' documentation, with K as the last dimension of the grid."""

    bm, bn, bk = block
    call = pl.pallas_call(
        accumulate_product,
        grid=(pl.cdiv(m, bm), pl.cdiv(n, bn), pl.cdiv(k, bk)),
        in_specs=[
            pl.BlockSpec((bm, bk), lambda i, j, step: (i, step)),
            pl.BlockSpec((bk, bn), lambda i, j, step: (step, j)),
        ],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, step: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), dtype),
        scratch_shapes=[plgpu.SMEM((bm, bn), jnp.float32)],
        compiler_params=mosaic_gpu.CompilerParams(**choices),
    )
    return call  # type: ignore[no-any-return]


@settings(max_examples=20, deadline=None)
@given(
    m=st.sampled_from([64, 100, 192]),
    n=st.sampled_from([8, 72, 128]),
    k=st.sampled_from([40, 64, 100, 132, 320]),
    block=st.sampled_from([(64, 64, 16), (128, 32, 64), (64, 128, 32), (128, 256, 64)]),
    dtype=st.sampled_from(["float16", "bfloat16", "float32"]),
    choices=CHOICES,
)
def test_a_matmul_is_the_same_with_its_loads_ahead(
    m: int, n: int, k: int, block: tuple[int, int, int], dtype: str, choices: dict[str, Any]
) -> None:
    x, y = values((m, k), jnp.dtype(dtype)), values((k, n), jnp.dtype(dtype), 1)
    plain = choices | {"max_concurrent_steps": 1, "warp_specialize": False}
    ahead, behind = (run_on_simulator(matmul(m, n, k, block, dtype, **c), x, y) for c in (choices, plain))
    np.testing.assert_array_equal(ahead, behind)
    expected = x.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_allclose(ahead.astype(np.float64), expected, rtol=1e-2, atol=2e-2)


def test_a_matmul_with_scratch_memory_runs_in_as_many_blocks_as_it_has_outputs() -> None:
    """Nothing is said of its grid: the scratch memory turns out to be a value of each block."""
    x, y = values((256, 256), jnp.bfloat16), values((256, 384), jnp.bfloat16, 1)
    kernel = mosaic_gpu.compile(matmul(256, 384, 256, (128, 128, 64), "bfloat16"), x, y)
    assert kernel.launch_facts.grid == (6, 1, 1)
    text = str(kernel.ir("pipelined"))
    assert "mgpu.specialize" in text
    assert "mgpu.pending" in text


@pytest.mark.parametrize(("m", "n"), [(128, 128), (100, 128), (200, 72), (128, 264)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_results_of_matrix_units_are_written_by_tma(m: int, n: int, dtype: str) -> None:
    """Also where blocks reach beyond the array: canaries around it stay."""
    x, y = values((m, 64), jnp.bfloat16), values((64, n), jnp.bfloat16, 1)

    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32).astype(o_ref.dtype)

    call = pl.pallas_call(
        kernel,
        grid=(pl.cdiv(m, 128), pl.cdiv(n, 128)),
        in_specs=[pl.BlockSpec((128, 64), lambda i, j: (i, 0)), pl.BlockSpec((64, 128), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((128, 128), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.dtype(dtype)),
        compiler_params=mosaic_gpu.CompilerParams(),
    )
    assert "mgpu.async_store" in ir_of(call, x, y)
    expected = x.astype(np.float64) @ y.astype(np.float64)
    found = run_on_simulator(call, x, y).astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)


def test_scratch_memory_that_steps_hand_on_keeps_them_in_order() -> None:
    """A running sum over the grid."""

    def kernel(x_ref: Any, o_ref: Any, sum_ref: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            sum_ref[...] = jnp.zeros_like(sum_ref)

        sum_ref[...] += x_ref[...]
        o_ref[...] = sum_ref[...]

    spec = pl.BlockSpec((16, 64), lambda i: (i, 0))
    call = pl.pallas_call(
        kernel,
        grid=(6,),
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((96, 64), jnp.float32),
        scratch_shapes=[plgpu.SMEM((16, 64), jnp.float32)],
        compiler_params=mosaic_gpu.CompilerParams(),
    )
    x = np.round(values((96, 64)) * 8)
    expected = x.reshape(6, 16, 64).cumsum(0).reshape(96, 64)
    np.testing.assert_array_equal(run_on_simulator(call, x), expected)


def rows_summed(blocks: int, size: tuple[int, int], counted: bool, **choices: Any) -> Callable[..., Any]:
    """Sums the first blocks of rows of an array, as many as the other input says (`counted`), or all."""

    def kernel(count_ref: Any, x_ref: Any, o_ref: Any) -> None:
        def step(i: Any, total: Any) -> Any:
            return total * 0.5 + x_ref[pl.ds(i * size[0], size[0]), :]

        stop = count_ref[0] if counted else blocks
        o_ref[...] = jax.lax.fori_loop(0, stop, step, jnp.zeros(size, jnp.float32))

    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(size, jnp.float32),
        compiler_params=mosaic_gpu.CompilerParams(**choices),
    )
    return call  # type: ignore[no-any-return]


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_loop_of_a_computed_number_of_steps_reads_its_blocks_ahead(steps: int, stages: int) -> None:
    x, size = values((7 * 16, 64)), (16, 64)
    call = rows_summed(7, size, counted=True, max_concurrent_steps=stages)
    counts = np.array([steps], np.int32)
    expected = np.zeros(size, np.float32)
    for i in range(min(steps, 7)):
        expected = expected * np.float32(0.5) + x[16 * i : 16 * i + 16]
    assert "mgpu.async_load" in ir_of(call, counts, x)
    if steps <= 7:
        np.testing.assert_array_equal(run_on_simulator(call, counts, x), expected)


@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("specialized", [True, False])
def test_a_loop_of_a_known_number_of_steps_is_drained(blocks: int, specialized: bool) -> None:
    x, size = values((blocks * 32, 128)), (32, 128)
    choices: dict[str, Any] = {"num_warps": 4, "warp_specialize": specialized} if blocks > 1 else {}
    call = rows_summed(blocks, size, counted=False, **choices)
    expected = np.zeros(size, np.float32)
    for i in range(blocks):
        expected = expected * np.float32(0.5) + x[32 * i : 32 * i + 32]
    np.testing.assert_array_equal(run_on_simulator(call, np.zeros(1, np.int32), x), expected)


@pytest.mark.parametrize(
    ("size", "target", "copies"),
    [
        ((16, 100), "sm_90a", "mgpu.async_load"),
        ((16, 64), "sm_80", "mgpu.async_copy"),
        ((7, 1001), "sm_90a", "mgpu.async_copy"),
        ((16, 126), "sm_86", "mgpu.async_copy"),
        ((2, 200), "sm_90a", "mgpu.load"),
    ],
)
def test_blocks_are_copied_by_what_can_copy_them(size: tuple[int, int], target: str, copies: str) -> None:
    """TMA wants rows of 16 bytes, cp.async accesses of 4; small blocks stay where they are."""
    x = np.round(values((size[0] * 6, size[1])) * 8)
    call = rows_summed(6, size, counted=False, target=target)
    counts = np.zeros(1, np.int32)
    text = ir_of(call, counts, x)
    assert copies in text
    assert ("mgpu.async" in text) == ("mgpu.async" in copies)
    expected = np.zeros(size, np.float32)
    for block in x.reshape(6, *size):
        expected = expected * np.float32(0.5) + block
    np.testing.assert_array_equal(run_on_simulator(call, counts, x), expected)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_90a", "sm_100a", "sm_120a"])
def test_a_matmul_with_its_loads_ahead_assembles_without_spilling(target: str) -> None:
    """Fences and copies are those that the target has."""
    x, y = values((256, 256), jnp.bfloat16), values((256, 256), jnp.bfloat16, 1)
    kernel = mosaic_gpu.compile(matmul(256, 256, 256, (128, 128, 64), "bfloat16", target=target), x, y)
    assert "mgpu.async" in str(kernel.ir("pipelined"))
    assert kernel.resources.spill_store_bytes == 0


def test_the_main_loop_of_a_matmul_is_matrix_units_and_barriers() -> None:
    """128x256 accumulators stay in registers; nobody but the matrix units touches memory between two steps."""
    x, y = values((128, 4096), jnp.bfloat16), values((4096, 256), jnp.bfloat16, 1)
    kernel = mosaic_gpu.compile(matmul(128, 256, 4096, (128, 256, 64), "bfloat16"), x, y)
    lines = [line for line in kernel.sass.splitlines() if "/*" in line]
    first, last = (f([i for i, line in enumerate(lines) if "HGMMA" in line]) for f in (min, max))
    loop = lines[first:last]
    assert sum("HGMMA" in line for line in loop) == 3
    assert not [line for line in loop if any(word in line for word in ("LDS", "STS", "LDG", "STG", "LDL", "STL"))]
    assert kernel.resources.spill_store_bytes == 0


PATHS: dict[str, Callable[[Any, int], Any]] = {
    "forward": lambda i, n: i,
    "backward": lambda i, n: n - i,
    "every second": lambda i, n: 2 * i + 1,
    "wrapping": lambda i, n: (i * 3) % n,
}


@settings(max_examples=25, deadline=None)
@given(
    size=st.sampled_from([(8, 64), (16, 96), (24, 100), (16, 320)]),
    bounds=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    path=st.sampled_from(sorted(PATHS)),
    dtype=st.sampled_from([np.float32, np.float16, np.int32]),
    is_counted=st.booleans(),
    stages=st.sampled_from([None, 2, 3]),
)
def test_blocks_are_read_ahead_on_any_path(
    size: tuple[int, int], bounds: tuple[int, int], path: str, dtype: Any, is_counted: bool, stages: int | None
) -> None:
    """Loops from any first step to any last one, known or not, over blocks in any order."""
    n, place, (rows, columns) = 9, PATHS[path], size
    x = np.round(values((2 * (n + 1) * rows, columns)) * 8).astype(dtype)
    total = jnp.int32 if dtype == np.int32 else jnp.float32

    def kernel(bounds_ref: Any, x_ref: Any, o_ref: Any) -> None:
        def step(i: Any, carry: Any) -> Any:
            return carry * 2 + x_ref[pl.ds(place(i, n) * rows, rows), :].astype(total)

        first, last = (bounds_ref[0], bounds_ref[1]) if is_counted else bounds
        o_ref[...] = jax.lax.fori_loop(first, last, step, jnp.zeros(size, total))

    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(size, total),
        compiler_params=mosaic_gpu.CompilerParams(max_concurrent_steps=stages),
    )
    expected = np.zeros(size, np.dtype(total))
    for i in range(*bounds):
        start = place(i, n) * rows
        expected = expected * 2 + x[start : start + rows].astype(expected.dtype)
    np.testing.assert_array_equal(run_on_simulator(call, np.array(bounds, np.int32), x), expected)


def test_loops_in_loops_make_their_rings_anew() -> None:
    """The inner loop runs once for each step of the outer one, with mbarriers of its own each time."""

    def kernel(x_ref: Any, o_ref: Any) -> None:
        def outer(i: Any, total: Any) -> Any:
            def inner(j: Any, part: Any) -> Any:
                return part + x_ref[pl.ds((i * 5 + j) * 16, 16), :]

            return total * 2.0 + jax.lax.fori_loop(0, 5, inner, jnp.zeros((16, 64), jnp.float32))

        o_ref[...] = jax.lax.fori_loop(0, 3, outer, jnp.zeros((16, 64), jnp.float32))

    x = np.round(values((15 * 16, 64)) * 8)
    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((16, 64), jnp.float32),
        compiler_params=mosaic_gpu.CompilerParams(),
    )
    parts = x.reshape(3, 5, 16, 64).sum(1)
    assert "mgpu.barrier_destroy" in ir_of(call, x)
    np.testing.assert_array_equal(run_on_simulator(call, x), parts[0] * 4 + parts[1] * 2 + parts[2])


def test_memory_that_the_kernel_writes_is_not_read_ahead() -> None:
    """Each step reads what the one before wrote."""

    def kernel(x_ref: Any, o_ref: Any) -> None:
        def step(i: Any, carry: Any) -> Any:
            o_ref[pl.ds(i * 16 + 16, 16), :] = o_ref[pl.ds(i * 16, 16), :] + 1.0
            return carry

        jax.lax.fori_loop(0, 4, step, 0)

    x = values((80, 64))
    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((80, 64), jnp.float32),
        input_output_aliases={0: 0},
        compiler_params=mosaic_gpu.CompilerParams(),
    )
    expected = np.concatenate([x[:16] + np.float32(n) for n in range(5)])
    assert "mgpu.async_load" not in ir_of(call, x)
    np.testing.assert_allclose(run_on_simulator(call, x), expected, rtol=1e-6)


def test_a_depth_of_one_leaves_the_loads_where_they_are() -> None:
    call = rows_summed(5, (16, 64), counted=False, max_concurrent_steps=1)
    assert "async" not in ir_of(call, np.zeros(1, np.int32), values((80, 64)))


def test_warps_of_their_own_are_refused_where_there_is_nothing_to_copy() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + 1.0

    x = values((64, 64))
    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=mosaic_gpu.CompilerParams(warp_specialize=True),
    )
    with pytest.raises(mosaic_gpu.UnsupportedError, match="no loop of copies") as caught:
        ir_of(call, x)
    assert "test_pipelining.py" in str(caught.value)


@pytest.mark.parametrize(
    ("choice", "value"), [("max_concurrent_steps", 0), ("max_concurrent_steps", 2.0), ("warp_specialize", 1)]
)
def test_choices_that_are_none_are_refused_before_anything_is_lowered(choice: str, value: Any) -> None:
    call = rows_summed(5, (16, 64), counted=False, **{choice: value})
    with pytest.raises(mosaic_gpu.KernelError, match=choice):
        ir_of(call, np.zeros(1, np.int32), values((80, 64)))
