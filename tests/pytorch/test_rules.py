"""Each rule for what stands around kernels, beside JAX on the CPU: all dtypes, odd sizes, edge values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import mosaic_gpu

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
SMALL = ("float8_e4m3fn", "float8_e5m2")


THEIR_DTYPES = {
    np.dtype(getattr(ml_dtypes, name)): getattr(torch, name) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")
}


def as_tensor(array: Any) -> Any:
    """A copy of an array, of dtypes that NumPy does not know, too."""
    given = np.array(array, order="C")
    if given.dtype not in THEIR_DTYPES:
        return torch.from_numpy(given)
    bits = given.view(np.uint8 if given.dtype.itemsize == 1 else np.int16)
    return torch.from_numpy(bits).view(THEIR_DTYPES[given.dtype])


def as_array(tensor: Any) -> Any:
    """The inverse of `as_tensor`."""
    for dtype, theirs in THEIR_DTYPES.items():
        if tensor.dtype is theirs:
            return tensor.view(torch.uint8 if dtype.itemsize == 1 else torch.int16).numpy().view(dtype)
    return tensor.numpy()


def dtype_of(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def draw(name: str, shape: tuple[int, ...], seed: int, edges: bool = True) -> Any:
    """Random values, edge values among them."""
    rng, dtype = np.random.default_rng(seed), dtype_of(name)
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        small = rng.integers(max(info.min, -4), 4, shape).astype(dtype)
        values = np.where(rng.random(shape) < 0.4, small, values)
        special = [info.min, info.max, 0, 1, info.max if info.min == 0 else -1]
    else:
        values = (rng.normal(size=shape) * np.exp(rng.normal(size=shape))).astype(dtype)
        special = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 0.5, 2.5, 300.0]
    flat = np.array(values).reshape(-1)
    if edges and flat.size > 2 * len(special):
        places = rng.permutation(flat.size)[: len(special)]
        flat[places] = np.array(special).astype(dtype)
    return flat.reshape(shape)


def leaves(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def agree(fn: Callable[..., Any], *arrays: Any, tolerance: float = 0.0) -> None:
    """What as_torch gives is what JAX gives: shapes, dtypes, and values within a relative tolerance."""
    wide = any(np.asarray(a).dtype.itemsize == 8 for a in arrays)
    with jax.enable_x64(wide):
        expected = [np.asarray(e) for e in leaves(jax.jit(fn)(*(jnp.asarray(a) for a in arrays)))]
    found = [as_array(t) for t in leaves(mosaic_gpu.as_torch(fn)(*(as_tensor(a) for a in arrays)))]
    assert [(f.shape, f.dtype) for f in found] == [(e.shape, e.dtype) for e in expected]
    for f, e in zip(found, expected, strict=True):
        if e.dtype.kind in "biu":
            np.testing.assert_array_equal(f, e)
        else:
            np.testing.assert_allclose(f.astype(np.float64), e.astype(np.float64), rtol=tolerance, atol=tolerance)


def table(*functions: Callable[..., Any]) -> Callable[..., list[Any]]:
    """One function that gives the results of all."""
    return lambda *values: [r for f in functions for r in leaves(f(*values))]


ORDER = (lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge, lax.max, lax.min)
ARITHMETIC = (lax.add, lax.sub, lax.mul, lax.div, lax.rem)
BITS = (lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor)
SHIFTS = (lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic)


@pytest.mark.parametrize("dtype", INTS)
def test_functions_of_two_integers_agree_with_jax(dtype: str) -> None:
    functions = table(*ORDER, *ARITHMETIC, *BITS, *SHIFTS)
    agree(functions, draw(dtype, (37, 31), 1), draw(dtype, (37, 31), 2))


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_two_floats_are_those_of_jax_to_the_bit(dtype: str) -> None:
    agree(table(*ORDER, *ARITHMETIC), draw(dtype, (37, 31), 1), draw(dtype, (37, 31), 2))


@pytest.mark.parametrize("dtype", SMALL)
def test_comparisons_of_small_floats_agree_with_jax(dtype: str) -> None:
    agree(table(*ORDER), draw(dtype, (37, 31), 1), draw(dtype, (37, 31), 2))


def test_functions_of_two_booleans_agree_with_jax() -> None:
    agree(table(*ORDER, *BITS), draw("bool", (37,), 1), draw("bool", (37,), 2))


def cube(x: Any) -> Any:
    return lax.integer_pow(x, 3)


def inverse(x: Any) -> Any:
    return lax.integer_pow(x, -1)


def round_away(x: Any) -> Any:
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


def round_to_even(x: Any) -> Any:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


@pytest.mark.parametrize("dtype", INTS)
def test_functions_of_one_integer_agree_with_jax(dtype: str) -> None:
    functions = table(lax.neg, jnp.abs, lax.sign, lax.square, lax.bitwise_not, lax.population_count, lax.clz, cube)
    agree(functions, draw(dtype, (37, 11), 3))


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_one_float_are_those_of_jax_to_the_bit(dtype: str) -> None:
    functions = (lax.neg, lax.abs, lax.sign, lax.square, lax.is_finite, lax.floor, lax.ceil, inverse)
    agree(table(*functions, round_away, round_to_even), draw(dtype, (37, 11), 3))


MATH = (
    *("exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh"),
    *("cosh", "tanh", "asinh", "acosh", "atanh", "logistic", "erf", "erfc", "erf_inv", "bessel_i0e", "bessel_i1e"),
)
ROUNDING = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-5, "float64": 1e-12}


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_floats_agree_with_jax(dtype: str) -> None:
    agree(table(*(getattr(lax, name) for name in MATH)), draw(dtype, (400,), 4), tolerance=ROUNDING[dtype])
    # Near the poles and zeros of these nobody is exact.
    x = np.abs(draw(dtype, (400,), 4)) + np.array(0.1, dtype_of(dtype))
    agree(table(lax.lgamma, lax.digamma, cube), x, tolerance=ROUNDING[dtype])


@pytest.mark.parametrize("dtype", FLOATS)
def test_powers_of_two_are_rounded_once_where_jax_rounds_twice(dtype: str) -> None:
    x = draw(dtype, (400,), 4)
    found = as_array(mosaic_gpu.as_torch(lax.exp2)(as_tensor(x)))
    with np.errstate(over="ignore"):
        expected = np.exp2(x.astype(np.float64)).astype(x.dtype)
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=ROUNDING[dtype])


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_two_floats_agree_with_jax(dtype: str) -> None:
    functions = table(lax.pow, lax.atan2, *((lax.nextafter,) if dtype in ("float32", "float64") else ()))
    agree(functions, draw(dtype, (400,), 5), draw(dtype, (400,), 6), tolerance=ROUNDING[dtype])


@pytest.mark.parametrize("old", ["bool", *INTS, *FLOATS, *SMALL])
def test_conversions_agree_with_jax(old: str) -> None:
    def convert(x: Any) -> list[Any]:
        return [lax.convert_element_type(x, dtype_of(new)) for new in ("bool", *INTS, *FLOATS, *SMALL)]

    x = draw(old, (503,), 7)
    with jax.enable_x64(True):
        expected = [np.asarray(e) for e in jax.jit(convert)(x)]
    found = mosaic_gpu.as_torch(lambda x, _: convert(x))(as_tensor(x), as_tensor(np.zeros(1)))
    for f, e in zip(map(as_array, found), expected, strict=True):
        assert f.dtype == e.dtype
        np.testing.assert_array_equal(f.astype(np.float64), e.astype(np.float64), err_msg=str(e.dtype))


def test_floats_out_of_range_become_the_nearest_integer() -> None:
    x = np.array([3e9, -3e9, 1e20, -1e20, 2.0**31, 2.0**63, 2.0**64, -1.5, 254.9, 255.1, np.nan], np.float64)
    agree(table(*(lambda v, new=new: lax.convert_element_type(v, dtype_of(new)) for new in INTS)), x)


@pytest.mark.parametrize(
    ("old", "new"),
    [("float32", "int32"), ("int64", "uint16"), ("uint8", "float32"), ("bfloat16", "int16"), ("float8_e5m2", "int8")],
)
def test_bits_stay_as_they_are(old: str, new: str) -> None:
    shape = (5, 4) if dtype_of(old).itemsize < dtype_of(new).itemsize else (5, 3)
    x = draw(old, shape, 8)
    with jax.enable_x64(x.dtype.itemsize == 8):
        expected = np.asarray(lax.bitcast_convert_type(jnp.asarray(x), dtype_of(new)))
    found = as_array(mosaic_gpu.as_torch(lambda v: lax.bitcast_convert_type(v, dtype_of(new)))(as_tensor(x)))
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def test_precision_is_reduced_as_in_jax() -> None:
    for exponent, mantissa in ((8, 7), (5, 10), (5, 2), (4, 3)):
        agree(lambda x, e=exponent, m=mantissa: lax.reduce_precision(x, e, m), draw("float32", (500,), 9))


SHAPES: dict[str, Callable[[Any], Any]] = {
    "broadcast_in_dim": lambda x: lax.broadcast_in_dim(x, (2, 5, 3, 7), (1, 3)),
    "reshape": lambda x: lax.reshape(x, (7, 5)),
    "reshape_permuted": lambda x: lax.reshape(x, (7, 5), dimensions=(1, 0)),
    "transpose": lambda x: x.T,
    "squeeze": lambda x: lax.squeeze(x[None, :, None], (0, 2)),
    "expand_dims": lambda x: lax.expand_dims(x, (0, 2)),
    "slice": lambda x: lax.slice(x, (1, 0), (5, 6), (2, 3)),
    "rev": lambda x: lax.rev(x, (0, 1)),
    "split": lambda x: lax.split(x, (2, 0, 5), 1),
    "concatenate": lambda x: lax.concatenate([x, x[:, :2], x], 1),
    "pad": lambda x: lax.pad(x, x[0, 0], ((2, 1, 1), (0, 3, 2))),
    "negative_pad": lambda x: lax.pad(x, x[1, 1], ((-1, 2, 1), (-2, -1, 0))),
    "stack": lambda x: jnp.stack([x, x]),
    "tile": lambda x: jnp.tile(x, (2, 3)),
    "repeat": lambda x: jnp.repeat(x, 3, axis=1),
    "dynamic_slice": lambda x: lax.dynamic_slice(x, (jnp.int32(3), jnp.int32(-2)), (3, 4)),
    "dynamic_update_slice": lambda x: lax.dynamic_update_slice(x, x[:2, :3], (4, 1)),
    "where": lambda x: jnp.where(jnp.arange(7) % 2 == 0, x, x[::-1]),
    "eye": lambda x: jnp.where(jnp.eye(5, 7, dtype=bool), x, 0),
    "take": lambda x: x[:, jnp.array([3, 0, 6, 6])],
    "set": lambda x: x.at[jnp.array([0, 3])].set(x[:2]),
    "sort": lambda x: lax.sort(x, dimension=1),
    "roll": lambda x: jnp.roll(x, 2, axis=1),
}


@pytest.mark.parametrize("dtype", ["bool", *INTS, *FLOATS, *SMALL])
def test_moving_elements_agrees_with_jax(dtype: str) -> None:
    agree(table(*SHAPES.values()), draw(dtype, (5, 7), 10))


@pytest.mark.parametrize("start", [-9, -1, 0, 2, 3, 9])
def test_starts_that_are_computed_are_clamped(start: int) -> None:
    x, at = draw("float32", (6, 5), 11), np.int32(start)
    agree(lambda x, i: lax.dynamic_slice(x, (i, 1), (3, 2)), x, at)
    agree(lambda x, i: lax.dynamic_update_slice(x, x[:3, :2], (i, i)), x, at)
    agree(lambda x, i: lax.dynamic_index_in_dim(x, i, 1), x, at)


AXES = (0, 1, (0, 2), (0, 1, 2))


@pytest.mark.parametrize("dtype", INTS)
def test_reductions_of_integers_agree_with_jax(dtype: str) -> None:
    names = ("sum", "prod")
    sums = [lambda x, n=n, a=a: getattr(x, n)(a, dtype=x.dtype) for n in names for a in AXES]
    extremes = [lambda x, n=n, a=a: getattr(x, n)(a) for n in ("max", "min") for a in AXES]
    agree(table(*sums, *extremes), draw(dtype, (3, 17, 5), 12))


@pytest.mark.parametrize("dtype", ["bool", *FLOATS])
def test_extremes_agree_with_jax(dtype: str) -> None:
    names = ("max", "min", "any", "all") if dtype == "bool" else ("max", "min")
    agree(table(*(lambda x, n=n, a=a: getattr(x, n)(a) for n in names for a in AXES)), draw(dtype, (3, 17, 5), 12))


@pytest.mark.parametrize("dtype", FLOATS)
def test_reductions_of_floats_agree_with_jax(dtype: str) -> None:
    functions = (jnp.sum, jnp.prod, jnp.mean, jnp.var, jnp.cumsum, jnp.cumprod, jax.nn.logsumexp, lax.cumlogsumexp)
    x = draw(dtype, (3, 17, 5), 13, edges=False)
    agree(table(*(lambda x, f=f: f(x, axis=1) for f in functions)), x, tolerance=8 * ROUNDING[dtype])


@pytest.mark.parametrize("dtype", ["bool", *INTS])
def test_reductions_of_bits_agree_with_jax(dtype: str) -> None:
    functions = [getattr(lax, f"reduce_{name}") for name in ("and", "or", "xor")]
    agree(table(*(lambda x, f=f, a=a: f(x, a) for f in functions for a in ((1,), (0, 1)))), draw(dtype, (6, 13), 14))


@pytest.mark.parametrize("dtype", ["int16", "uint32", "float32", "bfloat16"])
def test_reductions_of_nothing_give_their_identity(dtype: str) -> None:
    x = draw(dtype, (4, 0), 15)
    identity = -np.inf if dtype_of(dtype).kind not in "iu" else np.iinfo(dtype).min
    agree(lambda x: x.max(1, initial=identity), x)
    agree(lambda x: x.sum(1), x)


@pytest.mark.parametrize("dtype", ["bool", *INTS, *FLOATS])
def test_places_of_extremes_agree_with_jax(dtype: str) -> None:
    x = draw(dtype, (9, 23), 16)
    agree(lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0), jnp.argmax(x)), x)


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS])
def test_running_reductions_agree_with_jax(dtype: str) -> None:
    names = ("cummax", "cummin") if dtype in FLOATS else ("cumsum", "cumprod", "cummax", "cummin")
    runs = [lambda x, n=n, r=r: getattr(lax, n)(x, axis=1, reverse=r) for n in names for r in (False, True)]
    agree(table(*runs), draw(dtype, (4, 19), 17))


@pytest.mark.parametrize("dtype", ["bool", *INTS, *FLOATS])
def test_sorting_is_stable_and_agrees_with_jax(dtype: str) -> None:
    first, second = draw(dtype, (3, 40), 19), draw("int8", (3, 40), 20)
    number = np.broadcast_to(np.arange(40, dtype=np.int32), (3, 40))
    first[:, 20:] = first[:, :20]
    sorts = (lambda a, b, c, n=n: lax.sort((a, b, c), dimension=1, num_keys=n) for n in (1, 2))
    agree(table(*sorts), first, second, number)


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS])
def test_the_largest_agree_with_jax(dtype: str) -> None:
    x = draw(dtype, (3, 40), 21)
    x[:, 20:] = x[:, :20]
    agree(lambda x: lax.top_k(x, 7), x)


DOTS = (
    ("float32", "float32", None),
    ("float64", "float64", None),
    ("bfloat16", "bfloat16", None),
    ("float16", "float16", "float32"),
    ("bfloat16", "bfloat16", "float32"),
    ("float8_e4m3fn", "float8_e4m3fn", "float32"),
    ("int8", "int8", "int32"),
    ("int32", "int32", None),
    ("uint32", "uint32", None),
    ("int64", "int64", None),
    ("uint8", "uint8", "int32"),
)


@pytest.mark.parametrize(("left", "right", "result"), DOTS)
def test_products_of_matrices_agree_with_jax(left: str, right: str, result: str | None) -> None:
    x, y = draw(left, (2, 5, 3, 7), 22, edges=False), draw(right, (7, 2, 4, 3), 23, edges=False)
    numbers = (((3, 2), (0, 3)), ((0,), (1,)))
    preferred = None if result is None else dtype_of(result)
    tolerance = ROUNDING.get(result or left, 0.0)
    agree(lambda x, y: lax.dot_general(x, y, numbers, preferred_element_type=preferred), x, y, tolerance=4 * tolerance)


@pytest.mark.parametrize("dtype", ["bool", "uint32", "int64", "bfloat16", "float8_e5m2"])
def test_gathering_agrees_with_jax(dtype: str) -> None:
    def gather(x: Any, i: Any) -> list[Any]:
        results = []
        for mode in ("clip", "fill"):
            results += [x.at[i].get(mode=mode), x.at[:, i].get(mode=mode), x.at[i, i].get(mode=mode)]
            results += [jnp.take_along_axis(x[:2], i % 6, axis=1, mode=mode)]
            results += [jax.vmap(lambda x, i, mode=mode: x.at[i].get(mode=mode))(x[:2], i)]
        return results

    agree(gather, draw(dtype, (6, 5), 24), np.array([[0, -9, 5], [3, 9, -1]], np.int32))


def test_gathering_windows_agrees_with_jax() -> None:
    x = draw("float32", (6, 5), 25)
    for starts in ([[0, 0], [4, 3], [-3, 9]], [[2, 1], [1, 2], [9, 0]]):
        i = np.array(starts, np.int32)
        agree(jax.vmap(lambda x, i: lax.dynamic_slice(x, (i[0], i[1]), (3, 2)), (None, 0)), x, i)


@pytest.mark.parametrize("dtype", ["int16", "uint32", "float64", "float32"])
def test_scattering_agrees_with_jax(dtype: str) -> None:
    x, u = draw(dtype, (6, 5), 26, edges=False), draw(dtype, (4, 5), 27, edges=False)
    kinds = [(k, m) for k in ("add", "multiply", "min", "max", "subtract") for m in ("clip", "drop")]
    scatters = (lambda x, i, u, k=k, m=m: getattr(x.at[i], k)(u, mode=m) for k, m in kinds)
    agree(table(*scatters), x, np.array([0, 5, 0, 17], np.int32), u, tolerance=1e-6)


@pytest.mark.parametrize("dtype", ["bool", "uint16", "bfloat16", "float8_e4m3fn"])
def test_setting_elements_agrees_with_jax(dtype: str) -> None:
    def scatter(x: Any, i: Any, u: Any) -> list[Any]:
        results = []
        for mode in ("clip", "drop"):
            results += [x.at[i].set(u, mode=mode), x.at[i[:2], jnp.array([0, 3])].set(u[0, :2], mode=mode)]
            results += [jax.vmap(lambda x, i, u, mode=mode: x.at[i].set(u, mode=mode))(x[:3], i, u[:, 0])]
        return results

    agree(scatter, draw(dtype, (6, 5), 28), np.array([4, -1, 17], np.int32), draw(dtype, (3, 5), 29))


def test_clamping_agrees_with_jax() -> None:
    for dtype in (*INTS, *FLOATS):
        agree(lambda a, b, c: lax.clamp(a, b, c), *(draw(dtype, (90,), seed) for seed in (30, 31, 32)))


def test_choices_of_several_cases_agree_with_jax() -> None:
    which = np.array([0, 2, 1, 2, 0], np.int32)
    agree(lambda w, x: lax.select_n(w, x, x + 1, x * 2), which, draw("int32", (5,), 33))


def test_loops_and_conditions_agree_with_jax() -> None:
    x = draw("float32", (6, 4), 34, edges=False)
    agree(lambda x: lax.fori_loop(0, 5, lambda i, v: v * 0.5 + i, x), x)
    agree(lambda x, n: lax.fori_loop(0, n, lambda i, v: v * 0.5 + i, x), x, np.int32(7))
    agree(lambda x: lax.while_loop(lambda v: v.max() < 1e4, lambda v: v * 2 + 1, x), x)
    agree(lambda x: lax.scan(lambda c, r: (c + r, c * r), x[0], x), x, tolerance=1e-6)
    agree(lambda x: lax.scan(lambda c, r: (c + r, c * r), x[0], x, reverse=True), x, tolerance=1e-6)
    for n in (-1, 0, 1, 2, 5):
        agree(lambda x, n: lax.switch(n, [jnp.sin, jnp.cos, lambda v: v * 2], x), x, np.int32(n), tolerance=1e-6)


def test_functions_of_jax_nn_agree_with_jax() -> None:
    x = draw("float32", (5, 33), 35, edges=False)
    for name in ("softmax", "log_softmax", "gelu", "silu", "relu", "softplus", "elu", "standardize", "sigmoid"):
        agree(getattr(jax.nn, name), x, tolerance=2e-5)
    agree(lambda i: jax.nn.one_hot(i, 7), np.array([3, 0, 9, -1], np.int32))
    agree(lambda x: jnp.linalg.norm(x, axis=1), x, tolerance=2e-5)
    agree(lambda x: jnp.einsum("ij,kj->ik", x, x), x, tolerance=1e-4)


def test_what_jax_keeps_whole_is_taken_apart() -> None:
    edges = np.array([0, 2, 2, 7], np.int32)
    agree(lambda e, x: jnp.searchsorted(e, x, side="right"), edges, np.arange(-1, 9, dtype=np.int32))
    agree(jax.checkpoint(lambda x: jnp.sin(x) * 2), draw("float32", (5, 3), 36), tolerance=1e-6)
