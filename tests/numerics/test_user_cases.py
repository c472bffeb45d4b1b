"""What users of this field hit, each a small kernel with one exact right answer: plain NumPy's, or XLA's on the CPU."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mosaic_gpu
from tests.support.backends import Run
from tests.support.kernels import one_block

Elementwise = Callable[..., Any]
PARAMS = mosaic_gpu.CompilerParams()
BF16 = np.dtype(ml_dtypes.bfloat16)


def random(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(-100 if np.dtype(dtype).kind == "i" else 0, 100, shape).astype(dtype)
    return rng.uniform(-3, 3, shape).astype(dtype)


def call(kernel: Callable[..., None], shape: tuple[int, ...], dtype: Any = np.float32, **rest: Any) -> Any:
    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(shape, dtype), compiler_params=PARAMS, **rest)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("n", [1, 8, 32, 100, 128, 129])
def test_whole_arrays_of_any_length_add(elementwise: Elementwise, n: int, dtype: Any) -> None:
    x, y = random(n, dtype=dtype), random(n, dtype=dtype, seed=1)
    np.testing.assert_array_equal(elementwise(lambda a, b: a + b, x, y), x + y)


@pytest.mark.parametrize("shape", [(17,), (200,), (7, 19), (15, 15), (5, 5, 5), (2, 3, 4, 5)])
def test_shapes_that_divide_nothing_leave_the_memory_behind_them_alone(
    elementwise: Elementwise, shape: tuple[int, ...]
) -> None:
    x, y = random(*shape), random(*shape, seed=1)
    results = elementwise(lambda a, b: (a + b, a * b, a - b), x, y)  # `run` checks the guards around every array
    for result, expected in zip(results, (x + y, x * y, x - y), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("shape", [(32, 64), (2048, 64)])
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_softmax_mean_and_variance(elementwise: Elementwise, shape: tuple[int, ...], axis: int, dtype: Any) -> None:
    x = random(*shape, dtype=dtype)

    def statistics(x: Any) -> Any:
        wide = x.astype(jnp.float32)
        return jax.nn.softmax(wide, axis), wide.mean(axis, keepdims=True), wide.var(axis)

    softmax, mean, variance = elementwise(statistics, x)
    exact = x.astype(np.float64)
    powers = np.exp(exact - exact.max(axis, keepdims=True))
    np.testing.assert_allclose(softmax, powers / powers.sum(axis, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(mean, exact.mean(axis, keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance, exact.var(axis), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_elements_and_rows_are_gathered_by_index(elementwise: Elementwise, dtype: Any) -> None:
    with jax.enable_x64(True):
        x, index = random(16), np.array([0, 2, 5, 7, 11, 13, 14, 15], dtype)
        np.testing.assert_array_equal(elementwise(lambda x, i: x[i], x, index), x[index])
        rows, index = random(16, 8), np.array([0, 2, 5, 7], dtype)
        np.testing.assert_array_equal(elementwise(lambda x, i: x[i], rows, index), rows[index])


def test_strided_slices_and_slices_of_slices(elementwise: Elementwise) -> None:
    x = random(33)
    results = elementwise(lambda x: (x[::2] * 2, x[1::2] + 1, x[::2][1::3], x[3:30][::-4][:5]), x)
    for result, expected in zip(results, (x[::2] * 2, x[1::2] + 1, x[::2][1::3], x[3:30][::-4][:5]), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, BF16])
def test_roots_powers_and_signs_of_special_values(elementwise: Elementwise, dtype: Any) -> None:
    with jax.enable_x64(True):
        x = np.array([-3.2, -0.0, 0.0, 1.5, np.nan, np.inf, -np.inf, 7.0], dtype)
        fns = (jnp.sqrt, lambda x: x**-1, lambda x: x**3, jnp.abs, jnp.sign)
        results = elementwise(lambda x: tuple(fn(x) for fn in fns), x)
        for fn, result in zip(fns, results, strict=True):
            expected = np.asarray(fn(jnp.asarray(x)))
            rtol = 2 * float(jnp.finfo(dtype).eps)
            wide = [a.astype(np.float64) for a in (result, expected)]
            np.testing.assert_allclose(*wide, rtol=rtol)
            np.testing.assert_array_equal(*(np.signbit(a[~np.isnan(a)]) for a in wide))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_powers_products_and_signs_of_integers_wrap(elementwise: Elementwise, dtype: Any) -> None:
    with jax.enable_x64(True):
        x = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, -5, 0, 3], dtype)
        cubes, absolute, signs, product = elementwise(lambda x: (x**3, jnp.abs(x), jnp.sign(x), x[2:].prod()), x)
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(cubes, x * x * x)
            np.testing.assert_array_equal(absolute, np.abs(x))
        np.testing.assert_array_equal(signs, np.sign(x))
        assert product == 0


def test_transpositions_and_rotary_halves(elementwise: Elementwise) -> None:
    square, cube, pairs = random(32, 32), random(8, 8, 8), random(32, 64)
    np.testing.assert_array_equal(elementwise(jnp.transpose, square), square.T)
    np.testing.assert_array_equal(
        elementwise(lambda x: jnp.transpose(x, (2, 0, 1)), cube), np.transpose(cube, (2, 0, 1))
    )

    def rotate(x: Any) -> Any:
        first, second = jnp.split(x, 2, axis=1)
        return jnp.concatenate([-second, first], axis=1)

    np.testing.assert_array_equal(elementwise(rotate, pairs), np.concatenate([-pairs[:, 32:], pairs[:, :32]], axis=1))


@pytest.mark.parametrize("grid", [(0,), (4, 0)])
def test_an_empty_grid_runs_nothing(run: Run, grid: tuple[int, ...]) -> None:
    x = random(8)
    result = run(call(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...]), (8,), grid=grid), x)
    assert result.shape == (8,)


@pytest.mark.parametrize("bound", [0, -3])
def test_a_computed_bound_of_zero_or_less_runs_nothing(run: Run, bound: int) -> None:
    def launch(n: Any, x: Any) -> Any:
        block = pl.BlockSpec((8,), lambda i: (i,))
        kernel = call(
            lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...]), (16,), grid=(n,), in_specs=[block], out_specs=block
        )
        return kernel(x)

    assert np.asarray(jax.jit(launch)(bound, random(16))).shape == (16,)


def test_more_blocks_along_a_dimension_than_cuda_has(run: Run, simulator_only: None) -> None:
    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + y_ref[...] + pl.program_id(1)

    block = pl.BlockSpec((1, 1), lambda i, j: (i, j))
    x, y = random(2, 65536, dtype=np.int32), random(2, 65536, dtype=np.int32, seed=1)
    launch = call(kernel, x.shape, np.int32, grid=(2, 65536), in_specs=[block, block], out_specs=block)
    np.testing.assert_array_equal(run(launch, x, y), x + y + np.arange(65536))


def test_a_loop_adds_at_places_that_another_operand_names(run: Run) -> None:
    def kernel(index_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.zeros(o_ref.shape, o_ref.dtype)

        def body(j: Any, carried: Any) -> Any:
            start = index_ref[j]

            @pl.when(start % 2 == 0)
            def _() -> None:
                o_ref[pl.ds(start, 4)] += x_ref[j, 2:6]

            return carried + 1

        lax.fori_loop(0, 5, body, 0)

    index, x = np.array([0, 3, 6, 4, 30], np.int32), random(5, 8)
    expected = np.zeros(16, np.float32)
    for j, start in enumerate(index):
        if start % 2 == 0:
            first = min(start, 12)  # clamped, as by lax.dynamic_slice
            expected[first : first + 4] += x[j, 2:6]
    np.testing.assert_array_equal(run(call(kernel, (16,)), index, x), expected)


def test_a_loop_whose_state_is_an_index(run: Run) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        def body(state: Any) -> Any:
            i, last = state
            o_ref[last] = x_ref[i] * 2
            return i + 1, (last + 3) % 8

        o_ref[...] = jnp.zeros(8, jnp.float32)
        lax.while_loop(lambda state: state[0] < 8, body, (0, 1))

    x, expected = random(8), np.zeros(8, np.float32)
    place = 1
    for i in range(8):
        expected[place], place = x[i] * 2, (place + 3) % 8
    np.testing.assert_array_equal(run(call(kernel, (8,)), x), expected)


def test_a_slice_is_written_and_the_rest_kept(run: Run) -> None:
    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.zeros(8, jnp.float32)
        o_ref[2:5] = x_ref[2:5] * y_ref[2:5]

    x, y = random(8), random(8, seed=1)
    expected = np.zeros(8, np.float32)
    expected[2:5] = x[2:5] * y[2:5]
    np.testing.assert_array_equal(run(call(kernel, (8,)), x, y), expected)


@pytest.mark.parametrize("start", [0, 17, 94, 125])
def test_a_dot_of_rows_at_a_computed_start(run: Run, start: int) -> None:
    def kernel(start_ref: Any, x_ref: Any, o_ref: Any) -> None:
        rows = x_ref[pl.ds(start_ref[0], 32), :]
        o_ref[...] = jnp.dot(rows, rows.T, precision=lax.Precision.HIGHEST)

    x, first = random(126, 16), min(start, 94)
    rows = x[first : first + 32].astype(np.float64)
    result = run(call(kernel, (32, 32)), np.array([start], np.int32), x)
    np.testing.assert_allclose(result, rows @ rows.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "block"), [((24, 16), (8, 16)), ((1, 384), (1, 128)), ((4, 512), (4, 128)), ((30, 50), (8, 16))]
)
def test_every_block_of_several_is_written(run: Run, shape: tuple[int, int], block: tuple[int, int]) -> None:
    spec = pl.BlockSpec(block, lambda i, j: (i, j))
    grid = tuple(pl.cdiv(n, m) for n, m in zip(shape, block, strict=True))

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    x = random(*shape)
    np.testing.assert_array_equal(run(call(kernel, shape, grid=grid, in_specs=[spec], out_specs=spec), x), x * 2)


def test_an_aliased_input_that_only_a_loop_reads(run: Run) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        total = lax.fori_loop(0, 4, lambda i, total: total + x_ref[i], jnp.float32(0))
        o_ref[7] = total

    x = random(8)
    expected = x.copy()
    expected[7] = np.float32(0) + x[0] + x[1] + x[2] + x[3]
    np.testing.assert_array_equal(run(call(kernel, (8,), input_output_aliases={0: 0}), x), expected)


def test_wide_integers_are_reduced_exactly(elementwise: Elementwise) -> None:
    with jax.enable_x64(True):
        x = np.zeros(32, np.int64)
        x[0] = 1 << 40
        reduce_or = lambda x: lax.reduce(x, np.int64(0), lax.bitwise_or, (0,))  # noqa: E731
        results = elementwise(lambda x: (x.sum(), x.max(), (-x).min(), reduce_or(x)), x)
        assert [int(r) for r in results] == [1 << 40, 1 << 40, -(1 << 40), 1 << 40]


@pytest.mark.parametrize("n", [48, 96, 192, 384])
def test_counting_up_sums_to_the_triangle_number(elementwise: Elementwise, n: int) -> None:
    assert elementwise(jnp.sum, np.arange(1, n + 1, dtype=np.int32)) == n * (n + 1) // 2


@pytest.mark.parametrize(("value", "dtype"), [(-5, np.int8), (-128, np.int8), (200, np.uint8)])
def test_narrow_integers_fill_every_element(elementwise: Elementwise, value: int, dtype: Any) -> None:
    result = elementwise(lambda x: x + jnp.full((256,), value, dtype), np.zeros(256, dtype))
    np.testing.assert_array_equal(result, np.full(256, value, dtype))


@pytest.mark.parametrize("k", [24, 8, 16])
@pytest.mark.parametrize("dtype", [np.float16, np.int8, BF16])
def test_dots_of_ones_count_the_contracted_elements(elementwise: Elementwise, k: int, dtype: Any) -> None:
    wide = jnp.int32 if dtype is np.int8 else jnp.float32
    a, b = np.ones((64, k), dtype), np.ones((k, 64), dtype)
    result = elementwise(lambda a, b: jnp.dot(a, b, preferred_element_type=wide), a, b)
    np.testing.assert_array_equal(result, np.full((64, 64), k))


def test_batched_dots_and_narrow_accumulators(elementwise: Elementwise) -> None:
    a, b = random(2, 3, 4), random(2, 4, 5, seed=1)
    np.testing.assert_allclose(elementwise(jnp.matmul, a, b), a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)
    x = random(64, 64, dtype=BF16)
    half = elementwise(lambda x: jnp.dot(x, x, preferred_element_type=jnp.float16), x)
    exact = x.astype(np.float64) @ x.astype(np.float64)
    np.testing.assert_allclose(half.astype(np.float64), exact, rtol=1e-3, atol=1e-1)


def test_scalars_and_booleans_go_in_and_out(elementwise: Elementwise) -> None:
    x, flags = np.float32(3.5), np.array([True, False, True])
    doubled, flipped, every = elementwise(lambda x, f: (x * 2, ~f, f.all()), x, flags)
    assert doubled == 7.0
    assert doubled.shape == every.shape == ()
    np.testing.assert_array_equal(flipped, ~flags)
    assert not every


def test_a_captured_array_is_refused_with_what_to_do() -> None:
    index = np.array([3, 1, 2])
    with pytest.raises(ValueError, match="pass them as inputs"):
        one_block(lambda x: x[index], random(8))(random(8))


def test_compiling_keeps_no_state_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    x = random(8)

    def doubled() -> np.ndarray[Any, Any]:
        return np.asarray(jax.jit(one_block(lambda x: x * 2, x))(x))

    before = dict(os.environ)
    first = doubled()
    with monkeypatch.context() as patched:
        patched.setenv("PATH", "/nowhere")
        patched.delenv("HOME", raising=False)
        jax.clear_caches()
        np.testing.assert_array_equal(doubled(), first)
    jax.clear_caches()
    np.testing.assert_array_equal(doubled(), x * 2)
    assert dict(os.environ) == before


def test_two_threads_compile_at_once() -> None:
    x, results = random(64), {}

    def work(factor: int) -> None:
        results[factor] = np.asarray(jax.jit(one_block(lambda x: x * factor, x))(x))

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for factor in (2, 3):
        np.testing.assert_array_equal(results[factor], x * np.float32(factor))


@pytest.mark.parametrize("name", ["sm_90a", "9.0a", "8.9", "12.1"])
def test_a_target_goes_by_its_name_or_its_capability(name: str) -> None:
    x = random(8)
    assert ".target sm_" in mosaic_gpu.compile(one_block(lambda x: x * 2, x), x, target=name).ptx


@pytest.mark.parametrize("name", ["gfx950", "sm_35", "nonsense", ""])
def test_an_unknown_target_is_refused_by_name(name: str) -> None:
    x = random(8)
    with pytest.raises((mosaic_gpu.UnsupportedError, mosaic_gpu.KernelError), match=f"'{name}'"):
        mosaic_gpu.compile(one_block(lambda x: x * 2, x), x, target=name)
