"""Grids with bounds that are known at run time only."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas import triton as masked
from jax.sharding import Mesh, PartitionSpec

import mosaic_gpu
from mosaic_gpu.kernel import compilation_of
from mosaic_gpu.lowering.jaxpr.grid import GridPlan, plan_grid
from mosaic_gpu.registration import plain_bounds
from mosaic_gpu.runtime.run import as_bound
from mosaic_gpu.runtime.run import run as run_program
from mosaic_gpu.runtime.simulated import SimulatedRuntime
from tests.support.backends import POISON, Run
from tests.support.calls import call, random
from tests.support.kernels import accumulate_product


def plus_place(x_ref: Any, o_ref: Any) -> None:
    """2 x, and in the digits of an added number: program ids and extents."""
    ids = 1000 * pl.program_id(0) + 100 * pl.program_id(1)
    o_ref[...] = 2 * x_ref[...] + (ids + 10 * pl.num_programs(0) + pl.num_programs(1)).astype(jnp.float32)


def tiled(n: Any, m: Any, x: Any, **rest: Any) -> Any:
    """`plus_place` of blocks (4, 8) on a grid (n, m), of which either may be traced."""
    spec = pl.BlockSpec((4, 8), lambda i, j: (i, j))
    return call(plus_place, x.shape, grid=(n, m), in_specs=[spec], out_specs=spec, **rest)(x)


def expected_tiles(n: int, m: int, x: Any) -> Any:
    """What `tiled` gives in the blocks of a grid (n, m); NaN elsewhere."""
    i, j = np.indices(x.shape) // np.array([4, 8]).reshape(2, 1, 1)
    return np.where((i < n) & (j < m), 2 * x + (1000 * i + 100 * j + 10 * n + m).astype(np.float32), np.nan)


def poisoned(x: Any) -> Any:
    """`x` with the bytes that a result starts with where it is NaN."""
    untouched = np.full(x.shape, POISON, np.uint8).astype(np.uint32) * 0x01010101
    return np.where(np.isnan(x), untouched.view(np.float32), x.astype(np.float32))


@pytest.mark.usefixtures("not_in_jax")
@pytest.mark.parametrize(
    "semantics", [None, ("parallel", "sequential"), ("sequential", "parallel"), ("sequential",) * 2]
)
@pytest.mark.parametrize(("n", "m"), [(3, 2), (5, 3), (1, 1), (0, 3), (3, 0), (-2, 3), (-2, -2), (100, 2), (2, 1000)])
def test_two_computed_bounds(run: Run, n: int, m: int, semantics: Any) -> None:
    x = random(18, 21)
    result = run(lambda n, m, x: tiled(n, m, x, semantics=semantics), n, m, x)
    np.testing.assert_array_equal(result, poisoned(expected_tiles(n, m, x)))


@pytest.mark.usefixtures("not_in_jax")
@pytest.mark.parametrize("semantics", [None, ("parallel", "sequential"), ("sequential", "parallel")])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("bound", [-1, 0, 1, 2, 300])
def test_one_computed_bound(run: Run, dim: int, bound: int, semantics: Any) -> None:
    x = random(12, 24)
    grid = [3, 3]
    grid[dim] = bound

    def kernel(b: Any, x: Any) -> Any:
        return tiled(*(b if d == dim else 3 for d in range(2)), x, semantics=semantics)

    np.testing.assert_array_equal(run(kernel, bound, x), poisoned(expected_tiles(*grid, x)))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32])
@pytest.mark.usefixtures("not_in_jax")
def test_a_bound_has_any_integer_dtype(run: Run, dtype: Any) -> None:
    x = random(18, 21)
    result = run(lambda n, x: tiled(n, 2, x), dtype(3), x)
    np.testing.assert_array_equal(result, poisoned(expected_tiles(3, 2, x)))


@pytest.mark.parametrize(("value", "count"), [(3, 3), (-(2**40), 0), (5 + 2**32, 2**31 - 1), (2**63 - 1, 2**31 - 1)])
def test_a_bound_of_64_bits_is_not_cut_to_32(value: int, count: int) -> None:
    with jax.enable_x64(True):
        (plain,) = plain_bounds(jnp.asarray([value], jnp.int64))
    assert (plain.dtype, plain.shape, max(int(plain), 0)) == (np.int32, (), count)
    assert max(int(as_bound(np.int64(value))), 0) == count


@pytest.mark.parametrize("blocks", [1, 2, 7, 500])
def test_any_number_of_blocks_does_all_tiles(blocks: int) -> None:
    """Each block sorts its tile in shared memory, which the block's next tile uses again."""

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.sort(x_ref[...], axis=1) + pl.program_id(1)

    def kernel(n: Any, m: Any, x: Any) -> Any:
        spec = pl.BlockSpec((None, None, 2, 100), lambda i, j, k: (i, j, k, 0))
        return call(body, x.shape, grid=(n, 3, m), in_specs=[spec], out_specs=spec)(x)

    x = random(5, 3, 4, 100)
    (traced,) = mosaic_gpu.trace_calls(kernel, 5, 2, x)
    program = dataclasses.replace(compilation_of(traced).program, grid=(blocks, 1, 1))
    bounds = [np.full((), n, np.int32) for n in (5, 2)]
    (result,), _ = run_program(program, SimulatedRuntime().load(program), [*bounds, x])
    np.testing.assert_array_equal(result, np.sort(x, axis=-1) + np.arange(3, dtype=np.float32).reshape(3, 1, 1))


