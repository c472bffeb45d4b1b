"""Kernels that work on more than the registers of a block hold: they are done part by part."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mosaic_gpu
from tests.support.backends import Run
from tests.support.calls import call, random

LIMIT = 32_768
"""Words of 32 bits that a tile may take before it is split."""


def largest_tile(function: Any, *arrays: Any) -> int:
    """Words that the largest tile takes that a block works on; elements of less than 16 bits take that many."""
    text = mosaic_gpu.compile(function, *arrays).ir("layouts")
    tiles = re.findall(r"(?<!ref<)tensor<((?:\d+x)+)[a-z]+(\d+)", text)
    return max(math.prod(int(n) for n in shape.split("x")[:-1]) * max(16, int(bits)) // 32 for shape, bits in tiles)


def body(function: Callable[..., Any]) -> Callable[..., None]:
    """A kernel that writes what `function` makes of all its inputs."""

    def kernel(*refs: Any) -> None:
        refs[-1][...] = function(*(ref[...] for ref in refs[:-1]))

    return kernel


def softmax(x: Any, axis: int) -> Any:
    e = jnp.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


ELEMENTWISE: dict[str, tuple[Any, tuple[int, ...]]] = {
    "rows": (lambda x: 2 * x + 1, (300, 301)),
    "a vector": (lambda x: 2 * x + 1, (70_001,)),
    "long rows": (lambda x: 2 * x + 1, (3, 40_001)),
    "three dimensions": (lambda x: 2 * x + 1, (33, 50, 60)),
    "one row": (lambda x: 2 * x + 1, (1, 50_000)),
    "a transposition": (lambda x: x.T, (260, 300)),
    "two dimensions changed": (lambda x: x.transpose(1, 0, 2), (20, 60, 70)),
    "coordinates": (lambda x: x + jax.lax.broadcasted_iota(jnp.float32, x.shape, 0) * x.shape[1], (301, 260)),
    "columns' coordinates": (lambda x: x + jax.lax.broadcasted_iota(jnp.float32, x.shape, 1), (301, 260)),
    "another shape": (lambda x: x.reshape(150, 2, 300) - 1, (300, 300)),
    "no kept dimension": (lambda x: x.reshape(-1), (30, 40, 50)),
    "a condition": (lambda x: jnp.where(x > 0, x, -1.0), (270, 270)),
    "slices": (lambda x: jnp.concatenate([x[:, 100:], x[:, :100]], axis=1), (300, 200)),
    "reversed rows": (lambda x: x[:, ::-1], (300, 200)),
    "reversed columns": (lambda x: x[::-1], (300, 200)),
    "a reversed vector": (lambda x: x[::-1] + x, (70_001,)),
    "differences of neighbours": (lambda x: x[1:] - x[:-1], (70_001,)),
    "differences of what was computed": (lambda x: jnp.diff(2 * x, 2), (70_001,)),
    "every third": (lambda x: x[1::3], (200_001,)),
    "every second row, backwards": (lambda x: x[::-2], (501, 150)),
    "a part of a sum": (lambda x: x[7:, 3:].sum(axis=1), (300, 203)),
    "coordinates of a slice": (lambda x: (x + jax.lax.broadcasted_iota(jnp.float32, x.shape, 0))[5:][::-2], (601, 160)),
    "many dimensions from one": (lambda x: x.reshape(60, 50, 20) + 1, (60_000,)),
    "merged dimensions": (lambda x: x.reshape(300, -1).reshape(-1, 20) + 1, (30, 10, 200)),
    "the sum of a flat array": (lambda x: (x.reshape(-1) ** 2).sum(), (301, 130)),
    "rolled": (lambda x: jnp.roll(x, 7, axis=0), (200, 200)),
    "rolled rows": (lambda x: jnp.roll(x, 7, axis=1), (200, 201)),
    "rolled both ways": (lambda x: jnp.roll(jnp.roll(x, 7, axis=1), 5, axis=0), (600, 501)),
    "a rolled vector": (lambda x: jnp.roll(2 * x, 1) - x, (300_001,)),
    "a stencil": (lambda x: sum(jnp.roll(x, s, axis=a) for s in (1, -1) for a in (0, 1)) - 4 * x, (301, 256)),
    "the first place of what was computed": (lambda x: jnp.sin(x) - jnp.sin(x)[3], (70_001,)),
    "a few of a reversed vector": (lambda x: (2 * x)[::-1][5:9] + 1, (70_001,)),
    "the largest of many sums": (lambda x: x - x.sum(axis=0).max(), (3, 71_290)),
    "the start of a flat array": (lambda x: x - (2 * x).reshape(-1)[:7].sum(), (300, 200)),
    "some rows of a flat array": (lambda x: (2 * x).reshape(-1)[:600].sum() * x, (300, 200)),
    "halves exchanged": (lambda x: jnp.concatenate([x[35_000:], x[:35_000]]) * x, (70_000,)),
    "three times the same": (lambda x: jnp.concatenate([x, x[::-1], x], axis=1) + 1, (1, 30_001)),
    "padded rows": (lambda x: jnp.pad(x, ((0, 0), (2, 3)), constant_values=7.0), (600, 120)),
    "a padded vector": (lambda x: jnp.pad(x, (5, 1000), constant_values=7.0), (300_001,)),
    "unlike pieces": (lambda x: jnp.concatenate([x[:17], 2 * x, x[-1:]]) + 1, (400, 190)),
    "unlike pieces, summed": (lambda x: jnp.concatenate([x[:17], 2 * x, x[-1:]]).sum(axis=0), (400, 190)),
    "running sums": (lambda x: jnp.cumsum(x, axis=1), (300, 129)),
    "an outer product": (lambda x: x[:, None] * x[None, :], (250,)),
    "a row added": (lambda x: x + x[:1], (300, 200)),
    "softmax of rows": (lambda x: softmax(x, 1), (301, 260)),
    "softmax of columns": (lambda x: softmax(x, 0), (1000, 67)),
    "softmax of wide rows": (lambda x: softmax(x, 1), (2, 40_000)),
    "all less their mean": (lambda x: x - x.mean(), (300, 200)),
    "columns' sums": (lambda x: x.sum(axis=0), (3001, 33)),
    "rows' sums": (lambda x: x.sum(axis=1), (301, 260)),
    "the sum": (lambda x: x.sum(), (301, 260)),
    "the largest": (lambda x: x.max(), (70_000,)),
    "columns' places": (lambda x: jnp.argmax(x, axis=0), (3001, 33)),
    "rows' places": (lambda x: jnp.argmin(x, axis=1), (301, 260)),
    "any": (lambda x: (x > 4).any(axis=0), (5000, 30)),
    "sorted rows": (lambda x: jnp.sort(x, axis=1), (600, 64)),
}
WHOLE = {"sorted rows", "the start of a flat array"}
"""Those that have an op for which nothing here tells how to split it."""


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_parts_give_what_the_whole_gives(run: Run, name: str) -> None:
    function, shape = ELEMENTWISE[name]
    x = random(*shape)
    expected = jax.eval_shape(function, x)
    kernel = call(body(function), expected.shape, expected.dtype)
    np.testing.assert_allclose(run(kernel, x), np.asarray(function(jnp.asarray(x))), rtol=2e-5, atol=1e-4)
    if name not in WHOLE:
        assert largest_tile(kernel, x) <= LIMIT


@pytest.mark.parametrize(
    "dtype", ["int8", "uint32", "int64", "bfloat16", "float16", "float64", "bool", "float8_e4m3fn"]
)
def test_every_width_is_split(run: Run, dtype: str) -> None:
    x = np.round(8 * random(400, 300)).astype(jnp.dtype(dtype))
    expected = np.where(x == x[:, :1], x, x[:, 1:2])
    with jax.enable_x64(True):
        kernel = call(body(lambda x: jnp.where(x == x[:, :1], x, x[:, 1:2])), x.shape, x.dtype)
        result = run(kernel, x)
        assert largest_tile(kernel, x) <= LIMIT
    np.testing.assert_array_equal(result.view(np.uint8), expected.view(np.uint8))


def test_parts_of_a_whole_array_are_blocks_of_the_launch() -> None:
    x = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
    compiled = mosaic_gpu.compile(call(body(lambda x: softmax(x, 1)), x.shape), x)
    assert compiled.launch_facts.grid == (256, 1, 1)


def test_two_results_are_written_by_the_same_blocks(run: Run) -> None:
    def kernel(x_ref: Any, o_ref: Any, mean_ref: Any) -> None:
        mean = x_ref[...].mean(axis=1)
        mean_ref[...] = mean
        o_ref[...] = x_ref[...] - mean[:, None]

    x = random(300, 256)
    shapes = (jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct(x.shape[:1], x.dtype))
    function = pl.pallas_call(kernel, shapes, compiler_params=mosaic_gpu.CompilerParams())
    results = run(function, x)
    np.testing.assert_allclose(results[0], x - x.mean(axis=1, keepdims=True), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(results[1], x.mean(axis=1), rtol=1e-5, atol=1e-5)
    assert mosaic_gpu.compile(function, x).launch_facts.grid[0] > 1


@pytest.mark.parametrize("kept", [True, False])
def test_arrays_change_in_place(run: Run, kept: bool) -> None:
    x = random(300, 301)
    function = (lambda x: 2 * x) if kept else (lambda x: x[:, ::-1] + x[::-1])  # other places than those written
    kernel = call(body(function), x.shape, input_output_aliases={0: 0})
    np.testing.assert_array_equal(run(kernel, x), function(x))
    assert (largest_tile(kernel, x) <= LIMIT) == kept


def test_what_was_written_is_read_again(run: Run) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]
        o_ref[...] += o_ref[...][::-1]
        o_ref[...] *= x_ref[...]

    x = random(200, 200)
    np.testing.assert_allclose(run(call(kernel, x.shape), x), (x + x[::-1]) * x, rtol=1e-6, atol=1e-6)


def test_a_loop_with_large_tiles_inside(run: Run) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        def step(i: Any, carry: Any) -> Any:
            o_ref[i] = x_ref[i] * i + x_ref[0]
            return carry

        jax.lax.fori_loop(0, 3, step, None)

    x = random(3, 200, 220)
    function = call(kernel, x.shape)
    expected = x * np.arange(3, dtype=np.float32)[:, None, None] + x[0]
    np.testing.assert_allclose(run(function, x), expected, rtol=1e-6, atol=1e-6)
    assert largest_tile(function, x) <= LIMIT


def test_a_grid_of_large_blocks_with_an_overhanging_one(run: Run) -> None:
    x = random(500, 301)
    spec = pl.BlockSpec((256, 301), lambda i: (i, 0))
    function = call(body(lambda x: softmax(x, 1)), x.shape, grid=(2,), in_specs=[spec], out_specs=spec)
    np.testing.assert_allclose(run(function, x), np.asarray(softmax(jnp.asarray(x), 1)), rtol=1e-5, atol=1e-6)
    assert largest_tile(function, x) <= LIMIT


def test_few_warps_make_small_parts(run: Run) -> None:
    x = random(80, 129)
    function = pl.pallas_call(
        body(lambda x: 2 * x),
        jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=mosaic_gpu.CompilerParams(num_warps=1),
    )
    np.testing.assert_array_equal(run(function, x), 2 * x)
    assert largest_tile(function, x) <= 64 * 128


def test_a_gather_of_many_rows(run: Run) -> None:
    def kernel(x_ref: Any, rows_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[rows_ref[...]]

    x, rows = random(50, 70), np.random.default_rng(0).integers(0, 50, 700).astype(np.int32)
    function = call(kernel, (700, 70))
    np.testing.assert_array_equal(run(function, x, rows), x[rows])
    assert largest_tile(function, x, rows) <= LIMIT


def test_a_huge_value_that_cannot_be_split_is_refused_with_its_line() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.sort(x_ref[...])

    x = jax.ShapeDtypeStruct((2_000_000,), jnp.float32)
    with pytest.raises(mosaic_gpu.KernelError, match=r"larger than a block of threads can hold.*\n.*2000000") as caught:
        mosaic_gpu.compile(call(kernel, x.shape), x)
    line = kernel.__code__.co_firstlineno + 1
    assert str(caught.value).splitlines()[-1].startswith(f"  at {__file__}:{line}")


def test_arrays_of_millions_are_split(run: Run) -> None:
    x = random(1500, 1001)
    function = call(body(lambda x: 2 * x), x.shape)
    np.testing.assert_array_equal(run(function, x), 2 * x)


def test_indices_beyond_the_last_part_are_not_read(run: Run) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        place = jax.lax.broadcasted_iota(jnp.int32, o_ref.shape, 0)
        o_ref[...] = x_ref[x_ref.shape[0] - 1 - place]

    x = random(70_001)
    function = call(kernel, x.shape)
    np.testing.assert_array_equal(run(function, x), x[::-1])
    assert largest_tile(function, x) <= LIMIT


def test_a_gather_with_a_fill_value_keeps_it_in_the_last_part(run: Run) -> None:
    x, places = random(300), (np.arange(70_001, dtype=np.int32) * 7) % 400
    function = call(body(lambda x, i: jnp.take(x, i, mode="fill", fill_value=5.0)), places.shape)
    np.testing.assert_array_equal(run(function, x, places), np.where(places < 300, x[places % 300], np.float32(5)))
    assert largest_tile(function, x, places) <= LIMIT


def test_blocks_do_not_change_what_other_blocks_read_first(run: Run) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] - x_ref[:, :100].mean()

    x = random(300, 200)
    function = call(kernel, x.shape, input_output_aliases={0: 0})
    np.testing.assert_allclose(run(function, x), x - x[:, :100].mean(), rtol=1e-5, atol=1e-5)
    assert mosaic_gpu.compile(function, x).launch_facts.grid == (1, 1, 1)
    apart = mosaic_gpu.compile(call(kernel, x.shape), x)
    assert apart.launch_facts.grid[0] > 1


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("case", ["ties", "not a number", "all the lowest"])
def test_the_first_place_of_an_extreme_is_found_across_parts(run: Run, kind: str, case: str) -> None:
    x = np.round(random(100_003))
    if case == "not a number":
        x[[60_000, 90_000]] = np.nan
    elif case == "all the lowest":
        x[:] = -np.inf if kind == "argmax" else np.inf
    function = call(body(lambda x: getattr(jnp, kind)(x).astype(jnp.int32)), (), jnp.int32)
    assert run(function, x) == getattr(np, kind)(x)
    assert largest_tile(function, x) <= LIMIT


def test_a_function_of_two_values_folds_part_by_part(run: Run) -> None:
    def later(left: Any, right: Any) -> Any:
        takes = (left[0] > right[0]) | ((left[0] == right[0]) & (left[1] > right[1]))
        return tuple(jnp.where(takes, a, b) for a, b in zip(left, right, strict=True))

    def kernel(x_ref: Any, o_ref: Any, place_ref: Any) -> None:
        x = x_ref[...]
        places = jax.lax.broadcasted_iota(jnp.int32, x.shape, 0)
        o_ref[...], place_ref[...] = jax.lax.reduce((x, places), (jnp.float32(-9), jnp.int32(-1)), later, (0,))

    x = np.round(random(5001, 13))
    shapes = tuple(jax.ShapeDtypeStruct((13,), dtype) for dtype in (jnp.float32, jnp.int32))
    function = pl.pallas_call(kernel, shapes, compiler_params=mosaic_gpu.CompilerParams())
    largest, places = run(function, x)
    np.testing.assert_array_equal(largest, x.max(axis=0))
    np.testing.assert_array_equal(places, 5000 - x[::-1].argmax(axis=0))
    assert largest_tile(function, x) <= LIMIT


def test_stores_that_need_parts_of_different_sizes_are_right(run: Run) -> None:
    def kernel(x_ref: Any, a_ref: Any, b_ref: Any) -> None:
        x = x_ref[...]
        a_ref[...] = x.reshape(100, 700).reshape(-1) * 2
        b_ref[...] = x[::-1]

    x = random(70_000)
    shapes = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for _ in range(2))
    function = pl.pallas_call(kernel, shapes, compiler_params=mosaic_gpu.CompilerParams())
    doubled, reversed_ = run(function, x)
    np.testing.assert_array_equal(doubled, 2 * x)
    np.testing.assert_array_equal(reversed_, x[::-1])
    assert largest_tile(function, x) <= LIMIT


def inverse(x: Any) -> Any:
    """Of numbers none of which is small or, in the array, zero; infinite for what is read as zero outside of it."""
    return 1 / jnp.where(x == 0, x, 2 + abs(x))


PRODUCTS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    "many rows": (jnp.dot, (1000, 48), (48, 64)),
    "many columns": (jnp.dot, (40, 64), (64, 1500)),
    "rows and columns": (jnp.dot, (300, 40), (40, 301)),
    "a long sum": (jnp.dot, (70, 2500), (2500, 33)),
    "a long sum, infinite beyond its end": (lambda x, y: jnp.dot(inverse(x), inverse(y)), (64, 2500), (2500, 48)),
    "the left one transposed": (lambda x, y: jnp.dot(x.T, y), (32, 1000), (32, 64)),
    "the right one transposed": (lambda x, y: jnp.dot(x, y.T), (100, 40), (700, 40)),
    "and then the rest": (lambda x, y: softmax(jnp.dot(x, y), 1), (600, 30), (30, 70)),
    "two in a row": (lambda x, y: jnp.dot(jnp.dot(x, y), y.T), (900, 48), (48, 48)),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_done_tile_by_tile(run: Run, name: str) -> None:
    function, *shapes = PRODUCTS[name]
    x, y = (random(*shape).astype(np.float64) for shape in shapes)
    with jax.enable_x64(True):
        expected = np.asarray(function(jnp.asarray(x), jnp.asarray(y)))
    operands = x.astype(np.float32), y.astype(np.float32)
    kernel = call(body(function), expected.shape)
    np.testing.assert_allclose(run(kernel, *operands), expected, rtol=1e-4, atol=2e-3)
    assert largest_tile(kernel, *operands) <= LIMIT


def test_a_product_of_whole_arrays_is_spread_over_the_gpu(run: Run) -> None:
    x, y = (np.round(2 * random(*shape)).astype(jnp.bfloat16) for shape in ((512, 640), (640, 256)))
    kernel = call(body(lambda x, y: jnp.dot(x, y, preferred_element_type=jnp.float32)), (512, 256))
    np.testing.assert_array_equal(run(kernel, x, y), x.astype(np.float32) @ y.astype(np.float32))
    assert mosaic_gpu.compile(kernel, x, y).launch_facts.grid == (32, 1, 1)


def test_what_a_loop_loads_once_is_loaded_in_parts_inside(run: Run) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        x = x_ref[...]

        def step(i: Any, carry: Any) -> Any:
            o_ref[i] = x * i
            return carry

        jax.lax.fori_loop(0, 3, step, None)

    x = random(200, 220)
    function = call(kernel, (3, *x.shape))
    np.testing.assert_array_equal(run(function, x), x * np.arange(3, dtype=np.float32)[:, None, None])
    assert largest_tile(function, x) <= LIMIT


def test_what_a_loop_changes_is_loaded_before(run: Run) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        first = x_ref[0]

        def step(i: Any, carry: Any) -> Any:
            o_ref[i] = first + 1
            return carry

        jax.lax.fori_loop(0, 3, step, None)

    x = random(3, 200, 220)
    function = call(kernel, x.shape, input_output_aliases={0: 0})
    np.testing.assert_array_equal(run(function, x), np.broadcast_to(x[0] + 1, x.shape))


def test_scratch_memory_is_read_as_it_was_written(run: Run) -> None:
    def kernel(x_ref: Any, o_ref: Any, scratch_ref: Any) -> None:
        scratch_ref[...] = x_ref[...]
        o_ref[0] = scratch_ref[...] + 1
        scratch_ref[:100] = 2 * x_ref[100:200]
        o_ref[1] = scratch_ref[...][::-1]

    x = random(200, 220)
    function = call(kernel, (2, *x.shape), scratch_shapes=[plgpu.SMEM(x.shape, x.dtype)])
    changed = np.concatenate([2 * x[100:], x[100:]])
    np.testing.assert_array_equal(run(function, x), np.stack([x + 1, changed[::-1]]))


def test_scratch_memory_keeps_what_an_earlier_step_left(run: Run) -> None:
    def kernel(x_ref: Any, o_ref: Any, scratch_ref: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            scratch_ref[...] = jnp.zeros_like(scratch_ref)

        scratch_ref[:100] = scratch_ref[:100] + x_ref[0, :100]
        o_ref[0] = scratch_ref[...]

    x = random(3, 200, 180)
    spec = pl.BlockSpec((1, 200, 180), lambda i: (i, 0, 0))
    scratch = [plgpu.SMEM(x.shape[1:], x.dtype)]
    function = call(kernel, x.shape, grid=(3,), in_specs=[spec], out_specs=spec, scratch_shapes=scratch)
    expected = np.cumsum(x, axis=0)
    expected[:, 100:] = 0
    np.testing.assert_allclose(run(function, x), expected, rtol=1e-5, atol=1e-5)
