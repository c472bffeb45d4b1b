"""Dot products of every shape, dtype and orientation, against float64 (integers: int64) in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from numpy.typing import NDArray

import mosaic_gpu
from tests.support.backends import Run
from tests.support.values import dtype_of, random_values

Apply = Callable[..., Any]
Array = NDArray[Any]
MATRIX: Any = (((1,), (0,)), ((), ()))
EXTENTS = (1, 2, 7, 8, 16, 24, 33, 64, 65, 100, 128)
DTYPES = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int32", "float64")


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def exact(a: Array, b: Array, dimensions: Any) -> tuple[Array, Array]:
    """The result in float64 or int64, and the sum of the products' magnitudes, which bounds rounding errors."""
    wide = np.float64 if jnp.issubdtype(a.dtype, jnp.floating) or jnp.issubdtype(b.dtype, jnp.floating) else np.int64
    (contract, batch), wide_a, wide_b = dimensions, a.astype(wide), b.astype(wide)
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    names = [[next(letters) for _ in range(a.ndim)], [next(letters) for _ in range(b.ndim)]]
    for pairs in (contract, batch):
        for i, j in zip(*pairs, strict=True):
            names[1][j] = names[0][i]
    shared = [names[0][i] for i in batch[0]]
    gone = {names[0][i] for i in contract[0]}
    rest = [n for side in names for n in side if n not in gone and n not in shared]
    spec = f"{''.join(names[0])},{''.join(names[1])}->{''.join(shared + rest)}"
    return np.einsum(spec, wide_a, wide_b), np.einsum(spec, np.abs(wide_a), np.abs(wide_b))


def check(got: Array, a: Array, b: Array, dimensions: Any = MATRIX, mantissa: int = 24) -> None:
    """Integers wrap exactly; floats are within the rounding of an f32 sum (or of `mantissa` bits), and their own."""
    expected, magnitude = exact(a, b, dimensions)
    assert got.shape == expected.shape
    if got.dtype == np.bool_:
        np.testing.assert_array_equal(got, expected != 0)
    elif not jnp.issubdtype(got.dtype, jnp.floating):
        np.testing.assert_array_equal(got, expected.astype(got.dtype))
    else:
        contracted = math.prod(a.shape[d] for d in dimensions[0][0])
        steps = 2.0**-52 if got.dtype == np.float64 else 2.0 ** -(mantissa - 1)
        own = float(ml_dtypes.finfo(got.dtype).eps)
        tolerance = (magnitude * (contracted + 2) * steps if mantissa >= 24 else magnitude * steps) + np.abs(
            expected
        ) * own
        assert (np.abs(got.astype(np.float64) - expected) <= tolerance + float(ml_dtypes.finfo(got.dtype).tiny)).all()


def dot(dimensions: Any = MATRIX, **params: Any) -> Callable[[Any, Any], Any]:
    return lambda a, b: lax.dot_general(a, b, dimensions, **params)


