"""Counts of a kernel's work, against those done by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu.api import trace_calls
from mosaic_gpu.tuning.work import ASSUMED_TRIPS, Dot, Work, work_of


def work(
    kernel: Callable[..., None],
    *blocks: tuple[int, ...],
    grid: tuple[int, ...] = (),
    dtype: Any = jnp.float32,
    approx_math: bool = False,
    scratch: tuple[Any, ...] = (),
) -> Work:
    """The work of `kernel`, whose inputs have these blocks, the last being the output's, the same at every step."""
    specs = [_whole(block) for block in blocks]
    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(blocks[-1], jnp.float32),
        grid=grid,
        in_specs=specs[:-1],
        out_specs=specs[-1],
        scratch_shapes=scratch,
        compiler_params=mosaic_gpu.CompilerParams(approx_math=approx_math),
    )
    (traced,) = trace_calls(call, *(jax.ShapeDtypeStruct(block, dtype) for block in blocks[:-1]))
    return work_of(traced.jaxpr, len(blocks), grid, approx_math)


def _whole(block: tuple[int, ...]) -> pl.BlockSpec:
    return pl.BlockSpec(block, lambda *ids: (0,) * len(block))


def test_blocks_are_read_and_written_once() -> None:
    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = (x_ref[...] + y_ref[...]).astype(jnp.float32)

    found = work(kernel, (8, 32), (8, 32), (8, 32), dtype=jnp.bfloat16)
    assert dict(found.reads) == {0: 512, 1: 512}
    assert dict(found.writes) == {2: 1024}
    assert found.read_phases == 1
    # 256 additions, half of them an instruction; 256 conversions; and 16 bytes an instruction in and out.
    assert found.lanes["fp32"] == 128 + 128
    assert found.lanes["int32"] == (512 + 512 + 1024) / 16
    assert not found.is_assumed


def test_a_dot_is_counted_with_its_kind_and_its_accumulator_is_free() -> None:
    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = o_ref[...] + jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

    found = work(kernel, (64, 32), (32, 16), (64, 16), dtype=jnp.bfloat16)
    assert dict(found.dots) == {Dot(64, 16, 32, "bf16", 2): 1}
    assert found.lanes["fp32"] == 0


def test_batched_dots_are_many() -> None:
    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.einsum("bik,bkj->bij", x_ref[...], y_ref[...])

    assert dict(work(kernel, (3, 8, 32), (3, 32, 16), (3, 8, 16)).dots) == {Dot(8, 16, 32, "f32", 4): 3}


@pytest.mark.parametrize(("approximate", "plain", "special"), [(False, 4, 1), (True, 1, 1)])
def test_special_functions_are_counted_apart(approximate: bool, plain: int, special: int) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.exp(x_ref[...])

    found = work(kernel, (8, 32), (8, 32), approx_math=approximate)
    assert (found.lanes["fp32"], found.lanes["special"]) == (256 * plain, 256 * special)


def test_reductions_are_counted() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        x = x_ref[...]
        o_ref[...] = (x - x.max(axis=1, keepdims=True)).sum(axis=1)

    assert work(kernel, (8, 32), (8,)).reductions == 2


def test_a_loop_multiplies_what_is_inside() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        def step(i: Any, total: Any) -> Any:
            return total + x_ref[pl.ds(i * 4, 4), :]

        o_ref[...] = jax.lax.fori_loop(0, 8, step, jnp.zeros((4, 32)))

    found = work(kernel, (32, 32), (4, 32))
    assert dict(found.reads) == {0: 32 * 32 * 4}
    assert found.read_phases == 8
    assert found.lanes["fp32"] == 8 * 128


def test_a_loop_whose_bound_follows_from_the_step_is_counted_at_its_mean() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        def step(i: Any, total: Any) -> Any:
            return total + x_ref[...]

        o_ref[...] = jax.lax.fori_loop(0, pl.program_id(0) + 1, step, jnp.zeros((8, 32)))

    # 1 to 9 trips: 5 in the mean.
    found = work(kernel, (8, 32), (8, 32), grid=(9,))
    assert found.lanes["fp32"] == pytest.approx(5 * 256)
    assert not found.is_assumed


def test_a_loop_whose_bound_is_data_is_assumed() -> None:
    def kernel(n_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jax.lax.fori_loop(0, n_ref[0], lambda i, total: total + 1.0, jnp.zeros((8, 32)))

    found = work(kernel, (1,), (8, 32), dtype=jnp.int32)
    assert found.lanes["fp32"] == ASSUMED_TRIPS * 256
    assert found.is_assumed


def test_a_condition_on_the_step_counts_in_the_steps_in_which_it_holds() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(0) == pl.num_programs(0) - 1)
        def _() -> None:
            o_ref[...] = x_ref[...] + 1.0

    found = work(kernel, (8, 32), (8, 32), grid=(10,))
    assert found.reads[0] == pytest.approx(1024 / 10)
    assert found.lanes["fp32"] == pytest.approx(256 / 10)
    assert not found.is_assumed


def test_a_condition_on_data_is_assumed_to_hold_half_of_the_time() -> None:
    def kernel(n_ref: Any, o_ref: Any) -> None:
        @pl.when(n_ref[0] > 0)
        def _() -> None:
            o_ref[...] = jnp.ones((8, 32)) + n_ref[0].astype(jnp.float32)

    found = work(kernel, (1,), (8, 32), dtype=jnp.int32)
    assert found.writes[1] == 1024 / 2
    assert found.is_assumed


def test_scratch_memory_is_no_memory() -> None:
    def kernel(x_ref: Any, o_ref: Any, scratch_ref: Any) -> None:
        scratch_ref[...] = x_ref[...]

        def scope(inner_ref: Any) -> None:
            inner_ref[...] = scratch_ref[...]
            o_ref[...] = inner_ref[...] + x_ref[...]

        pl.run_scoped(scope, _smem((8, 32)))

    found = work(kernel, (8, 32), (8, 32), scratch=(_smem((8, 32)),))
    assert dict(found.reads) == {0: 2 * 1024}
    assert dict(found.writes) == {1: 1024}


def _smem(shape: tuple[int, ...]) -> Any:
    from jax.experimental.pallas import mosaic_gpu as plgpu

    return plgpu.SMEM(shape, jnp.float32)


def test_calls_are_looked_into() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jax.jit(lambda x: jax.nn.relu(x) + 1)(x_ref[...])

    assert work(kernel, (8, 32), (8, 32)).lanes["fp32"] == 2 * 256
