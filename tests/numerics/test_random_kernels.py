"""Kernels drawn by Hypothesis: indices, blocks, and programs of loops and branches over references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tests.support.backends import Run, run_in_jax
from tests.support.calls import call

DTYPES = st.sampled_from(["float32", "int32", "int8", "bool", "bfloat16", "float16"])
Array = np.ndarray[Any, Any]

slow = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


class Index:
    """An index of one reference: as the kernel writes it, from operands, and as NumPy does."""

    def __init__(self) -> None:
        self.operands: list[Array] = []
        self.entries: list[Callable[[Any], Any]] = []
        self.plain: list[Any] = []

    def add(self, plain: Any) -> None:
        """An entry that is known when the kernel is traced."""
        self.plain.append(plain)
        self.entries.append(lambda refs: plain)

    def add_operand(self, operand: Array, plain: Any, entry: Callable[[Any], Any]) -> None:
        """An entry that the kernel makes of what it reads from an operand."""
        place = len(self.operands)
        self.operands.append(operand)
        self.plain.append(plain)
        self.entries.append(lambda refs: entry(refs[place]))

    def of(self, refs: Any) -> tuple[Any, ...]:
        """The index, in the kernel."""
        return tuple(entry(refs) for entry in self.entries)


def slice_from(size: int, stride: int) -> Callable[[Any], Any]:
    """A slice whose start a reference holds."""
    return lambda ref: pl.ds(ref[0], size, stride)


@st.composite
def indices(draw: Any, shape: tuple[int, ...]) -> Index:
    """Ints, slices, traced ints and starts, and up to two index arrays that broadcast."""
    index = Index()
    common = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    arrays = draw(st.sets(st.integers(0, len(shape) - 1), max_size=2))
    for d, n in enumerate(shape):
        kind = "array" if d in arrays else draw(st.sampled_from(["int", "slice", "all", "traced", "start"]))
        if kind == "array":
            sizes = [draw(st.sampled_from([1, m])) for m in common]
            dtype = draw(st.sampled_from([np.int32, np.int8, np.int16]))
            numbers = draw(st.lists(st.integers(-n, n - 1), min_size=int(np.prod(sizes)), max_size=int(np.prod(sizes))))
            array = np.array(numbers, dtype).reshape(sizes)
            index.add_operand(array, array.astype(np.int64), lambda ref: ref[...])
        elif kind == "int":
            index.add(draw(st.integers(-n, n - 1)))
        elif kind == "slice":
            start, stop = sorted([draw(st.integers(0, n)), draw(st.integers(0, n))])
            index.add(slice(start, stop, draw(st.integers(1, 3))))
        elif kind == "all":
            index.add(slice(None))
        elif kind == "traced":
            number = draw(st.integers(-n, n - 1))
            index.add_operand(np.array([number], np.int32), number, lambda ref: ref[0])
        else:
            stride = draw(st.integers(1, 3))
            size = draw(st.integers(1, (n - 1) // stride + 1))
            last = (size - 1) * stride
            start = draw(st.integers(0, n - 1 - last))
            plain = slice(start, start + last + 1, stride)
            index.add_operand(np.array([start], np.int32), plain, slice_from(size, stride))
    return index


def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    drawn = np.random.default_rng(seed).integers(-50, 50, size=shape)
    return np.asarray(jnp.asarray(drawn).astype(dtype))


@slow
@given(data=st.data(), shape=st.lists(st.integers(1, 8), min_size=1, max_size=4).map(tuple), dtype=DTYPES)
def test_any_index_reads_and_writes_what_numpy_does(run: Run, data: Any, shape: tuple[int, ...], dtype: str) -> None:
    index = data.draw(indices(shape))
    plain = tuple(index.plain)
    x = numbers(shape, dtype, 0)
    expected = x[plain]
    assume(expected.size)

    def read(x_ref: Any, *refs: Any) -> None:
        refs[-1][...] = x_ref[index.of(refs)]

    np.testing.assert_array_equal(run(call(read, expected.shape, x.dtype), x, *index.operands), expected)
    places = np.arange(x.size).reshape(shape)[plain].reshape(-1)
    assume(len(np.unique(places)) == len(places))
    y = numbers(expected.shape, dtype, 1)

    def write(x_ref: Any, y_ref: Any, *refs: Any) -> None:
        refs[-1][...] = x_ref[...]
        refs[-1][index.of(refs)] = y_ref[...]

    written = x.copy()
    written[plain] = y
    np.testing.assert_array_equal(run(call(write, shape, x.dtype), x, y, *index.operands), written)


@slow
@given(
    data=st.data(),
    shape=st.lists(st.integers(1, 11), min_size=1, max_size=3).map(tuple),
    steps=st.integers(1, 3),
    backwards=st.booleans(),
)
def test_any_blocks_are_revisited_in_order(
    run: Run, data: Any, shape: tuple[int, ...], steps: int, backwards: bool
) -> None:
    block = [data.draw(st.one_of(st.none(), st.integers(1, n + 2))) for n in shape]
    counts = [n if b is None else -(-n // b) for n, b in zip(shape, block, strict=True)]
    order = data.draw(st.permutations(range(len(shape))))
    place = data.draw(st.integers(0, len(shape)))
    grid = [counts[d] for d in order]
    grid.insert(place, steps)

    def index_map(*ids: Any) -> tuple[Any, ...]:
        own = [i for n, i in enumerate(ids) if n != place]
        found = [own[order.index(d)] for d in range(len(shape))]
        return tuple(counts[d] - 1 - i if backwards else i for d, i in enumerate(found))

    def body(x_ref: Any, o_ref: Any) -> None:
        step = pl.program_id(place)

        @pl.when(step == 0)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] = 3 * o_ref[...] + x_ref[...] * (1 + step)

    x = numbers(shape, "int32", 2)
    expected = np.zeros_like(x)
    for step in range(steps):
        expected = 3 * expected + x * (1 + step)
    spec = pl.BlockSpec(tuple(block), index_map)
    kernel = call(body, shape, jnp.int32, grid=tuple(grid), in_specs=[spec], out_specs=spec)
    np.testing.assert_array_equal(run(kernel, x), expected)


def places(depth: int) -> st.SearchStrategy[tuple[str, int]]:
    """Which part of a reference: the number says which row, or which of the loops' counters gives it."""
    kinds = st.sampled_from(["row", "counted row", "counted rows", "reversed", "all"])
    return st.tuples(kinds, st.integers(0, depth))


