"""Branches, loops and calls inside kernels, compared with the same thing in Python."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mosaic_gpu
from tests.support.backends import Run
from tests.support.calls import call, random


def ints(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.int32)


@pytest.mark.parametrize("flag", [0, 1, -3])
def test_when_runs_its_body_or_not(run: Run, flag: int) -> None:
    def body(f_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.ones_like(o_ref)

        @pl.when(f_ref[0] > 0)
        def _() -> None:
            o_ref[1:3] = jnp.full(2, 5.0)

    expected = [1, 5, 5, 1, 1] if flag > 0 else [1] * 5
    np.testing.assert_array_equal(run(call(body, (5,)), ints(flag)), expected)


@pytest.mark.parametrize("index", [-2, 0, 1, 2, 3, 9])
def test_switch_clamps_its_index(run: Run, index: int) -> None:
    x = random(7)
    branches = [lambda v: v + 1, lambda v: v * 2, lambda v: -v, lambda v: v[::-1]]

    def body(i_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = lax.switch(i_ref[0], branches, x_ref[...])

    expected = branches[min(max(index, 0), 3)](x)
    np.testing.assert_array_equal(run(call(body, (7,)), ints(index), x), expected)


def test_cond_gives_several_values_of_several_kinds(run: Run) -> None:
    x = random(4, 6)

    def body(x_ref: Any, o_ref: Any) -> None:
        def taken() -> Any:
            return x_ref[...] * 2, jnp.int32(3), x_ref[0] > 0

        def other() -> Any:
            return x_ref[...], jnp.int32(4), x_ref[1] > 0

        value, number, mask = lax.cond(pl.program_id(0) == 1, taken, other)
        o_ref[...] = jnp.where(mask, value, number.astype(jnp.float32))

    kernel = call(body, (8, 6), grid=(2,), out_specs=pl.BlockSpec((4, 6), lambda i: (i, 0)))
    expected = np.concatenate([np.where(x[1] > 0, x, 4), np.where(x[0] > 0, 2 * x, 3)])
    np.testing.assert_array_equal(run(kernel, x), expected)


@pytest.mark.parametrize("bounds", [(0, 5), (2, 7), (4, 4), (5, 2), (-2, 3)])
@pytest.mark.parametrize("known", [True, False])
def test_fori_loop_counts_between_its_bounds(run: Run, bounds: tuple[int, int], known: bool) -> None:
    x = random(6)

    def body(b_ref: Any, x_ref: Any, o_ref: Any) -> None:
        low, high = bounds if known else (b_ref[0], b_ref[1])

        def step(i: Any, carry: Any) -> Any:
            total, tile = carry
            return total + i, tile * 1.5 + i

        total, tile = lax.fori_loop(low, high, step, (jnp.int32(0), x_ref[...]))
        o_ref[...] = tile + total

    total, tile = 0, x
    for i in range(*bounds):
        total, tile = total + i, tile * np.float32(1.5) + np.float32(i)
    result = run(call(body, (6,)), ints(*bounds), x)
    np.testing.assert_allclose(result, tile + np.float32(total), rtol=1e-6)


def test_a_backward_loop_and_a_loop_inside_a_loop(run: Run) -> None:
    x = random(4, 5)

    def body(x_ref: Any, o_ref: Any) -> None:
        def row(i: Any, total: Any) -> Any:
            return lax.fori_loop(0, 5, lambda j, t: t * 0.5 + x_ref[3 - i, j], total)

        o_ref[...] = lax.fori_loop(0, 4, row, jnp.float32(0))

    total = np.float32(0)
    for i in range(4):
        for j in range(5):
            total = total * np.float32(0.5) + x[3 - i, j]
    np.testing.assert_allclose(run(call(body, ()), x), total, rtol=1e-6)


def test_while_loop_carries_tiles_and_scalars(run: Run) -> None:
    x = np.abs(random(9)) + 0.1

    def body(x_ref: Any, o_ref: Any) -> None:
        def go_on(carry: Any) -> Any:
            steps, value = carry
            return (value.max() < 100) & (steps < 50)

        steps, value = lax.while_loop(go_on, lambda c: (c[0] + 1, c[1] * 1.5), (jnp.int32(0), x_ref[...]))
        o_ref[...] = value + steps

    steps, value = 0, x
    while value.max() < 100 and steps < 50:
        steps, value = steps + 1, value * np.float32(1.5)
    np.testing.assert_allclose(run(call(body, (9,)), x), value + np.float32(steps), rtol=1e-5)


def test_an_index_is_carried_through_a_loop_with_a_condition_inside(run: Run) -> None:
    x, index = random(6), np.array([[3, 0, 5, 1], [2, 2, 4, 0], [1, 5, 3, 3]], np.int32)

    def body(x_ref: Any, index_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

        def step(j: Any, last: Any) -> Any:
            row = index_ref[j, 1:3]

            @pl.when(last != 2)
            def _() -> None:
                o_ref[row[0]] += 1
                o_ref[row[1]] += 1

            return row[0]

        lax.fori_loop(0, 3, step, jnp.int32(0))

    expected, last = x.copy(), 0
    for j in range(3):
        row = index[j, 1:3]
        if last != 2:
            expected[row[0]] += 1
            expected[row[1]] += 1
        last = row[0]
    np.testing.assert_array_equal(run(call(body, (6,)), x, index), expected)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 5])
def test_scan_slices_its_inputs_and_stacks_its_outputs(run: Run, reverse: bool, length: int) -> None:
    x, y = random(length + 1, 3)[:length], np.arange(length, dtype=np.int32)

    def body(*refs: Any) -> None:
        *inputs, total_ref, stack_ref, flag_ref = refs

        def step(total: Any, element: Any) -> Any:
            row, number = element
            total = total * 0.5 + row
            return total, (total * number, number % 2 == 0)

        xs = (inputs[0][...], inputs[1][...]) if length else (jnp.zeros((0, 3)), jnp.zeros(0, jnp.int32))
        total, (stack, flags) = lax.scan(step, jnp.ones(3), xs, reverse=reverse)
        total_ref[...] = total
        if length:
            stack_ref[...] = stack
            flag_ref[...] = flags

    shapes = [
        jax.ShapeDtypeStruct((3,), jnp.float32),
        jax.ShapeDtypeStruct((max(length, 1), 3), jnp.float32),
        jax.ShapeDtypeStruct((max(length, 1),), jnp.bool_),
    ]
    kernel = pl.pallas_call(body, shapes, compiler_params=mosaic_gpu.CompilerParams())
    results = run(kernel, *([x, y] if length else []))
    total, stack = np.ones(3, np.float32), np.zeros((length, 3), np.float32)
    for i in reversed(range(length)) if reverse else range(length):
        total = total * np.float32(0.5) + x[i]
        stack[i] = total * i
    np.testing.assert_allclose(results[0], total, rtol=1e-6)
    if length:
        np.testing.assert_allclose(results[1], stack, rtol=1e-6)
        np.testing.assert_array_equal(results[2], y % 2 == 0)


def test_calls_of_every_kind(run: Run) -> None:
    x = random(8)

    @jax.custom_vjp
    def triple(v: Any) -> Any:
        return 3 * v

    triple.defvjp(lambda v: (triple(v), None), lambda _, g: (3 * g,))

    @jax.custom_jvp
    def shifted(v: Any) -> Any:
        return v + 1

    shifted.defjvp(lambda p, t: (shifted(*p), t[0]))

    def body(x_ref: Any, o_ref: Any) -> None:
        value = jax.jit(lambda v: v * v)(x_ref[...])
        value = jax.checkpoint(lambda v: v - 0.5)(value)
        value = jax.nn.relu(shifted(triple(value)))
        o_ref[...] = value + jax.grad(lambda v: (triple(v) ** 2).sum())(x_ref[...])

    expected = np.maximum(3 * (x * x - np.float32(0.5)) + 1, 0) + 18 * x
    np.testing.assert_allclose(run(call(body, (8,)), x), expected, rtol=1e-5)


def test_memory_of_run_scoped(run: Run) -> None:
    x = random(4, 6)

    def body(x_ref: Any, o_ref: Any) -> None:
        def scoped(a_ref: Any, n_ref: Any) -> Any:
            a_ref[...] = x_ref[...]
            n_ref[0] = 7
            a_ref[1] = a_ref[2] * n_ref[0].astype(jnp.float32)
            return a_ref[...] + 1

        o_ref[...] = pl.run_scoped(scoped, plgpu.SMEM((4, 6), jnp.float32), plgpu.SMEM((3,), jnp.int32))

    expected = x.copy()
    expected[1] = x[2] * 7
    np.testing.assert_allclose(run(call(body, (4, 6)), x), expected + 1, rtol=1e-6)


def test_a_reference_made_in_the_kernel(run: Run) -> None:
    x = random(5)

    def body(x_ref: Any, o_ref: Any) -> None:
        memory = jax.new_ref(x_ref[...])
        memory[1:3] = jnp.zeros(2)
        o_ref[...] = jax.ref.freeze(memory)

    np.testing.assert_array_equal(run(call(body, (5,)), x), np.where(np.isin(np.arange(5), [1, 2]), 0, x))


def test_64_bit_counters(run: Run) -> None:
    with jax.enable_x64(True):

        def body(n_ref: Any, o_ref: Any) -> None:
            o_ref[...] = lax.fori_loop(n_ref[0], n_ref[1], lambda i, t: t + i, jnp.int64(0))

        result = run(call(body, (), jnp.int64), np.array([2**33, 2**33 + 3], np.int64))
    np.testing.assert_array_equal(result, 3 * 2**33 + 3)


def test_loops_around_blocks_of_a_big_array(run: Run) -> None:
    x = random(126, 16)

    def body(x_ref: Any, start_ref: Any, o_ref: Any) -> None:
        def step(i: Any, total: Any) -> Any:
            return total + x_ref[pl.ds(start_ref[0] + 8 * i, 8), :]

        o_ref[...] = lax.fori_loop(0, 4, step, jnp.zeros((8, 16)))

    for start in (0, 50, 94, 120):
        expected = sum(x[s : s + 8] for s in np.clip(start + 8 * np.arange(4), 0, 118))
        np.testing.assert_allclose(run(call(body, (8, 16)), x, ints(start)), expected, rtol=1e-5, atol=1e-6)


def test_random_keys_are_carried_and_stacked(run: Run) -> None:
    x = random(3, 4)

    def body(x_ref: Any, o_ref: Any) -> None:
        def step(key: Any, row: Any) -> Any:
            key, used = jax.random.split(key)
            return key, row + jax.random.uniform(used, (4,))

        o_ref[...] = lax.scan(step, jax.random.key(3), x_ref[...])[1]

    key, expected = jax.random.key(3), []
    for row in x:
        key, used = jax.random.split(key)
        expected.append(row + jax.random.uniform(used, (4,)))
    np.testing.assert_array_equal(run(call(body, (3, 4)), x), np.stack(expected))


def test_vmap_of_branches_and_loops_in_the_body(run: Run) -> None:
    x = np.abs(random(8)) + np.float32(0.1)

    def body(x_ref: Any, o_ref: Any) -> None:
        def one(value: Any) -> Any:
            grown = lax.while_loop(lambda v: v < 3, lambda v: v + value, value)
            return lax.cond(value > 0.5, lambda: grown, lambda: -grown)

        o_ref[...] = jax.vmap(one)(x_ref[...])

    expected = []
    for value in x:
        grown = value
        while grown < 3:
            grown = grown + value
        expected.append(grown if value > 0.5 else -grown)
    np.testing.assert_array_equal(run(call(body, (8,)), x), np.array(expected, np.float32))
