"""Our kernels for the cases: the functions of `examples/`, traced and compiled.  Needs JAX and the compiler."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import mosaic_gpu
from mosaic_gpu.kernel import compilation_of, gpu_kernel
from mosaic_gpu.runtime.gpu_kernel import GpuKernel

from . import ops_matmul
from .cases import Case

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(module: str, function: str) -> Callable[..., Any]:
    """A function of an example."""
    sys.path.append(str(EXAMPLES))
    try:
        return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]
    finally:
        sys.path.pop()


def call_of(case: Case) -> tuple[Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...]]:
    """The function that calls the case's kernel, and its arguments."""
    function, shapes = _CALLS[case.operation](case)
    arguments = tuple(jax.ShapeDtypeStruct(shape, np.dtype(dtype)) for shape, dtype in shapes)
    return function, arguments


_Shapes = list[tuple[tuple[int, ...], str]]


def _matmul(case: Case) -> tuple[Callable[..., Any], _Shapes]:
    transposed = ops_matmul.is_transposed(case)
    options = {"block": case.block, "transpose_b": transposed, "out_dtype": ops_matmul.result_dtype(case)}
    right = (case.n, case.k) if transposed else (case.k, case.n)
    function = functools.partial(example("matmul", "matmul"), **options)
    return function, [((case.m, case.k), case.dtype), (right, case.dtype)]


def _attention(case: Case) -> tuple[Callable[..., Any], _Shapes]:
    attend = example("flash_attention", "flash_attention")
    function = functools.partial(attend, causal=bool(case.causal), block=case.block)
    keys = (case.batch, case.kv_heads, case.keys, case.d)
    return function, [((case.batch, case.heads, case.queries, case.d), case.dtype), *[(keys, case.dtype)] * 2]


def _softmax(case: Case) -> tuple[Callable[..., Any], _Shapes]:
    function = functools.partial(example("softmax", "softmax"), block_rows=case.block[0])
    return function, [((case.m, case.n), case.dtype)]


def _rms_norm(case: Case) -> tuple[Callable[..., Any], _Shapes]:
    norm, rows = example("rms_norm", "rms_norm"), case.block[0]
    return lambda x, scale: norm(x, scale, rows), [((case.m, case.n), case.dtype), ((case.n,), case.dtype)]


def _cross_entropy(case: Case) -> tuple[Callable[..., Any], _Shapes]:
    function = example("cross_entropy", "cross_entropy_forward")
    return function, [((case.m, case.n), case.dtype), ((case.m,), "int32")]


def _grouped_matmul(case: Case) -> tuple[Callable[..., Any], _Shapes]:
    function = functools.partial(example("grouped_matmul", "grouped_matmul"), block=case.block)
    matrices = ((case.groups, case.k, case.n), case.dtype)
    return function, [((case.m, case.k), case.dtype), matrices, ((case.groups,), "int32")]


_CALLS = {
    "matmul": _matmul,
    "attention": _attention,
    "softmax": _softmax,
    "rms_norm": _rms_norm,
    "cross_entropy": _cross_entropy,
    "grouped_matmul": _grouped_matmul,
}


def compile_case(case: Case, target: str) -> tuple[GpuKernel, str]:
    """The case's kernel for a target, under the case's name, and its PTX.

    Raises MosaicGpuError where it cannot be compiled.
    """
    function, arguments = call_of(case)
    (call,) = mosaic_gpu.trace_calls(function, *arguments, target=target)
    compilation = compilation_of(call)
    return dataclasses.replace(gpu_kernel(call, compilation), name=case.name), compilation.ptx.text
