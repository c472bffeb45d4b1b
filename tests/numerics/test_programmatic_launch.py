"""Kernels that may start before their predecessor ends: the same results, and no access to memory before the wait."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu import KernelError, SimulationError, UnsupportedError
from tests.support.backends import Run, run_on_simulator
from tests.support.gpu_kernels import matmul

DRAW = np.random.default_rng(3)
X = DRAW.normal(size=(30, 100)).astype(np.float32)
A, B = (DRAW.normal(size=shape).astype(np.float16) for shape in ((128, 192), (192, 64)))

_MEMORY = re.compile(r"\b(ld|st|ldu|atom|red|prefetch|cp)\.(?!param)[\w.:]*\b(global|async|reduce)|\bvprintf\b")


def softmax(x: Any, **choices: Any) -> Any:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        e = jnp.exp(x_ref[...] - x_ref[...].max(axis=-1, keepdims=True))
        o_ref[...] = e / e.sum(axis=-1, keepdims=True)

    block = pl.BlockSpec((4, x.shape[1]), lambda i: (i, 0))
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    params = mosaic_gpu.CompilerParams(**choices)
    options = {"grid": (8,), "in_specs": [block], "out_specs": block}
    return pl.pallas_call(kernel, out, compiler_params=params, **options)(x)


def rows_plus_one(n: Any, x: Any, y: Any) -> Any:
    """The first n rows, a traced number; the bound itself is read from memory."""

    def kernel(x_ref: Any, _: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + 1

    block = pl.BlockSpec((1, x.shape[1]), lambda i: (i, 0))
    params = mosaic_gpu.CompilerParams(programmatic_launch=True)
    options = {"grid": (n,), "in_specs": [block, block], "out_specs": block, "input_output_aliases": {1: 0}}
    return pl.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), compiler_params=params, **options)(x, y)


def printing(x: Any, **choices: Any) -> Any:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.debug_print("block {}", pl.program_id(0))
        o_ref[...] = -x_ref[...]

    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(kernel, out, grid=(1,), compiler_params=mosaic_gpu.CompilerParams(**choices))(x)


PRODUCT = A.astype(np.float64) @ B.astype(np.float64)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any, dict[str, Any]]] = {
    "softmax": (softmax, (X,), jax.nn.softmax(X.astype(np.float64), axis=-1), {}),
    "printing": (printing, (X,), -X, {}),
    "matmul": (matmul, (A, B), PRODUCT, {}),
    "pipelined": (matmul, (A, B), PRODUCT, {"warp_specialize": False}),
    "specialized": (matmul, (A, B), PRODUCT, {"warp_specialize": True}),
    "cp_async": (matmul, (A, B), PRODUCT, {"warp_specialize": False, "num_warps": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_without(run: Run, name: str) -> None:
    call, arrays, expected, choices = CASES[name]
    found = run(lambda *a: call(*a, programmatic_launch=True, **choices), *arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_computed_bounds_are_read_behind_the_wait() -> None:
    arrays = (np.int32(7), X, -X)
    found = run_on_simulator(rows_plus_one, *arrays)
    np.testing.assert_array_equal(found, np.where(np.arange(30)[:, None] < 7, X + 1, -X))
    check_text(mosaic_gpu.compile(rows_plus_one, *arrays).ptx)


def check_text(ptx: str) -> None:
    """One wait, that no branch avoids; no access to global memory before it, none of the read-only kind behind."""
    body = ptx[ptx.index(".reqntid") :]
    before, *waits = re.split(r"(griddepcontrol\.\w+);", body)
    assert waits[0::2] == ["griddepcontrol.wait", "griddepcontrol.launch_dependents"]
    assert not _MEMORY.search(before)
    assert not re.search(r"\b(bra|ret|exit)\b", re.sub(r"//.*", "", before))
    assert _MEMORY.search(waits[-1])
    assert not re.search(r"\bld\S*\.nc\b", body)


@pytest.mark.parametrize("name", CASES)
def test_every_thread_waits_before_it_touches_global_memory(name: str) -> None:
    call, arrays, _, choices = CASES[name]
    compiled = mosaic_gpu.compile(lambda *a: call(*a, programmatic_launch=True, **choices), *arrays)
    check_text(compiled.ptx)
    assert compiled.launch_facts.programmatic
    assert compiled.cubin[:4] == b"\x7fELF"


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_that_does_not_ask_neither_waits_nor_says_so(name: str) -> None:
    call, arrays, _, choices = CASES[name]
    compiled = mosaic_gpu.compile(lambda *a: call(*a, **choices), *arrays)
    assert "griddepcontrol" not in compiled.ptx
    assert not compiled.launch_facts.programmatic


def test_races_between_blocks_are_still_found() -> None:
    def same_place(x: Any) -> Any:
        def kernel(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] * pl.program_id(0).astype(jnp.float32)

        params = mosaic_gpu.CompilerParams(programmatic_launch=True, dimension_semantics=("parallel",))
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(kernel, out, grid=(2,), compiler_params=params)(x)

    with pytest.raises(SimulationError, match="race"):
        run_on_simulator(same_place, X)


@pytest.mark.parametrize("target", ["sm_80", "sm_89"])
def test_targets_before_hopper_are_refused_by_name(target: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"needs griddepcontrol, which {target} has not\n  expected: .* sm_90"):
        mosaic_gpu.compile(lambda x: softmax(x, programmatic_launch=True), X, target=target)


@pytest.mark.parametrize("target", ["sm_90", "sm_100a", "sm_120"])
def test_later_targets_take_it(target: str) -> None:
    check_text(mosaic_gpu.compile(lambda x: softmax(x, programmatic_launch=True), X, target=target).ptx)


def test_a_value_that_is_no_bool_is_refused() -> None:
    with pytest.raises(KernelError, match="programmatic_launch is not a bool\n  got: 1\n  expected: True or False"):
        mosaic_gpu.compile(lambda x: softmax(x, programmatic_launch=1), X)