@pytest.mark.parametrize("n", [1, 3, 6])
def test_a_sum_over_a_computed_number_of_steps(run: Run, n: int) -> None:
    """The first step's initialisation and the last step's division are those of the steps that run."""

    def body(x_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...]

        @pl.when(pl.program_id(1) == pl.num_programs(1) - 1)
        def _() -> None:
            o_ref[...] /= pl.num_programs(1).astype(jnp.float32)

    def kernel(n: Any, x: Any) -> Any:
        specs = [pl.BlockSpec((1, 8), lambda i, j: (j, i))]
        return call(body, (1, 16), grid=(2, n), in_specs=specs, out_specs=pl.BlockSpec((1, 8), lambda i, j: (0, i)))(x)

    x = random(6, 16)
    np.testing.assert_allclose(run(kernel, n, x), x[:n].mean(axis=0, keepdims=True), rtol=1e-6)


@pytest.mark.usefixtures("not_in_jax")
@pytest.mark.parametrize("semantics", [None, ("parallel", "sequential")])
@pytest.mark.parametrize("n", [0, -5])
def test_a_sum_over_no_steps_writes_nothing(run: Run, n: int, semantics: Any) -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...]

    def kernel(n: Any, x: Any) -> Any:
        specs = [pl.BlockSpec((1, 8), lambda i, j: (j, i))]
        out = pl.BlockSpec((1, 8), lambda i, j: (0, i))
        return call(body, (1, 16), grid=(2, n), in_specs=specs, out_specs=out, semantics=semantics)(x)

    result = run(kernel, n, random(6, 16))
    np.testing.assert_array_equal(result, poisoned(np.full((1, 16), np.nan)))