def statements(depth: int) -> st.SearchStrategy[list[Any]]:
    """A block of code inside of `depth` loops; references are numbered 0 (output), 1 (scratch), 2 (input)."""
    assign = st.tuples(st.just("assign"), st.integers(0, 1), places(depth), st.integers(0, 2), places(depth))
    if depth == 3:
        return st.lists(assign, min_size=1, max_size=2)
    inner = st.deferred(lambda: statements(depth + 1))
    loop = st.tuples(st.sampled_from(["for", "computed for", "while"]), st.integers(0, 3), inner)
    branch = st.tuples(st.just("switch"), st.integers(0, 1), inner, inner)
    return st.lists(st.one_of(assign, loop, branch), min_size=1, max_size=3)


class Program:
    """Runs drawn statements on references while a kernel is traced."""

    def __init__(self, refs: list[Any], rows: int) -> None:
        self.refs, self.rows = refs, rows

    def index(self, place: tuple[str, int], counters: list[Any]) -> Any:
        kind, number = place
        counter = counters[number] if number < len(counters) else number
        match kind:
            case "row":
                return number % self.rows
            case "counted row":
                return counter
            case "counted rows":
                return pl.ds(counter % (self.rows - 1), 2)
            case "reversed":
                return lax.iota(jnp.int32, self.rows)[::-1]
            case _:
                return slice(None)

    def run(self, statements: list[Any], counters: list[Any]) -> None:
        for statement in statements:
            match statement:
                case ("assign", target, place, source, other):
                    self.assign(self.refs[target], self.index(place, counters), source, self.index(other, counters))
                case ("while", count, inner):
                    lax.while_loop(lambda i, n=count: i != n, self.step(inner, counters), jnp.int32(0))
                case (("for" | "computed for") as kind, count, inner):
                    bound = count if kind == "for" else jnp.clip(self.refs[2][0, 0], 0, count)
                    lax.fori_loop(0, bound, lambda i, _, inner=inner: self.run(inner, [*counters, i]), None)
                case ("switch", number, first, second):
                    cases = [lambda s=s: self.run(s, counters) for s in (first, second, [])]
                    lax.switch(self.refs[number][0, 0] % 4, cases)

    def step(self, inner: list[Any], counters: list[Any]) -> Callable[[Any], Any]:
        def body(counter: Any) -> Any:
            self.run(inner, [*counters, counter])
            return counter + 1

        return body

    def assign(self, target: Any, place: Any, source: int, other: Any) -> None:
        """`target[place] = f(target[place], refs[source][other])`, with small numbers."""
        old, value = target[place], self.refs[source][other]
        mixed = 3 * old + (value.sum(axis=0) if value.ndim == 2 else value)
        target[place] = jnp.bitwise_and(mixed, 1023) - 300


@settings(slow, max_examples=10)
@given(statements=statements(0), rows=st.integers(2, 6), columns=st.integers(1, 40), grid=st.integers(1, 2))
def test_any_program_of_loops_and_branches_does_what_jaxs_interpreter_does(
    run: Run, statements: list[Any], rows: int, columns: int, grid: int
) -> None:
    def body(x_ref: Any, o_ref: Any, scratch_ref: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            o_ref[...] = x_ref[...]
            scratch_ref[...] = 2 * x_ref[...]

        Program([o_ref, scratch_ref, x_ref], rows).run(statements, [])

    x = numbers((rows, columns), "int32", 3)
    whole = pl.BlockSpec((rows, columns), lambda i: (0, 0))
    scratch = [plgpu.SMEM((rows, columns), jnp.int32)]
    kernel = call(body, x.shape, jnp.int32, grid=(grid,), in_specs=[whole], out_specs=whole, scratch_shapes=scratch)
    np.testing.assert_array_equal(run(kernel, x), run_in_jax(kernel, x))
