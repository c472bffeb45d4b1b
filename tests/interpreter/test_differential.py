"""Whole kernels drawn by Hypothesis: the interpreter, the compiled code on the simulator, and jax.numpy agree.

A kernel is a grid (static or dynamic bounds), blocks that need not divide the arrays, an order of row blocks that a
scalar operand gives, and a chain of steps on the block: arithmetic, reductions, products of matrices, loops and
branches on scalars.  The reference applies the same chain to each block with jax.numpy, one block after another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.experimental import pallas as pl

import mosaic_gpu

Array = np.ndarray[Any, Any]
Chain = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Place:
    """What a step may look at beside the block: the second input's block, program ids and scalars."""

    other: Any
    row: Any
    column: Any
    scalar: Any


def _loop(v: Any, n: int, place: Place) -> Any:
    return lax.fori_loop(0, n + place.scalar, lambda i, x: 0.5 * x + i.astype(jnp.float32), v)


def _while(v: Any, n: int, place: Place) -> Any:
    def step(state: Any) -> Any:
        count, x = state
        return count + 1, jnp.abs(x) - n

    return lax.while_loop(lambda s: s[0] < place.row % 3, step, (jnp.int32(0), v))[1]


def _branch(v: Any, n: int, place: Place) -> Any:
    return lax.cond((place.row + place.column + n) % 2 == 0, lambda x: x + 1, lambda x: -x * 0.5, v)


def _switch(v: Any, n: int, place: Place) -> Any:
    branches = [lambda x: x, lambda x: x * x * 0.125, lambda x: jnp.minimum(x, 1.0)]
    return lax.switch(place.scalar + n % 2, branches, v)


STEPS: dict[str, Callable[[Any, int, Place], Any]] = {
    "scale": lambda v, n, p: v * (n - 1.5),
    "add": lambda v, n, p: v + p.other,
    "multiply": lambda v, n, p: v * jnp.tanh(p.other),
    "choose": lambda v, n, p: jnp.where(v > p.other, v, n - v),
    "exp": lambda v, n, p: jnp.exp(jnp.clip(v, -4, 2)),
    "clip": lambda v, n, p: jnp.clip(v, -n, n),
    "largest of rows": lambda v, n, p: v - v.max(axis=1, keepdims=True),
    "sums of columns": lambda v, n, p: v * 0.25 + v.sum(axis=0, keepdims=True) * 0.125,
    "mean": lambda v, n, p: v - v.mean(),
    "cumulative": lambda v, n, p: jnp.cumsum(v, axis=n % 2) * 0.25,
    "backwards": lambda v, n, p: jnp.flip(v, n % 2),
    "product": lambda v, n, p: jnp.dot(v, p.other.T, preferred_element_type=jnp.float32) @ v * 0.0625,
    "integers": lambda v, n, p: (jnp.round(jnp.clip(v, -90, 90)).astype(jnp.int32) // (n + 1)).astype(jnp.float32),
    "program": lambda v, n, p: v + (2 * p.row + p.column).astype(jnp.float32),
    "loop": _loop,
    "while": _while,
    "branch": _branch,
    "switch": _switch,
}

CHAINS = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 3)), min_size=1, max_size=4).map(tuple)


def apply(chain: Chain, value: Any, place: Place) -> Any:
    """The block after all steps, kept in a range where float32 is exact enough to compare."""
    for name, number in chain:
        value = jnp.clip(STEPS[name](value, number, place), -1000, 1000)
    return value