@pytest.mark.parametrize("n", [0, 1, 4])
def test_scratch_memory_lives_through_a_computed_number_of_steps(run: Run, n: int) -> None:
    def body(x_ref: Any, y_ref: Any, o_ref: Any, total_ref: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            total_ref[...] = jnp.zeros_like(total_ref)

        total_ref[...] += x_ref[...]
        o_ref[...] = total_ref[...]

    def kernel(n: Any, x: Any, y: Any) -> Any:
        spec, scratch = pl.BlockSpec((1, 9), lambda i: (i, 0)), [plgpu.SMEM((1, 9), jnp.float32)]
        aliases = {1: 0}
        return call(
            body,
            (6, 9),
            grid=(n,),
            in_specs=[spec, spec],
            out_specs=spec,
            scratch_shapes=scratch,
            input_output_aliases=aliases,
        )(x, y)

    x, y = random(6, 9), random(6, 9) + 3
    expected = np.where(np.arange(6)[:, None] < n, np.cumsum(x, axis=0), y)
    np.testing.assert_allclose(run(kernel, n, x, y), expected, rtol=1e-5)


def test_an_aliased_operand_is_kept_where_no_step_writes(run: Run) -> None:
    def kernel(n: Any, x: Any) -> Any:
        return tiled(n, 3, x, input_output_aliases={0: 0})

    x = random(18, 21)
    filled = expected_tiles(2, 3, x)
    np.testing.assert_array_equal(run(kernel, 2, x), np.where(np.isnan(filled), x, filled))


def test_a_grid_of_three_computed_bounds(run: Run) -> None:
    def body(o_ref: Any) -> None:
        ids = [pl.program_id(d) for d in range(3)]
        o_ref[...] = jnp.full_like(o_ref, 100 * ids[0] + 10 * ids[1] + ids[2])

    def kernel(a: Any, b: Any, c: Any) -> Any:
        spec = pl.BlockSpec((1, 1, 1), lambda i, j, k: (i, j, k))
        return call(body, (7, 4, 6), jnp.int32, grid=(a, b, c), out_specs=spec)()

    i, j, k = np.indices((7, 4, 6))
    np.testing.assert_array_equal(run(kernel, 7, 4, 6), 100 * i + 10 * j + k)


def test_more_tiles_than_64_bits_can_count_are_not_none() -> None:
    """2**93 steps would be: nobody waits for them, but the number must not wrap around to a small one."""

    def body(o_ref: Any) -> None:
        o_ref[...] = jnp.ones_like(o_ref)

    def kernel(a: Any, b: Any, c: Any) -> Any:
        spec = pl.BlockSpec((1, 1, 1), lambda i, j, k: (i, j, k))
        return call(body, (1, 1, 1), jnp.int32, grid=(a, b, c), out_specs=spec, semantics=("parallel",) * 3)()

    text = mosaic_gpu.compile(kernel, 1, 1, 1).ir()
    assert "9223372036854775807" in text


# Inside JAX's transformations.


def test_in_a_scan_the_bound_changes_from_step_to_step() -> None:
    x = random(16, 16)

    def step(total: Any, n: Any) -> Any:
        return tiled(n, 2, total, input_output_aliases={0: 0}), n

    result, _ = jax.jit(lambda x: jax.lax.scan(step, x, jnp.array([2, 0, 4, 1])))(x)
    expected = x
    for n in (2, 0, 4, 1):
        filled = expected_tiles(n, 2, expected)
        expected = np.where(np.isnan(filled), expected, filled).astype(np.float32)
    np.testing.assert_array_equal(result, expected)


def test_vmap_over_the_arrays_keeps_one_bound() -> None:
    x = random(3, 16, 16)
    result = np.asarray(jax.jit(jax.vmap(lambda n, x: tiled(n, 2, x), (None, 0)))(3, x))
    for one, y in zip(x, result, strict=True):
        np.testing.assert_array_equal(y, expected_tiles(3, 2, one))


def test_vmap_over_the_bound() -> None:
    x = random(4, 16, 16)
    result = np.asarray(jax.jit(jax.vmap(lambda n, x: tiled(n, 2, x)))(jnp.array([3, 0, 1, 9]), x))
    for n, one, y in zip((3, 0, 1, 9), x, result, strict=True):
        np.testing.assert_array_equal(y, expected_tiles(n, 2, one))


def test_in_a_shard_map_each_shard_has_its_own_bound() -> None:
    mesh = Mesh(np.array(jax.devices()), ("d",))
    spec = PartitionSpec("d")

    def shard(n: Any, x: Any) -> Any:
        return tiled(n[0], 2, x)

    sharded = jax.shard_map(shard, mesh=mesh, in_specs=(spec, spec), out_specs=spec, check_vma=False)
    x = random(4 * 16, 16)
    bounds = [3, 0, 1, 9]
    expected = np.concatenate([expected_tiles(n, 2, part) for n, part in zip(bounds, np.split(x, 4), strict=True)])
    np.testing.assert_array_equal(jax.jit(sharded)(jnp.array(bounds), x), expected)


def test_a_bound_that_the_same_jit_computes() -> None:
    x = random(16, 16)

    def computed(x: Any) -> Any:
        n = jnp.sum(x > 100) + 3
        return tiled(n, pl.cdiv(n, 2), x)

    np.testing.assert_array_equal(jax.jit(computed)(x), expected_tiles(3, 2, x))


def test_a_concrete_jax_array_is_a_bound() -> None:
    x = random(16, 16)
    np.testing.assert_array_equal(tiled(jnp.int32(3), 2, x), expected_tiles(3, 2, x))


# Scratch memory between the steps of one dimension, and none between those of the others.


def row_sums(n: Any, m: Any, x: Any) -> Any:
    """The sums of m blocks of 16 columns, in scratch memory; row-blocks n of 4 rows and 2 halves of the columns."""

    def body(x_ref: Any, o_ref: Any, total_ref: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            total_ref[...] = jnp.zeros_like(total_ref)

        total_ref[...] += x_ref[...]

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _() -> None:
            o_ref[...] = total_ref[...].sum(axis=2)

    spec = pl.BlockSpec((4, 1, 16), lambda i, j, k: (i, j, k))
    out, scratch = pl.BlockSpec((4, 1), lambda i, j, k: (i, j)), [plgpu.SMEM((4, 1, 16), jnp.float32)]
    return call(body, x.shape[:2], grid=(n, 2, m), in_specs=[spec], out_specs=out, scratch_shapes=scratch)(x)


@pytest.mark.parametrize(("n", "m"), [(5, 3), (2, 1), (3, 0), (0, 2), (9, 9)])
def test_steps_that_scratch_memory_does_not_bind_are_walked_by_all_blocks(n: int, m: int) -> None:
    x = random(18, 2, 48)
    compiled = mosaic_gpu.compile(row_sums, n, m, x)
    assert compiled.launch_facts.grid == (-1, 1, 1)
    known = min(4 * n, 18) if m > 0 else 0
    expected = np.full((18, 2), np.nan, np.float32)
    # With 9 steps the blocks behind the third lie outside of the array, and read as zero.
    expected[:known] = x[:known, :, : 16 * m].sum(axis=2)
    np.testing.assert_allclose(compiled(n, m, x), expected, rtol=1e-5, atol=1e-5)


def test_a_computed_number_of_inner_steps_leaves_known_outer_ones_launched() -> None:
    x = random(16, 2, 48)
    compiled = mosaic_gpu.compile(lambda m, x: row_sums(4, m, x), 3, x)
    assert compiled.launch_facts.grid == (8, 1, 1)
    for m in (1, 3):
        np.testing.assert_allclose(compiled(m, x), x[:, :, : 16 * m].sum(axis=2), rtol=1e-5, atol=1e-5)


def test_scratch_memory_that_outlives_a_step_keeps_them_in_order() -> None:
    def body(x_ref: Any, o_ref: Any, total_ref: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            total_ref[...] = jnp.zeros_like(total_ref)

        total_ref[...] += x_ref[...]
        o_ref[...] = total_ref[...]

    def kernel(n: Any, x: Any) -> Any:
        spec, scratch = pl.BlockSpec((1, 8), lambda i, j: (i, j)), [plgpu.SMEM((1, 8), jnp.float32)]
        return call(body, x.shape, grid=(n, 1), in_specs=[spec], out_specs=spec, scratch_shapes=scratch)(x)

    x = random(6, 8)
    compiled = mosaic_gpu.compile(kernel, 6, x)
    assert compiled.launch_facts.grid == (1, 1, 1)
    np.testing.assert_allclose(compiled(6, x), np.cumsum(x, axis=0), rtol=1e-5)


# Whole outputs, written at places that the program id says: by all blocks, as long as the places are different ones.


@pytest.mark.usefixtures("not_in_jax")
@pytest.mark.parametrize("n", [0, 3, 8, 9, 12, 300])
def test_beyond_the_end_of_the_output_steps_go_on_in_order(run: Run, n: int) -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        here = pl.ds(pl.program_id(0) * 128, 128)
        o_ref[here] = x_ref[here] + pl.program_id(0).astype(jnp.float32)

    def kernel(n: Any, x: Any) -> Any:
        return call(body, (1024,), grid=(n,))(x)

    x = random(1024)
    (traced,) = mosaic_gpu.trace_calls(kernel, n, x)
    assert plan_grid(traced) == GridPlan((None,), (0,), (), limits=(8,))
    expected = np.full(1024, np.nan, np.float32)
    for i in range(n):
        start = min(128 * i, 1024 - 128)
        expected[start : start + 128] = x[start : start + 128] + np.float32(i)
    np.testing.assert_array_equal(run(kernel, n, x), poisoned(expected))


@pytest.mark.usefixtures("not_in_jax")
@pytest.mark.parametrize(("n", "m"), [(2, 4), (3, 4), (2, 6), (1, 1), (0, 9), (5, 7)])
def test_two_computed_bounds_have_each_a_limit(run: Run, n: int, m: int) -> None:
    def body(o_ref: Any) -> None:
        i, j = pl.program_id(0), pl.program_id(1)
        o_ref[pl.ds(8 * i, 8), pl.ds(16 * j, 16)] = jnp.full((8, 16), 10 * i + j, jnp.float32)

    def kernel(n: Any, m: Any) -> Any:
        return call(body, (16, 64), grid=(n, m))()

    (traced,) = mosaic_gpu.trace_calls(kernel, n, m)
    assert plan_grid(traced).limits == (2, 4)
    expected = np.full((16, 64), np.nan, np.float32)
    for i, j in np.ndindex(n, m):
        expected[min(8 * i, 8) :, min(16 * j, 48) :][:8, :16] = 10 * i + j
    np.testing.assert_array_equal(run(kernel, n, m), poisoned(expected))


@pytest.mark.parametrize("n", [1, 7, 8, 100])
def test_masked_stores_leave_out_what_is_beyond_the_end(n: int) -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        index = pl.program_id(0) * 128 + jnp.arange(128)
        inside = index < x_ref.shape[0]
        masked.store(o_ref.at[index], masked.load(x_ref.at[index], mask=inside, other=0.0) + 1, mask=inside)

    def kernel(n: Any, x: Any) -> Any:
        return call(body, (1000,), grid=(n,))(x)

    x = random(1000)
    (traced,) = mosaic_gpu.trace_calls(kernel, n, x)
    assert plan_grid(traced).limits == (2**24,)
    expected = np.where(np.arange(1000) < 128 * n, x + 1, np.float32(np.nan))
    np.testing.assert_array_equal(jax.jit(kernel)(n, x), expected)


# Matrix products, whose loads are under way while the last ones are used, in a walk over tiles.


def product(n: Any, x: Any, y: Any, **choices: Any) -> Any:
    """The first n row-blocks (64) of `x` times `y`."""

    (m, k), width = x.shape, y.shape[1]
    return pl.pallas_call(
        accumulate_product,
        jax.ShapeDtypeStruct((m, width), x.dtype),
        grid=(n, width // 64, k // 32),
        in_specs=[pl.BlockSpec((64, 32), lambda i, j, s: (i, s)), pl.BlockSpec((32, 64), lambda i, j, s: (s, j))],
        out_specs=pl.BlockSpec((64, 64), lambda i, j, s: (i, j)),
        scratch_shapes=[plgpu.SMEM((64, 64), jnp.float32)],
        compiler_params=mosaic_gpu.CompilerParams(**choices),
    )(x, y)


@pytest.mark.parametrize("stages", [None, 1, 3])
def test_a_pipelined_product_is_right_for_any_number_of_blocks_and_row_blocks(stages: int | None) -> None:
    x, y = random(300, 160).astype(np.float16), random(160, 192).astype(np.float16)
    expected = x.astype(np.float32) @ y.astype(np.float32)

    def kernel(n: Any, x: Any, y: Any) -> Any:
        return product(n, x, y, max_concurrent_steps=stages)

    (traced,) = mosaic_gpu.trace_calls(kernel, 5, x, y)
    # With stages to fill, warps of their own copy, and are ahead in the next tile while the others end theirs.
    assert ("mgpu.specialize" in mosaic_gpu.compile(kernel, 5, x, y).ir("pipelined")) == (stages != 1)
    for blocks, n in ((1, 5), (2, 5), (7, 3), (132, 5), (132, 0)):
        program = dataclasses.replace(compilation_of(traced).program, grid=(blocks, 1, 1))
        operands = [np.full((), n, np.int32), x, y]
        (result,), _ = run_program(program, SimulatedRuntime().load(program), operands)
        done = min(64 * n, 300)
        np.testing.assert_allclose(result[:done].astype(np.float32), expected[:done], rtol=1e-2, atol=5e-2)
        assert np.isnan(result[done:].astype(np.float32)).all()
