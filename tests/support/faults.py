"""Kernels with one fault each, for the tests of errors; one table, so that each test sees them all.

A fault's kernel is a function defined in this file: the tests compare the reported line with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from mosaic_gpu import CompilerParams, KernelError, PrefetchScalarGridSpec, UnsupportedError

X = np.arange(16, dtype=np.float32)
OUT = jax.ShapeDtypeStruct((16,), jnp.float32)


def copy(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...]


def ignores_its_input(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = jnp.zeros(o_ref.shape, o_ref.dtype)


def copy_with_scratch(x_ref: Any, o_ref: Any, *scratch: Any) -> None:
    o_ref[...] = x_ref[...]


def two_inputs(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] + y_ref[...]


def writes_its_input(x_ref: Any, o_ref: Any) -> None:
    x_ref[...] = x_ref[...] + 1
    o_ref[...] = x_ref[...]


def needs_complex_numbers(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = jnp.abs(x_ref[...] + 1j)


def with_index_operand(index_ref: Any, x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...]


def writes_its_index(index_ref: Any, x_ref: Any, o_ref: Any) -> None:
    index_ref[0] = 1.0
    o_ref[...] = x_ref[...]


def _call(kernel: Callable[..., None] = copy, out: Any = OUT, /, *, params: Any = None, **options: Any) -> Any:
    return pl.pallas_call(kernel, out, compiler_params=params or CompilerParams(), **options)


def _blocks(block: Any, index_map: Any = lambda i: (i,)) -> dict[str, Any]:
    return {"grid": (2,), "in_specs": [pl.BlockSpec(block, index_map)], "out_specs": pl.BlockSpec((8,), lambda i: (i,))}


def _traced_bound(value: Any, **choices: Any) -> Callable[[Any], Any]:
    params = CompilerParams(**choices)
    return lambda x: jax.jit(lambda n, x: _call(grid=(2, n), params=params)(x))(value, x)


def _scalar_operand(kernel: Callable[..., None] = with_index_operand, operand: Any = X, **options: Any) -> Any:
    spec = pl.BlockSpec((16,), lambda i, index_ref: (0,))
    grid_spec = PrefetchScalarGridSpec(1, grid=(1,), in_specs=[spec], out_specs=spec)
    return lambda x: _call(kernel, grid_spec=grid_spec, **options)(operand, x)


@dataclass(frozen=True)
class Fault:
    """A faulty call.

    Attributes:
      call: runs it, given X.
      error: the class of the error.
      message: a part of the message, as a regular expression.
      kernel: the function that the error's line is of.
      line: the line in it, 0 for its `def`.
    """

    call: Callable[[Any], Any]
    error: type[Exception]
    message: str
    kernel: Callable[..., None] = copy
    line: int = 0


FAULTS: dict[str, Fault] = {
    "bool bound": Fault(_call(grid=(True,)), KernelError, "grid bound of dimension 0 is not an int"),
    "negative bound": Fault(_call(grid=(2, -1)), KernelError, r"dimension 1 is out of range[^$]*got: -1"),
    "bound of more than 31 bits": Fault(_call(grid=(2**31,)), KernelError, "dimension 0 is out of range"),
    "too many blocks": Fault(_call(grid=(2**30, 2**30)), KernelError, "more blocks than a GPU can launch"),
    "refused traced bound": Fault(
        _traced_bound(3, dynamic_grid="refuse"), UnsupportedError, "grid bound of dimension 1 is a traced value"
    ),
    "traced bound that is no integer": Fault(
        _traced_bound(3.0), KernelError, r"dimension 1 is not an integer\n  got: float32\[\]"
    ),
    "traced bound that is a bool": Fault(_traced_bound(True), KernelError, r"not an integer\n  got: bool\[\]"),
    "traced bounds in one array": Fault(
        _traced_bound(np.zeros(2, np.int32)), KernelError, r"not an integer\n  got: int32\[2\]"
    ),
    "aliased scalar operand": Fault(
        _scalar_operand(input_output_aliases={0: 0}), UnsupportedError, "joins scalar operand 0", with_index_operand
    ),
    "scalar operand that is written": Fault(
        _scalar_operand(writes_its_index), KernelError, "writes to scalar operand 0", writes_its_index, line=1
    ),
    "scalar operand of complex numbers": Fault(
        _scalar_operand(operand=X.astype(np.complex64)),
        UnsupportedError,
        "scalar operand 0 has dtype complex64",
        with_index_operand,
    ),
    "semantics of another length": Fault(
        _call(grid=(2, 2), params=CompilerParams(dimension_semantics=("parallel",))),
        KernelError,
        "got: 1 words\n  expected: 2 words",
    ),
    "semantics of unknown words": Fault(
        _call(grid=(2,), params=CompilerParams(dimension_semantics=["arbitrary"])),
        KernelError,
        "unknown word for dimension 0\n  got: 'arbitrary'",
    ),
    "semantics that is one word": Fault(
        _call(grid=(2,), params=CompilerParams(dimension_semantics="parallel")), KernelError, "not a tuple of words"
    ),
    "three warps": Fault(_call(params=CompilerParams(num_warps=3)), KernelError, "num_warps[^$]*got: 3"),
    "64 warps": Fault(_call(params=CompilerParams(num_warps=64)), KernelError, "num_warps[^$]*got: 64"),
    "True warps": Fault(_call(params=CompilerParams(num_warps=True)), KernelError, "num_warps[^$]*got: True"),
    "approx_math that is no bool": Fault(
        _call(params=CompilerParams(approx_math="yes")),  # type: ignore[arg-type]
        KernelError,
        "approx_math is not a bool",
    ),
    "unknown dynamic_grid": Fault(
        _call(params=CompilerParams(dynamic_grid="maybe")),  # type: ignore[arg-type]
        KernelError,
        "'allow' or 'refuse'",
    ),
    "AMD's target": Fault(_call(params=CompilerParams(target="gfx950")), UnsupportedError, "not an NVIDIA GPU"),
    "a target that is none": Fault(_call(params=CompilerParams(target="hopper")), KernelError, "names no GPU"),
    "complex operands": Fault(
        lambda x: _call(ignores_its_input)(jnp.asarray(x) + 1j),
        UnsupportedError,
        "dtype complex64",
        ignores_its_input,
    ),
    "an operand of fp4": Fault(
        lambda x: _call(ignores_its_input)(jnp.asarray(x, jnp.float4_e2m1fn)),
        UnsupportedError,
        "dtype float4_e2m1fn",
        ignores_its_input,
    ),
    "negative block": Fault(
        _call(ignores_its_input, **_blocks((-8,))),
        KernelError,
        "no size that a block can have in dimension 0",
        ignores_its_input,
    ),
    "empty block": Fault(
        _call(ignores_its_input, **_blocks((0,))), KernelError, r"in dimension 0\n  got: 0", ignores_its_input
    ),
    "a bounded slice": Fault(
        _call(**_blocks((pl.BoundedSlice(8),), lambda i: (pl.ds(i * 8, 8),))), UnsupportedError, "pl.BoundedSlice"
    ),
    "a block in tensor memory": Fault(
        _call(in_specs=[pl.BlockSpec(memory_space=plgpu.TMEM)]), UnsupportedError, "memory space 'tmem'"
    ),
    "two inputs in one output": Fault(
        lambda x: _call(two_inputs, input_output_aliases={0: 0, 1: 0})(x, x),
        KernelError,
        "names output 0 twice",
        two_inputs,
    ),
    "a barrier in scratch": Fault(
        _call(copy_with_scratch, scratch_shapes=[plgpu.Barrier()]),
        UnsupportedError,
        "barriers and semaphores are not supported",
        copy_with_scratch,
    ),
    "scratch in another memory": Fault(
        _call(copy_with_scratch, scratch_shapes=[pl.ANY((8,), jnp.float32)]),
        UnsupportedError,
        "memory space 'any'",
        copy_with_scratch,
    ),
    "too much scratch": Fault(
        _call(copy_with_scratch, scratch_shapes=[plgpu.SMEM((256, 1024), jnp.float32)]),
        KernelError,
        r"do not fit shared memory\n +1048576 bytes  scratch 0: float32\[256,1024\]\n  got: 1048576 bytes",
        copy_with_scratch,
    ),
    "an input that is written": Fault(
        _call(writes_its_input), KernelError, r"writes to args\[0\], which is an input", writes_its_input, line=1
    ),
    "complex values": Fault(
        _call(needs_complex_numbers), UnsupportedError, "dtype complex64", needs_complex_numbers, line=1
    ),
}