def result_type(dtype: str) -> Any:
    return dtype_of(
        "int32" if "int8" in dtype else "float32" if dtype.startswith(("float8", "bf", "float16")) else dtype
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_matrices_of_any_extents_and_orientation(elementwise: Apply, data: st.DataObject) -> None:
    m, n, k = (data.draw(st.sampled_from(EXTENTS)) for _ in range(3))
    dtype = data.draw(st.sampled_from(DTYPES))
    flips = data.draw(st.tuples(st.booleans(), st.booleans()))
    a = random_values(dtype, (k, m) if flips[0] else (m, k), 1)
    b = random_values(dtype, (n, k) if flips[1] else (k, n), 2)
    dimensions = (((int(not flips[0]),), (int(flips[1]),)), ((), ()))
    warps = data.draw(st.sampled_from([None, None, 1, 4, 8]))
    params = {} if warps is None else {"num_warps": warps}
    got = elementwise(dot(dimensions, preferred_element_type=result_type(dtype)), a, b, **params)
    check(got, a, b, dimensions)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_batch_and_contracting_dimensions(elementwise: Apply, data: st.DataObject) -> None:
    counts = [data.draw(st.integers(0, 2)) for _ in range(4)]
    sizes = [[data.draw(st.sampled_from([1, 2, 3, 5, 12])) for _ in range(n)] for n in counts]
    batch, contract, rows, columns = sizes
    shapes = [[*batch, *contract, *rows], [*batch, *contract, *columns]]
    orders = [data.draw(st.permutations(range(len(shape)))) for shape in shapes]
    places = [[order.index(i) for i in range(len(order))] for order in orders]
    inputs = [
        random_values("float16", tuple(shape[i] for i in order), seed)
        for seed, (shape, order) in enumerate(zip(shapes, orders, strict=True))
    ]
    first, last = len(batch), len(batch) + len(contract)
    dimensions = (
        (tuple(places[0][first:last]), tuple(places[1][first:last])),
        (tuple(places[0][:first]), tuple(places[1][:first])),
    )
    got = elementwise(dot(dimensions, preferred_element_type=np.float32), *inputs)
    check(np.asarray(got), inputs[0], inputs[1], dimensions)


@pytest.mark.parametrize(
    "dtype", ["bool", "int4", "int16", "uint32", "int64", "uint64", "float8_e4m3b11fnuz", "float8_e5m2fnuz"]
)
@pytest.mark.parametrize(("m", "k", "n"), [(33, 40, 24), (3, 4, 5), (64, 64, 64)])
def test_other_dtypes(elementwise: Apply, dtype: str, m: int, k: int, n: int) -> None:
    a, b = random_values(dtype, (m, k), 1), random_values(dtype, (k, n), 2)
    out = dtype_of("float32" if dtype.startswith("float8") else "int32" if dtype == "int4" else dtype)
    check(elementwise(dot(preferred_element_type=out), a, b), a, b)


@pytest.mark.parametrize(
    ("left", "right", "out"),
    [
        ("int8", "uint8", "int32"),
        ("uint8", "int8", "int16"),
        ("int8", "int8", "int8"),
        ("int8", "int8", "int64"),
        ("bfloat16", "float32", "float32"),
        ("float16", "bfloat16", "float32"),
        ("float8_e4m3fn", "float8_e5m2", "float32"),
        ("float8_e4m3fn", "bfloat16", "bfloat16"),
        ("float32", "float32", "float64"),
        ("bfloat16", "bfloat16", "float16"),
        ("float16", "float16", "float16"),
    ],
)
@pytest.mark.parametrize("rows", [24, 64])
def test_mixed_operands_and_results(elementwise: Apply, left: str, right: str, out: str, rows: int) -> None:
    a, b = random_values(left, (rows, 48), 1, 0.5), random_values(right, (48, 40), 2, 0.5)
    check(elementwise(dot(preferred_element_type=dtype_of(out)), a, b), a, b)


def test_a_sum_is_rounded_once(elementwise: Apply) -> None:
    """4096 products of 1: an f16 accumulator would stop at 2048."""
    a, b = np.ones((16, 4096), np.float16), np.ones((4096, 8), np.float16)
    np.testing.assert_array_equal(elementwise(dot(), a, b).astype(np.float64), 4096)


def test_ones_over_a_k_that_no_instruction_divides(elementwise: Apply) -> None:
    a, b = np.ones((64, 24), np.float16), np.ones((24, 64), np.float16)
    np.testing.assert_array_equal(elementwise(dot(), a, b).astype(np.float64), 24)


@pytest.mark.parametrize("k", [8, 16])
@pytest.mark.parametrize("m", [32, 64])
def test_short_sums_of_int8(elementwise: Apply, m: int, k: int) -> None:
    a, b = random_values("int8", (m, k), 1), random_values("int8", (k, 32), 2)
    check(elementwise(dot(preferred_element_type=np.int32), a, b), a, b)


def test_a_small_batch(elementwise: Apply) -> None:
    a, b = random_values("float32", (2, 3, 4), 1), random_values("float32", (2, 4, 5), 2)
    dimensions = (((2,), (1,)), ((0,), (0,)))
    check(elementwise(dot(dimensions), a, b), a, b, dimensions)


@pytest.mark.parametrize("batch", [3, 6])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_batch_of_matrices(elementwise: Apply, batch: int, dtype: str) -> None:
    a, b = random_values(dtype, (batch, 64, 20), 1), random_values(dtype, (batch, 24, 20), 2)
    dimensions = (((2,), (2,)), ((0,), (0,)))
    check(elementwise(dot(dimensions, preferred_element_type=np.float32), a, b), a, b, dimensions)


@pytest.mark.parametrize("shapes", [((5, 0), (0, 7)), ((0, 3), (3, 7)), ((64, 0), (0, 64))])
def test_empty_dimensions(elementwise: Apply, shapes: Any) -> None:
    a, b = (np.zeros(s, np.float32) for s in shapes)
    got = elementwise(dot(), a, b)
    assert got.shape == (shapes[0][0], shapes[1][1])
    assert (got == 0).all()


def test_sums_wrap_in_the_accumulator(elementwise: Apply) -> None:
    a, b = np.full((8, 40), 2**30, np.int32), np.full((40, 64), 3, np.int32)
    check(elementwise(dot(), a, b), a, b)


@pytest.mark.parametrize("precision", ["high", "default", lax.DotAlgorithmPreset.TF32_TF32_F32])
@pytest.mark.parametrize("rows", [40, 64])
def test_tf32_where_it_is_asked_for(elementwise: Apply, simulator_only: None, precision: Any, rows: int) -> None:
    a, b = random_values("float32", (rows, 40), 1), random_values("float32", (40, 40), 2)
    got = elementwise(dot(precision=precision), a, b)
    check(got, a, b, mantissa=11)
    assert np.abs(got - exact(a, b, MATRIX)[0]).max() > 1e-4  # it is used


@pytest.mark.parametrize("precision", [None, "highest", lax.DotAlgorithmPreset.F32_F32_F32])
def test_full_f32_is_the_default(elementwise: Apply, precision: Any) -> None:
    a, b = random_values("float32", (64, 40), 1), random_values("float32", (40, 64), 2)
    check(elementwise(dot(precision=precision), a, b), a, b)


def test_an_algorithm_may_round_the_operands(elementwise: Apply, not_in_jax: None) -> None:
    a, b = random_values("float32", (64, 40), 1), random_values("float32", (40, 64), 2)
    rounded = tuple(x.astype(ml_dtypes.bfloat16) for x in (a, b))
    got = elementwise(dot(precision=lax.DotAlgorithmPreset.BF16_BF16_F32), a, b)
    check(got, rounded[0], rounded[1])


@pytest.mark.parametrize(("m", "n", "k"), [(128, 256, 64), (64, 512, 32), (192, 72, 80), (256, 24, 48)])
def test_several_warpgroups(elementwise: Apply, m: int, n: int, k: int) -> None:
    a, b = random_values("bfloat16", (m, k), 1), random_values("bfloat16", (k, n), 2)
    for warps in (8, 16):
        check(elementwise(dot(preferred_element_type=np.float32), a, b, num_warps=warps), a, b)


def test_operands_that_do_not_fit_shared_memory_are_cut_along_k(elementwise: Apply) -> None:
    a, b = random_values("float16", (64, 1024), 1), random_values("float16", (1024, 128), 2)
    check(elementwise(dot(preferred_element_type=np.float32), a, b, num_warps=8), a, b)


def test_nothing_leaks_in_from_padding(elementwise: Apply) -> None:
    """Infinities around the operands in memory would turn into NaN where padding is multiplied by zero."""
    a = np.full((70, 90), np.inf, np.float16)
    b = np.full((90, 70), np.nan, np.float16)
    a[:65, :33], b[:33, :41] = random_values("float16", (65, 33), 1), random_values("float16", (33, 41), 2)
    got = elementwise(lambda x, y: dot(preferred_element_type=np.float32)(x[:65, :33], y[:33, :41]), a, b)
    check(got, a[:65, :33], b[:33, :41])


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=np.float32)
    weights = jnp.exp(scores - scores.max(axis=1, keepdims=True))
    total = jnp.dot(weights.astype(v.dtype), v, preferred_element_type=np.float32)
    return total / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("shape", [(128, 64), (64, 40), (24, 16)])