@dataclass(frozen=True)
class Drawn:
    """A kernel: sizes of the arrays and blocks, which bounds are dynamic, and what it computes."""

    shape: tuple[int, int]
    block: tuple[int, int]
    dynamic: tuple[bool, bool]
    accumulates: bool
    chain: Chain

    @property
    def grid(self) -> tuple[int, ...]:
        """Bounds, with a third one where the result is a sum over steps."""
        counts = tuple(-(-n // b) for n, b in zip(self.shape, self.block, strict=True))
        return (*counts, 2) if self.accumulates else counts

    def call(self, bounds: Any, order: Any, scalar: Any, x: Any, y: Any) -> Any:
        """The kernel, as a user writes it."""
        grid = tuple(bounds[d] if d < 2 and self.dynamic[d] else n for d, n in enumerate(self.grid))
        rows = pl.BlockSpec(self.block, lambda i, j, *rest: (rest[-2][i], j))
        out = pl.BlockSpec(self.block, lambda i, j, *rest: (i, j))
        spec = mosaic_gpu.PrefetchScalarGridSpec(num_scalar_prefetch=2, grid=grid, in_specs=[rows, rows], out_specs=out)
        return mosaic_gpu.pallas_call(self._body, jax.ShapeDtypeStruct(self.shape, jnp.float32), grid_spec=spec)(
            order, scalar, x, y
        )

    def _body(self, order_ref: Any, scalar_ref: Any, x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        place = Place(y_ref[...], pl.program_id(0), pl.program_id(1), scalar_ref[0])
        value = apply(self.chain, x_ref[...], place)
        if not self.accumulates:
            o_ref[...] = value
            return

        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            o_ref[...] = value

        @pl.when(pl.program_id(2) > 0)
        def _() -> None:
            o_ref[...] += 0.5 * value

    def expected(self, order: Array, scalar: int, x: Array, y: Array) -> Array:
        """The same with jax.numpy, block by block."""
        (rows, columns), (height, width) = self.shape, self.block
        padded = [np.pad(a, ((0, -rows % height), (0, -columns % width))) for a in (x, y)]
        result = np.full_like(padded[0], np.nan)
        for i, j in np.ndindex(*self.grid[:2]):
            source = (slice(order[i] * height, (order[i] + 1) * height), slice(j * width, (j + 1) * width))
            place = Place(padded[1][source], jnp.int32(i), jnp.int32(j), jnp.int32(scalar))
            value = np.asarray(apply(self.chain, jnp.asarray(padded[0][source]), place))
            target = (slice(i * height, (i + 1) * height), source[1])
            result[target] = value + 0.5 * value if self.accumulates else value
        return result[:rows, :columns]


KERNELS = st.builds(
    Drawn,
    st.tuples(st.integers(1, 40), st.integers(1, 70)),
    st.tuples(st.integers(1, 24), st.sampled_from([1, 7, 16, 32, 64])),
    st.tuples(st.booleans(), st.booleans()),
    st.booleans(),
    CHAINS,
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(kernel=KERNELS, scalar=st.integers(0, 1), seed=st.integers(0, 99))
def test_interpreter_simulator_and_jax_numpy_agree(kernel: Drawn, scalar: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = (rng.normal(size=kernel.shape).astype(np.float32) for _ in range(2))
    order = rng.permutation(kernel.grid[0]).astype(np.int32)
    given_arrays = (np.asarray(kernel.grid[:2], np.int32), order, np.array([scalar], np.int32), x, y)
    expected = kernel.expected(order, scalar, x, y)
    interpreted = mosaic_gpu.interpret(kernel.call, *given_arrays)
    np.testing.assert_allclose(interpreted, expected, rtol=2e-4, atol=2e-3)
    simulated = np.asarray(jax.jit(kernel.call)(*given_arrays))
    np.testing.assert_allclose(simulated, expected, rtol=2e-4, atol=2e-3)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(kernel=KERNELS, scalar=st.integers(0, 1), seed=st.integers(0, 99))
def test_interpreter_and_jax_numpy_agree(kernel: Drawn, scalar: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = (rng.normal(size=kernel.shape).astype(np.float32) for _ in range(2))
    order = rng.permutation(kernel.grid[0]).astype(np.int32)
    given_arrays = (np.asarray(kernel.grid[:2], np.int32), order, np.array([scalar], np.int32), x, y)
    params = mosaic_gpu.InterpretParams(seed=seed)
    np.testing.assert_allclose(
        mosaic_gpu.interpret(kernel.call, *given_arrays, params=params),
        kernel.expected(order, scalar, x, y),
        rtol=2e-4,
        atol=2e-3,
    )
