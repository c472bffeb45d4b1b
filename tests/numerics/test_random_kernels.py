"""Kernels drawn at random, of elementwise, reduction and shape ops, against `jax.numpy` op by op.

An example is a shape, a dtype and a chain of steps.  It fails with the chain printed; `pytest --hypothesis-seed=N`
with the profile "search" draws others.  Steps that jump (floor, comparisons, argmax) are drawn only while the value
is still exact, so that a last digit that differs cannot become a whole number that does.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from jax.experimental import pallas as pl

from tests.support.backends import Run
from tests.support.kernels import blocked, one_block

MAX_ELEMENTS = 20_000
_SETTINGS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int32", "int8", "uint8", "int16", "uint16", "uint32", "int64", "uint64")
DTYPES = (*FLOATS, *INTEGERS, "bool")


@dataclass(frozen=True)
class Step:
    """One operation of a chain: from the value so far and the second operand (of the first one's shape and dtype).

    `text` is what it says in a report; `exact` is whether both sides round alike, bit for bit.
    """

    text: str
    apply: Callable[[Any, Any], Any]
    exact: bool = True


def _kind(dtype: Any) -> str:
    if dtype == np.bool_:
        return "b"
    return "f" if jnp.issubdtype(dtype, jnp.floating) else "i"


_SMOOTH = {
    "exp(-|v|)": lambda v, _: jnp.exp(-jnp.abs(v)),
    "tanh": lambda v, _: jnp.tanh(v),
    "log1p(|v|)": lambda v, _: jnp.log1p(jnp.abs(v)),
    "sqrt(|v|)": lambda v, _: jnp.sqrt(jnp.abs(v)),
    "v * v": lambda v, _: v * v,
    "v * 0.75": lambda v, _: v * 0.75,
    "v / 3": lambda v, _: v / 3,
    "sigmoid": lambda v, _: jax.nn.sigmoid(v),
    "logaddexp(v, 0.5)": lambda v, _: jnp.logaddexp(v, jnp.asarray(0.5, v.dtype)),
}
_EXACT_FLOAT = {
    "-v": lambda v, _: -v,
    "|v|": lambda v, _: jnp.abs(v),
    "floor": lambda v, _: jnp.floor(v),
    "round": lambda v, _: jnp.round(v),
    "sign": lambda v, _: jnp.sign(v),
    "v > 0 ? v : 1": lambda v, _: jnp.where(v > 0, v, jnp.ones_like(v)),
    "clip": lambda v, _: jnp.clip(v, -1.5, 1.5),
}
_INTEGER = {
    "v + 3": lambda v, _: v + 3,
    "v * v": lambda v, _: v * v,
    "v // 3": lambda v, _: v // 3,
    "v % 5": lambda v, _: v % 5,
    "v ^ v >> 1": lambda v, _: v ^ (v >> 1),
    "~v": lambda v, _: ~v,
    "popcount": lambda v, _: jax.lax.population_count(v),
    "v > 2 ? v : 2": lambda v, _: jnp.where(v > 2, v, jnp.full_like(v, 2)),
}
_BOOL = {"~v": lambda v, _: ~v, "as int32": lambda v, _: v.astype(jnp.int32), "v ^ true": lambda v, _: v ^ True}
_BINARY = {
    "v + w": lambda v, w: v + w,
    "v - w": lambda v, w: v - w,
    "v * w": lambda v, w: v * w,
    "max(v, w)": jnp.maximum,
    "min(v, w)": jnp.minimum,
    "v < w ? v : w + v": lambda v, w: jnp.where(v < w, v, w + v),
}
_BINARY_BOOL = {"v & w": lambda v, w: v & w, "v | w": lambda v, w: v | w, "v ^ w": lambda v, w: v ^ w}


def _pick(draw: Any, table: dict[str, Any], exact: bool) -> Step:
    name = draw(st.sampled_from(sorted(table)))
    return Step(name, table[name], exact)


def _elementwise(draw: Any, value: Any, second: Any, exact: bool) -> Step:
    """A unary step, or a binary one while the value still has the second operand's shape and dtype."""
    kind = _kind(value.dtype)
    if value.shape == second.shape and value.dtype == second.dtype and draw(st.booleans()):
        if kind == "b":
            return _pick(draw, _BINARY_BOOL, exact)
        jumps = {name: fn for name, fn in _BINARY.items() if exact or "?" not in name}
        return _pick(draw, jumps, exact and kind != "f")
    if kind == "b":
        return _pick(draw, _BOOL, exact)
    if kind == "i":
        return _pick(draw, _INTEGER, exact)
    return _pick(draw, _EXACT_FLOAT, True) if exact and draw(st.booleans()) else _pick(draw, _SMOOTH, False)


def _reduction(draw: Any, value: Any, exact: bool, axes: Sequence[int], keepdims: bool | None = None) -> Step:
    """A fold over some of `axes`, or a running fold or an argmax along one."""
    chosen = tuple(sorted(draw(st.sets(st.sampled_from(axes), min_size=1)))) if axes else ()
    keep = draw(st.booleans()) if keepdims is None else keepdims
    kind = _kind(value.dtype)
    names = {"b": ["any", "all"], "i": ["sum", "max", "min", "prod"], "f": ["sum", "max", "min", "mean"]}[kind]
    if keepdims is None and len(chosen) == 1:
        names = [*names, *(["cumsum"] if kind != "b" else []), *(["argmax", "argmin"] if exact and kind != "b" else [])]
    name = draw(st.sampled_from(names))
    rounds = kind == "f" and name in ("sum", "mean", "cumsum")
    options = f"axis={chosen}" + (", keepdims" if keep else "")
    if name == "cumsum":
        return Step(f"cumsum(axis={chosen[0]})", lambda v, _: jnp.cumsum(v, axis=chosen[0], dtype=v.dtype), not rounds)
    if name in ("argmax", "argmin"):
        return Step(f"{name}({options})", lambda v, _: getattr(jnp, name)(v, axis=chosen[0], keepdims=keep), exact)
    fold = getattr(jnp, name)
    typed = {"dtype": value.dtype} if name in ("sum", "prod", "mean") else {}
    return Step(f"{name}({options})", lambda v, _: fold(v, axis=chosen, keepdims=keep, **typed), exact and not rounds)


def _cast(draw: Any, value: Any, exact: bool) -> Step:
    """To another dtype; a float that is not exact stays a float, and one that is has to fit an integer."""
    kind = _kind(value.dtype)
    targets = ["float32", "bfloat16", "float16"]
    if kind == "b":
        targets += ["int32", "int8", "uint8"]
    elif kind == "i":
        targets += ["int32", "int8", "uint16", "bool"]
    elif exact:
        targets += ["int32", "bool"]
    target = draw(st.sampled_from(targets))
    same = jnp.issubdtype(target, jnp.floating) and jnp.finfo(target).bits >= 8 * value.dtype.itemsize
    return Step(f"as {target}", lambda v, _: v.astype(target), exact and (same or kind != "f" or target == "bool"))


_ANY_RANK = ("reshape", "expand")
_SOME_RANK = [
    "transpose",
    "flip",
    "slice",
    "concatenate",
    "roll",
    "broadcast",
    "pad",
    "take",
    "dynamic_slice",
    "dynamic_update_slice",
    "sort",
]


def _shape_step(draw: Any, value: Any, exact: bool) -> Step:
    """A step that moves elements and computes nothing."""
    rank, shape = len(value.shape), tuple(value.shape)
    name = draw(st.sampled_from([*_ANY_RANK, *(_SOME_RANK if rank and value.size else ())]))
    if name == "reshape":
        target = _factors(draw, math.prod(shape))
        return Step(f"reshape{target}", lambda v, _: v.reshape(target), exact)
    if name == "expand":
        axis = draw(st.integers(0, rank))
        return Step(f"expand_dims({axis})", lambda v, _: jnp.expand_dims(v, axis), exact)
    if name == "transpose":
        order = tuple(draw(st.permutations(range(rank))))
        return Step(f"transpose{order}", lambda v, _: v.transpose(order), exact)
    axis = draw(st.integers(0, rank - 1))
    size = shape[axis]
    if name == "flip":
        return Step(f"flip({axis})", lambda v, _: jnp.flip(v, axis), exact)
    if name == "slice":
        start, step = draw(st.integers(0, size - 1)), draw(st.integers(1, 3))
        stop = draw(st.integers(start + 1, size))
        index = (slice(None),) * axis + (slice(start, stop, step),)
        return Step(f"slice({axis}, {start}:{stop}:{step})", lambda v, _: v[index], exact)
    if name == "concatenate":
        return Step(f"concatenate([v, v], {axis})", lambda v, _: jnp.concatenate([v, v], axis), exact)
    if name == "roll":
        by = draw(st.integers(-size, size))
        return Step(f"roll({by}, {axis})", lambda v, _: jnp.roll(v, by, axis), exact)
    if name == "pad":
        low, high = draw(st.integers(0, 5)), draw(st.integers(0, 5))
        widths = [(low, high) if d == axis else (0, 0) for d in range(rank)]
        return Step(f"pad({axis}, {low}, {high})", lambda v, _: jnp.pad(v, widths), exact)
    if name == "take":
        number, start = draw(st.integers(1, 9)), draw(st.integers(0, size - 1))
        return Step(
            f"take({axis}, {number} from {start})",
            lambda v, _: jnp.take(v, (start + 7 * jnp.arange(number)) % size, axis=axis),
            exact,
        )
    if name == "dynamic_slice":
        width, start = draw(st.integers(1, size)), draw(st.integers(-2, size))
        return Step(
            f"dynamic_slice({axis}, {start}, {width})",
            lambda v, _: jax.lax.dynamic_slice_in_dim(v, jnp.int32(start), width, axis),
            exact,
        )
    if name == "dynamic_update_slice":
        start = draw(st.integers(-2, size))
        return Step(
            f"dynamic_update_slice({axis}, {start})",
            lambda v, _: jax.lax.dynamic_update_slice_in_dim(v, jax.lax.slice_in_dim(v, 0, 1, axis=axis), start, axis),
            exact,
        )
    if name == "sort":
        return Step(f"sort({axis})", lambda v, _: jnp.sort(v, axis=axis), exact)
    return Step("broadcast to (2, ...)", lambda v, _: jnp.broadcast_to(v, (2, *shape)), exact)


def _factors(draw: Any, count: int) -> tuple[int, ...]:
    """A shape of rank 1 to 4 with `count` elements."""
    sizes: list[int] = []
    for _ in range(draw(st.integers(0, 3))):
        divisors = [d for d in range(1, min(count, 300) + 1) if count % d == 0]
        sizes.append(draw(st.sampled_from(divisors)))
        count //= sizes[-1]
    return (*sizes, count)


@st.composite
def shapes(draw: Any, min_rank: int = 0) -> tuple[int, ...]:
    """Ranks up to 4, sizes 1 to 300, and no more elements than the simulator runs in a moment."""
    sizes: list[int] = []
    left = MAX_ELEMENTS
    for _ in range(draw(st.integers(min_rank, 4))):
        sizes.append(draw(st.integers(1, min(300, left))))
        left //= sizes[-1]
    return tuple(draw(st.permutations(sizes)))


def _array(draw: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Numbers that every dtype holds exactly: quarters from -8 to 8, small integers, bools."""
    numbers = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if dtype == "bool":
        return numbers.random(shape) < 0.5
    if dtype in FLOATS:
        return (numbers.integers(-32, 33, shape) / 4).astype(getattr(ml_dtypes, dtype, dtype))
    return numbers.integers(0 if dtype.startswith("u") else -60, 120, shape).astype(dtype)


def _chain(steps: Sequence[Step]) -> Callable[[Any, Any], Any]:
    def chain(value: Any, second: Any) -> Any:
        for step in steps:
            value = step.apply(value, second)
        return value

    return chain


def _x64(dtype: str) -> contextlib.AbstractContextManager[Any]:
    return jax.enable_x64(True) if dtype.endswith("64") else contextlib.nullcontext()


def _compare(result: Any, expected: Any, exact: bool, elements: int) -> None:
    """Integers and bools bit for bit; floats to some units in the last place, more after a fold of many."""
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    if exact or _kind(expected.dtype) != "f":
        np.testing.assert_array_equal(result, expected)
        return
    with np.errstate(invalid="ignore", over="ignore"):
        eps = float(ml_dtypes.finfo(expected.dtype).eps)
        wide, want = result.astype(np.float64), expected.astype(np.float64)
    scale = float(np.max(np.abs(want), where=np.isfinite(want), initial=1.0))
    slack = eps * (16 + 4 * math.sqrt(elements))
    np.testing.assert_allclose(wide, want, rtol=slack, atol=slack * scale)


@_SETTINGS
@given(data=st.data())
def test_a_chain_of_steps_on_whole_arrays_gives_what_jax_numpy_gives(run: Run, data: st.DataObject) -> None:
    dtype, shape = data.draw(st.sampled_from(DTYPES)), data.draw(shapes())
    with _x64(dtype):
        x, y = _array(data.draw, shape, dtype), _array(data.draw, shape, dtype)
        steps: list[Step] = []
        value, exact = jnp.asarray(x), True
        for _ in range(data.draw(st.integers(1, 4))):
            family = data.draw(st.sampled_from(["elementwise", "reduction", "shape", "shape", "cast"]))
            if family == "cast":
                step = _cast(data.draw, value, exact)
            elif family == "elementwise":
                step = _elementwise(data.draw, value, jnp.asarray(y), exact)
            elif family == "reduction" and value.ndim:
                step = _reduction(data.draw, value, exact, range(value.ndim))
            else:
                step = _shape_step(data.draw, value, exact)
            steps.append(step)
            value, exact = step.apply(value, jnp.asarray(y)), exact and step.exact
            if value.size > 2 * MAX_ELEMENTS:
                break
        note(f"{dtype}{list(shape)}: {'; '.join(step.text for step in steps)}")
        result = run(one_block(_chain(steps), x, y), x, y)
        _compare(result, np.asarray(value), exact, math.prod(shape))


@_SETTINGS
@given(data=st.data())
def test_blocks_of_any_shape_cover_the_array(run: Run, data: st.DataObject) -> None:
    dtype, shape = data.draw(st.sampled_from(DTYPES)), data.draw(shapes(min_rank=1))
    sizes = [data.draw(st.integers(-(-size // 4), size)) for size in shape]
    block = tuple(None if n == 1 and data.draw(st.booleans()) else n for n in sizes)
    grid = tuple(-(-size // n) for size, n in zip(shape, sizes, strict=True))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    with _x64(dtype):
        x, y = _array(data.draw, shape, dtype), _array(data.draw, shape, dtype)
        steps: list[Step] = []
        value, exact = jnp.asarray(x), True
        for _ in range(data.draw(st.integers(1, 3))):
            step = _elementwise(data.draw, value, jnp.asarray(y), exact)
            steps.append(step)
            value, exact = step.apply(value, jnp.asarray(y)), exact and step.exact
        text = "; ".join(step.text for step in steps)
        note(f"{dtype}{list(shape)} in blocks {block}, grid order {order}: {text}")
        spec = pl.BlockSpec(block, lambda *ids: tuple(ids[order.index(d)] for d in range(len(shape))))
        call = blocked(
            _chain(steps),
            jax.ShapeDtypeStruct(value.shape, value.dtype),
            grid=[grid[d] for d in order],
            in_specs=[spec, spec],
            out_specs=spec,
        )
        _compare(run(call, x, y), np.asarray(value), exact, math.prod(shape))


@_SETTINGS
@given(data=st.data())
def test_a_reduction_in_each_block_of_rows(run: Run, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    rows, columns, per_block = (data.draw(st.integers(1, n)) for n in (40, 300, 8))
    with _x64(dtype):
        x = _array(data.draw, (rows, columns), dtype)
        step = _reduction(data.draw, jnp.asarray(x), True, [1], keepdims=True)
        note(f"{dtype}[{rows}, {columns}] in blocks of {per_block} rows: {step.text}")
        value = step.apply(jnp.asarray(x), None)
        call = blocked(
            lambda v: step.apply(v, None),
            jax.ShapeDtypeStruct(value.shape, value.dtype),
            grid=[-(-rows // per_block)],
            in_specs=[pl.BlockSpec((per_block, columns), lambda i: (i, 0))],
            out_specs=pl.BlockSpec((per_block, 1), lambda i: (i, 0)),
        )
        _compare(run(call, x), np.asarray(value), step.exact, columns)