def test_a_product_of_what_came_from_a_product(elementwise: Apply, shape: tuple[int, int]) -> None:
    q, k, v = (random_values("float16", shape, seed, 0.7) for seed in range(3))
    wide = [x.astype(np.float64) for x in (q, k, v)]
    weights = np.exp(wide[0] @ wide[1].T)
    expected = weights @ wide[2] / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(elementwise(attention, q, k, v), expected, atol=3e-3)


@pytest.mark.parametrize("dtype", ["float16", "int8", "float8_e4m3fn"])
def test_products_that_share_operands(elementwise: Apply, dtype: str) -> None:
    """One tile is the right side of several dots, either way round."""
    x, y = (random_values(dtype, (64, 64), seed, 0.5) for seed in (1, 2))
    out = result_type(dtype)

    def body(a: Any, b: Any) -> tuple[Any, ...]:
        orders = ((((1,), (1,)), ((), ())), MATRIX, (((0,), (0,)), ((), ())), (((0,), (1,)), ((), ())))
        return tuple(dot(order, preferred_element_type=out)(a, b) for order in orders)

    left, right = (v.astype(np.float64) for v in (x, y))
    expected = (left @ right.T, left @ right, left.T @ right, left.T @ right.T)
    for got, wanted in zip(elementwise(body, x, y), expected, strict=True):
        np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("block", [16, 64])
