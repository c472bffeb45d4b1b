"""The model of a launch's time: what has to hold whatever its numbers are, and its worked example."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu.lowering.throughput import throughput_of
from mosaic_gpu.tuning.model import Estimate, estimate, estimate_all
from tests.support.examples import example

H100 = throughput_of("sm_90a")
SQUARE = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16)


@cache
def matmul(block: tuple[int, int, int], target: str = "sm_90a") -> mosaic_gpu.CompiledKernel:
    function = functools.partial(example("matmul").matmul, block=block)
    return mosaic_gpu.compile(function, SQUARE, SQUARE, target=target)


@cache
def softmax(rows: int, count: int, num_warps: int | None = None, columns: int = 1000) -> mosaic_gpu.CompiledKernel:
    x = jax.ShapeDtypeStruct((count, columns), jnp.float32)
    block = pl.BlockSpec((rows, columns), lambda i: (i, 0))
    call = pl.pallas_call(
        example("softmax").softmax_kernel,
        out_shape=x,
        grid=(pl.cdiv(count, rows),),
        in_specs=[block],
        out_specs=block,
        compiler_params=mosaic_gpu.CompilerParams(num_warps=num_warps),
    )
    return mosaic_gpu.compile(call, x, target="sm_90a")


def of(kernel: mosaic_gpu.CompiledKernel, **peaks: Any) -> Estimate:
    known = dataclasses.replace(throughput_of(kernel.target), **peaks)
    return estimate(kernel._call, kernel.ptx, kernel.launch_facts, kernel.resources, known)


def test_large_tiles_of_a_matrix_product_are_faster_than_small_ones() -> None:
    times = [of(matmul(block)).microseconds for block in ((128, 256, 64), (128, 128, 64), (64, 64, 64), (16, 16, 16))]
    assert times == sorted(times)
    assert times[-1] > 5 * times[0]


def test_deeper_steps_of_a_matrix_product_are_not_slower() -> None:
    assert of(matmul((128, 256, 64))).microseconds < of(matmul((128, 256, 32))).microseconds


def test_no_matrix_product_is_faster_than_the_tensor_cores() -> None:
    for block in ((128, 256, 64), (128, 128, 64), (64, 64, 64)):
        found = of(matmul(block))
        assert found.flops == 2 * 4096**3
        assert found.microseconds * 1e-6 > found.flops / H100.tensor_flops_per_s("bf16")


def test_nothing_is_faster_than_its_memory() -> None:
    found = of(softmax(4, 32768))
    moved = 2 * 32768 * 1000 * 4
    assert found.bound == "dram"
    assert found.dram_bytes == moved
    assert moved / H100.dram_bytes_per_s < found.microseconds * 1e-6 < 1.5 * moved / H100.dram_bytes_per_s


def test_the_worked_example_is_what_the_code_computes() -> None:
    kernel = matmul((128, 256, 64))
    found = of(kernel)
    assert found.tiles == 512
    assert found.tiles_at_once == 1
    # Each tile reads 128 rows and 256 columns of 4096, and writes 128 by 256.
    assert found.l2_bytes == 512 * ((128 + 256) * 4096 + 128 * 256) * 2
    assert found.bound == "l2"
    assert 1e6 * found.l2_bytes / H100.l2_bytes_per_s == pytest.approx(175, rel=0.02)


def test_neighbouring_tiles_share_what_memory_gives() -> None:
    found = of(matmul((128, 128, 64)))
    arrays = 3 * 4096 * 4096 * 2
    assert arrays < found.dram_bytes < found.l2_bytes / 5


def test_arrays_that_fit_the_cache_come_from_memory_once() -> None:
    assert of(matmul((128, 128, 64)), l2_bytes=1 << 30).dram_bytes == pytest.approx(3 * 4096 * 4096 * 2)


@pytest.mark.parametrize("peak", ["dram_bytes_per_s", "l2_bytes_per_s", "clock_ghz", "multiprocessors"])
def test_a_faster_gpu_is_not_slower(peak: str) -> None:
    for kernel in (matmul((128, 128, 64)), softmax(4, 32768), softmax(64, 128)):
        slower = getattr(H100, peak) // 2 if peak == "multiprocessors" else getattr(H100, peak) / 2
        assert of(kernel).microseconds <= of(kernel, **{peak: slower}).microseconds


def test_more_rows_take_more_time() -> None:
    times = [of(softmax(4, count)).microseconds for count in (128, 1024, 32768)]
    assert times == sorted(times)
    assert times[-1] > 5 * times[0]


def test_blocks_that_leave_the_gpu_empty_are_slower() -> None:
    for count in (128, 1024):
        assert (
            of(softmax(1, count)).microseconds
            < of(softmax(16, count)).microseconds
            < of(softmax(64, count)).microseconds
        )


def test_too_few_warps_for_a_large_block_are_slower() -> None:
    few, many = (of(softmax(8, 128, warps)) for warps in (1, 8))
    assert many.microseconds < few.microseconds


def test_more_warps_than_there_are_elements_do_not_help() -> None:
    enough, many = (of(softmax(1, 32768, warps, columns=64)) for warps in (1, 32))
    assert enough.microseconds < many.microseconds


def test_spills_cost_time() -> None:
    kernel = softmax(4, 1024)
    spilled = dataclasses.replace(kernel.resources, spill_store_bytes=400, spill_load_bytes=400)
    found = estimate(kernel._call, kernel.ptx, kernel.launch_facts, spilled, H100)
    assert found.microseconds > of(kernel).microseconds


def test_more_registers_and_shared_memory_leave_room_for_fewer_tiles() -> None:
    kernel = softmax(4, 32768)
    greedy = dataclasses.replace(kernel.resources, registers=255)
    found = estimate(kernel._call, kernel.ptx, kernel.launch_facts, greedy, H100)
    assert found.tiles_at_once < of(kernel).tiles_at_once
    assert found.microseconds >= of(kernel).microseconds
    launch = dataclasses.replace(kernel.launch_facts, shared_bytes=200_000)
    assert estimate(kernel._call, kernel.ptx, launch, kernel.resources, H100).tiles_at_once == 1


def test_tensor_cores_are_faster_than_multiply_adds() -> None:
    """The same code, once as it is and once without its instructions of the tensor cores."""
    kernel = matmul((128, 128, 64))
    plain = kernel.ptx.replace("wgmma", "other").replace("mma.sync", "other")
    found = estimate(kernel._call, plain, kernel.launch_facts, kernel.resources, H100)
    assert found.microseconds > 3 * of(kernel).microseconds
    assert found.bound == "chain"  # one tile a multiprocessor, so what it computes


def test_a_block_that_stays_is_loaded_once() -> None:
    kernel = _rows_times_columns(lambda i, s: (i, 0))
    changing = _rows_times_columns(lambda i, s: (i, s))
    steps = 16
    once, often = (of(k).l2_bytes for k in (kernel, changing))
    assert often - once == (steps - 1) * 64 * 128 * 4 * 4  # the first input, 64 by 128 float32, four tiles


def _rows_times_columns(index_map: Callable[..., Any]) -> mosaic_gpu.CompiledKernel:
    """Sums over a sequential dimension of 16 steps, with an input's block by `index_map`."""

    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...] * y_ref[...]

    x = jax.ShapeDtypeStruct((256, 16 * 128), jnp.float32)
    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((256, 128), jnp.float32),
        grid=(4, 16),
        in_specs=[pl.BlockSpec((64, 128), index_map), pl.BlockSpec((64, 128), lambda i, s: (i, s))],
        out_specs=pl.BlockSpec((64, 128), lambda i, s: (i, 0)),
        compiler_params=mosaic_gpu.CompilerParams(),
    )
    return mosaic_gpu.compile(call, x, x, target="sm_90a")


def test_blocks_that_overhang_move_only_what_is_inside() -> None:
    found = of(softmax(4, 30, columns=100))
    assert found.l2_bytes == pytest.approx(2 * 30 * 100 * 4)


def test_an_empty_grid_takes_no_time() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    block = pl.BlockSpec((8, 8), lambda i: (0, 0))
    x = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    params = mosaic_gpu.CompilerParams()
    call = pl.pallas_call(kernel, x, grid=(0,), in_specs=[block], out_specs=block, compiler_params=params)
    assert of(mosaic_gpu.compile(call, x, target="sm_90a")).microseconds == 0


def test_several_kernels_take_the_sum_of_their_times() -> None:
    parts = [of(softmax(4, 128)), of(softmax(4, 32768))]
    both = estimate_all(parts)
    assert both.microseconds == pytest.approx(sum(p.microseconds for p in parts))
    assert both.bound == parts[1].bound


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_89", "sm_100", "sm_120"])
def test_every_architecture_has_a_model(target: str) -> None:
    found = of(matmul((64, 64, 32), target))
    peak = throughput_of(target).tensor_flops_per_s("bf16")
    assert found.microseconds * 1e-6 > found.flops / peak
