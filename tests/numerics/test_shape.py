"""Moving elements about: exact, on odd sizes and every width of element, against jax.numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

from tests.support.values import FLOATS, FP8, INTEGERS, NARROW, assert_same, assert_same_as_xla, random_values

Apply = Callable[..., Any]
F32 = np.float32


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


MOVES: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "transpose": ((32, 32), jnp.transpose),
    "permute": ((8, 8, 8), lambda x: jnp.transpose(x, (2, 0, 1))),
    "odd permute": ((3, 7, 5, 2), lambda x: jnp.transpose(x, (3, 1, 0, 2))),
    "moveaxis": ((4, 6, 9), lambda x: jnp.moveaxis(x, 0, 2)),
    "reshape": ((6, 20), lambda x: x.reshape(5, 4, -1)),
    "reshape in column order": ((6, 20), lambda x: x.reshape(8, 15, order="F")),
    "ravel": ((7, 13), jnp.ravel),
    "squeeze": ((1, 13, 1), jnp.squeeze),
    "expand": ((13,), lambda x: x[None, :, None]),
    "broadcast": ((5,), lambda x: jnp.broadcast_to(x[:, None], (5, 9))),
    "broadcast of ones": ((3, 1, 4), lambda x: jnp.broadcast_to(x, (2, 3, 5, 4))),
    "flip": ((5, 11), lambda x: (jnp.flip(x), jnp.flip(x, 0), x[:, ::-1])),
    "step slices": ((33,), lambda x: (x[::2], x[1::2], x[5:30:7], x[::-3])),
    "chained slices": ((40, 3), lambda x: x[2:][::3][1:-2][::-1]),
    "concatenate": ((5, 12), lambda x: jnp.concatenate([x, x[:3], x[:1]], axis=0)),
    "concatenate columns": ((5, 12), lambda x: jnp.concatenate([x, x[:, :5], x[:, 2:3]], axis=1)),
    "rotary halves": ((32, 64), lambda x: jnp.concatenate([-x[:, 32:], x[:, :32]], axis=-1)),
    "stack": ((4, 5), lambda x: (jnp.stack([x, x, x]), jnp.stack([x, x], axis=1), jnp.stack([x, x], axis=-1))),
    "unstack": ((3, 5), lambda x: tuple(jnp.unstack(x, axis=1))),
    "split": ((6, 20), lambda x: tuple(jnp.split(x, 4, axis=1)) + tuple(jnp.array_split(x, 4, axis=0))),
    "split unevenly": ((6, 20), lambda x: tuple(lax.split(x, (3, 17), 1))),
    "roll": ((7, 20), lambda x: (jnp.roll(x, 3, axis=1), jnp.roll(x, -2, axis=0), jnp.roll(x, 5))),
    "tile": ((3, 5), lambda x: (jnp.tile(x, (2, 3)), jnp.tile(x, 2), jnp.tile(x, (2, 1, 1)))),
    "repeat": ((3, 5), lambda x: jnp.repeat(x, 3, axis=1)),
    "pad": ((5, 9), lambda x: jnp.pad(x, ((1, 2), (3, 0)))),
    "pad modes": ((5, 9), lambda x: tuple(jnp.pad(x, 2, mode=m) for m in ("edge", "reflect", "wrap", "symmetric"))),
    "diagonals": ((6, 6), lambda x: (jnp.diagonal(x), jnp.diag(x, 1), jnp.tril(x), jnp.triu(x, 1))),
    "rotate": ((4, 7), lambda x: (jnp.rot90(x), jnp.rot90(x, 2))),
    "dynamic slice": ((9, 14), lambda x: lax.dynamic_slice(x, (3, 5), (4, 6))),
}


@pytest.mark.parametrize("name", MOVES)
def test_elements_are_moved_as_in_xla(elementwise: Apply, name: str) -> None:
    shape, function = MOVES[name]
    assert_same_as_xla(elementwise, function, random_values("float32", shape))


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS, *FLOATS, *FP8, *NARROW])
def test_every_width_of_element_moves(elementwise: Apply, dtype: str) -> None:
    x = random_values(dtype, (6, 10))

    def body(v: Any) -> tuple[Any, ...]:
        moved = v.T, v.reshape(4, 15), v[::-1, ::3], jnp.concatenate([v, v[:2]]), jnp.broadcast_to(v[0], (3, 10))
        return (*moved, jnp.roll(v, 3, axis=1), jnp.where(v == v, v, v[0, 0]))

    if dtype in NARROW:
        expected = (x.T, x.reshape(4, 15), x[::-1, ::3], np.concatenate([x, x[:2]]), np.broadcast_to(x[0], (3, 10)))
        for result, right in zip(elementwise(lambda v: body(v)[:5], x), expected, strict=True):
            assert_same(result, right)
    else:
        assert_same_as_xla(elementwise, body, x)


@pytest.mark.parametrize("config", [[(1, -2, 1), (0, 3, 0)], [(-1, -1, 0), (2, 2, 2)], [(0, 0, 3), (-3, 5, 0)]])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_padding_may_be_negative_and_interior(elementwise: Apply, dtype: str, config: Any) -> None:
    x = random_values(dtype, (6, 7))
    assert_same_as_xla(elementwise, lambda v: lax.pad(v, x.dtype.type(1), config), x)


def test_nothing_padded_is_all_padding(elementwise: Apply) -> None:
    assert_same_as_xla(
        elementwise, lambda v: lax.pad(v[:0], F32(2), [(2, 3, 0), (0, 0, 0)]), random_values("float32", (4, 3))
    )


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint64", "float32", "bfloat16", "float64"])
def test_iota_of_every_dtype(elementwise: Apply, dtype: str) -> None:
    def body(v: Any) -> tuple[Any, ...]:
        return jnp.arange(100, dtype=dtype) + v, lax.broadcasted_iota(dtype, (3, 5, 7), 1) + v, jnp.eye(5, dtype=dtype)

    assert_same_as_xla(elementwise, body, np.zeros((), np.asarray(jnp.zeros((), dtype)).dtype))


def test_linspace_meshgrid_and_indices(elementwise: Apply) -> None:
    def body(v: Any) -> tuple[Any, ...]:
        return (*jnp.meshgrid(v, v[:3]), *jnp.indices((3, 4), dtype=np.int32), jnp.full((2, 3), v[0]))

    assert_same_as_xla(elementwise, body, random_values("float32", (5,)))
    near = elementwise(lambda v: jnp.linspace(v[0], v[1], 7), np.array([0.0, 3.0], F32))
    np.testing.assert_allclose(near, np.linspace(0, 3, 7), rtol=1e-6)


@pytest.mark.parametrize("start", [-100, -1, 0, 2, 5, 6, 100])
@pytest.mark.parametrize("dtype", ["int32", "int64", "int8", "uint8"])
def test_traced_starts_are_clamped(elementwise: Apply, start: int, dtype: str) -> None:
    if dtype == "uint8" and start < 0:
        start += 256
    x, k = random_values("float32", (9, 11)), np.asarray(start).astype(dtype)

    def body(v: Any, i: Any) -> tuple[Any, ...]:
        put = lax.dynamic_update_slice(v, v[:2, :4] * 2, (i, i))
        return lax.dynamic_slice(v, (i, i), (4, 5)), put, lax.dynamic_index_in_dim(v, i, 0)

    assert_same_as_xla(elementwise, body, x, k)


def test_starts_of_uint64_beyond_every_signed_integer(elementwise: Apply) -> None:
    k = np.uint64(2**64 - 5)
    assert_same_as_xla(elementwise, lambda v, i: lax.dynamic_slice(v, (i,), (3,)), random_values("float32", (9,)), k)


def test_mapped_slices(elementwise: Apply) -> None:
    x, k = random_values("float32", (6, 17)), np.array([0, 3, -2, 16, 40, 9], np.int32)

    def body(v: Any, i: Any) -> tuple[Any, ...]:
        taken = jax.vmap(lambda row, n: lax.dynamic_slice(row, (n,), (4,)))(v, i)
        put = jax.vmap(lambda row, n: lax.dynamic_update_slice(row, row[:3] + 1, (n,)))(v, i)
        return taken, put

    assert_same_as_xla(elementwise, body, x, k)


def test_arrays_without_elements(elementwise: Apply) -> None:
    def body(v: Any) -> tuple[Any, ...]:
        none = v[:0]
        joined = jnp.concatenate([none, v, none])
        return none, joined, none.T, none.reshape(3, 0), jnp.stack([none, none]), jnp.tile(none, (1, 2)), none[:, ::-1]

    assert_same_as_xla(elementwise, body, random_values("float32", (4, 6)))


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_any_transposition_slice_and_reshape(elementwise: Apply, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    starts = [data.draw(st.integers(0, n - 1)) for n in shape]
    steps = [data.draw(st.integers(1, 3)) for _ in shape]
    box = tuple(slice(s, None, k) for s, k in zip(starts, steps, strict=True))
    x = random_values("int16", tuple(shape), seed=3)

    def body(v: Any) -> tuple[Any, ...]:
        return v.transpose(order), v[box], v.transpose(order).reshape(-1), v[::-1]

    assert_same_as_xla(elementwise, body, x)


def test_case_5_strided_slices_in_arithmetic(elementwise: Apply) -> None:
    x = random_values("float32", (64,))
    even, odd, both = elementwise(lambda v: (v[::2] * 2, v[1::2] + 1, v[::2][1::2] * v[1::2][::2]), x)
    assert_same(even, x[::2] * F32(2))
    assert_same(odd, x[1::2] + F32(1))
    assert_same(both, x[::2][1::2] * x[1::2][::2])


def test_case_7_transposes_and_rotary_embedding(elementwise: Apply) -> None:
    x, angle = random_values("float32", (32, 64)), random_values("float32", (32, 32), 1)

    def rotate(v: Any, a: Any) -> Any:
        left, right = jnp.split(v, 2, axis=-1)
        cos, sin = jnp.cos(a), jnp.sin(a)
        return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)

    left, right, cos, sin = x[:, :32], x[:, 32:], np.cos(angle), np.sin(angle)
    expected = np.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)
    np.testing.assert_allclose(elementwise(rotate, x, angle), expected, rtol=1e-5, atol=1e-6)