def test_an_operand_that_stays_the_same_in_a_loop(elementwise: Apply, block: int) -> None:
    q, k = random_values("bfloat16", (64, 32), 1), random_values("bfloat16", (4 * block, 32), 2)

    def body(a: Any, b: Any) -> Any:
        def step(i: Any, total: Any) -> Any:
            part = lax.dynamic_slice(b, (i * block, 0), (block, 32))
            scores = lax.dot_general(a, part, (((1,), (1,)), ((), ())), preferred_element_type=np.float32)
            return total + scores.sum(axis=1)

        return lax.fori_loop(0, 4, step, jnp.zeros((64,), np.float32))

    expected = (q.astype(np.float64) @ k.astype(np.float64).T).sum(axis=1)
    np.testing.assert_allclose(elementwise(body, q, k), expected, rtol=1e-4, atol=1e-3)


def matmul_kernel(a_ref: Any, b_ref: Any, bias_ref: Any, o_ref: Any, acc_ref: Any) -> None:
    step = pl.program_id(2)

    @pl.when(step == 0)
    def _start() -> None:
        acc_ref[...] = jnp.zeros_like(acc_ref)

    acc_ref[...] += jnp.dot(a_ref[...], b_ref[...], preferred_element_type=acc_ref.dtype)

    @pl.when(step == pl.num_programs(2) - 1)
    def _end() -> None:
        o_ref[...] = jnp.maximum(acc_ref[...] + bias_ref[...], 0).astype(o_ref.dtype)


@pytest.mark.parametrize("scratch", [plgpu.SMEM, plgpu.ACC])  # type: ignore[attr-defined]
@pytest.mark.parametrize(
    ("dtype", "block"), [("float16", (64, 64, 32)), ("bfloat16", (32, 16, 16)), ("float32", (16, 32, 8))]
)
def test_a_matmul_over_a_sequential_dimension(
    run: Run, not_in_jax: None, dtype: str, block: tuple[int, int, int], scratch: Any
) -> None:
    bm, bn, bk = block
    a, b = random_values(dtype, (2 * bm, 3 * bk), 1), random_values(dtype, (3 * bk, 2 * bn), 2)
    bias = random_values("float32", (1, 2 * bn), 3)
    call = pl.pallas_call(
        matmul_kernel,
        grid=(2, 2, 3),
        in_specs=[
            pl.BlockSpec((bm, bk), lambda i, j, k: (i, k)),
            pl.BlockSpec((bk, bn), lambda i, j, k: (k, j)),
            pl.BlockSpec((1, bn), lambda i, j, k: (0, j)),
        ],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, k: (i, j)),
        out_shape=jax.ShapeDtypeStruct((2 * bm, 2 * bn), np.float32),
        scratch_shapes=[scratch((bm, bn), np.float32)],
        compiler_params=mosaic_gpu.CompilerParams(dimension_semantics=("parallel", "parallel", "sequential")),
    )
    expected = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias, 0)
    np.testing.assert_allclose(run(call, a, b, bias), expected, rtol=1e-5, atol=1e-4)


def test_a_scratch_before_swizzled_tiles_stays_intact(run: Run, not_in_jax: None) -> None:
    """Swizzled tiles start at multiples of 1024 bytes, wherever the scratch ends."""

    def body(a_ref: Any, b_ref: Any, s_ref: Any, o_ref: Any, p_ref: Any, scratch: Any) -> None:
        scratch[...] = s_ref[...]
        o_ref[...] = jnp.dot(a_ref[...], b_ref[...], preferred_element_type=np.float32)
        p_ref[...] = scratch[pl.ds(pl.program_id(0), 32)]

    a, b = random_values("float16", (64, 64), 1), random_values("float16", (64, 64), 2)
    s = np.arange(32, dtype=np.float32)
    call = pl.pallas_call(
        body,
        grid=(1,),
        out_shape=[jax.ShapeDtypeStruct((64, 64), np.float32), jax.ShapeDtypeStruct((32,), np.float32)],
        scratch_shapes=[plgpu.SMEM((32,), np.float32)],
        compiler_params=mosaic_gpu.CompilerParams(),
    )
    o, p = run(call, a, b, s)
    check(o, a, b)
    np.testing.assert_array_equal(p, s)


def test_a_ring_of_buffers_that_the_kernel_keeps_itself(run: Run, simulator_only: None) -> None:
    """The unit reads the scratch in place; nothing else of it is staged."""

    def body(a_ref: Any, b_ref: Any, o_ref: Any, a_ring: Any, b_ring: Any) -> None:
        a_ring[0], b_ring[0] = a_ref[:, :64], b_ref[:64]

        def step(i: Any, total: Any) -> Any:
            slot, following = lax.rem(i, 2), jnp.minimum(i + 1, 3)
            total = total + jnp.dot(a_ring[slot], b_ring[slot], preferred_element_type=np.float32)
            a_ring[1 - slot] = a_ref[:, pl.ds(following * 64, 64)]
            b_ring[1 - slot] = b_ref[pl.ds(following * 64, 64)]
            return total

        o_ref[...] = lax.fori_loop(0, 4, step, jnp.zeros((64, 64), np.float32))

    a, b = random_values("float16", (64, 256), 1), random_values("float16", (256, 64), 2)
    call = pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((64, 64), np.float32),
        scratch_shapes=[plgpu.SMEM((2, 64, 64), np.float16)] * 2,
        compiler_params=mosaic_gpu.CompilerParams(),
    )
    check(run(call, a, b), a, b)
    layouts = mosaic_gpu.compile(call, a, b).ir("layouts")
    assert layouts.count('"mgpu.alloc"()') == layouts.count("mgpu.swizzle") == 2


@pytest.mark.parametrize(("m", "n", "k", "warps"), [(40, 64, 64, 2), (64, 100, 130, 8), (40, 130, 256, 16)])
def test_a_row_is_added_in_the_layout_of_the_fragments(elementwise: Apply, m: int, n: int, k: int, warps: int) -> None:
    """Registers that no element is in were folded to an op that had no conversion."""
    a, b, row = random_values("float16", (m, k), 1), random_values("float16", (n, k), 2), random_values("float32", (n,))

    def body(x: Any, y: Any, r: Any) -> Any:
        return lax.dot_general(x, y, (((1,), (1,)), ((), ())), preferred_element_type=np.float32) + r[None, :]

    expected = a.astype(np.float64) @ b.astype(np.float64).T + row
    np.testing.assert_allclose(elementwise(body, a, b, row, num_warps=warps), expected, rtol=1e-5, atol=1e-4)
