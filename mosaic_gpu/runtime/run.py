"""One run of a kernel on host memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mosaic_gpu.errors import KernelError
from mosaic_gpu.runtime.buffers import GuardedArray, uninitialised
from mosaic_gpu.runtime.interface import Array, ArrayType, LoadedProgram, Program, RunStats
from mosaic_gpu.runtime.known_sizes import given_types, known_sizes


def run(
    program: Program, loaded: LoadedProgram, operands: Sequence[Array], poison: int | None = None
) -> tuple[list[Array], RunStats]:
    """The results of `program` for `operands`, which stay as they are, and what the run tells.

    A result that aliases an operand starts as a copy of it, any other as `uninitialised(type, poison)`; with
    no block in the grid nothing runs and the results stay like that.

    Raises KernelError where `operands` are not of the program's types.
    """
    _check_count(program, operands)
    known = known_sizes(program, [a.shape for a in operands])
    bounds = len(program.bound_sizes)
    arrays = known.with_bounds(operands)
    arrays[:bounds] = [as_bound(np.asarray(bound)) for bound in arrays[:bounds]]
    told = sum(bound is not None for bound in known.bounds)  # which the caller does not count
    _check_operands(program.name, arrays, known.operands, told)
    inputs = [GuardedArray(a.astype(t.memory_dtype, copy=False)) for a, t in zip(arrays, known.operands, strict=True)]
    aliased = {result: inputs[operand] for operand, result in program.aliases}
    outputs = [aliased.get(i) or GuardedArray(uninitialised(t, poison)) for i, t in enumerate(known.results)]
    stats = RunStats()
    if all(program.grid):
        memory = [guarded.array for guarded in (*inputs, *outputs)]
        sizes = [np.asarray(number, np.int32) for number in known.symbols]
        stats = loaded.launch([*memory[:bounds], *sizes, *memory[bounds:]])
    for kind, arrays in (("operand", inputs), ("result", outputs)):
        for i, guarded in enumerate(arrays):
            guarded.check(f"{kind} {i} of kernel {program.name}")
    return [_narrow(g.array, t) for g, t in zip(outputs, known.results, strict=True)], stats


def as_bound(value: Array) -> Array:
    """A bound of a grid (one integer of any dtype) as the kernel takes it: an int32 of rank 0; far ones saturate.

    Raises KernelError for anything else.
    """
    if value.size != 1 or not np.issubdtype(value.dtype, np.integer):
        raise KernelError(
            "a bound of the grid is not an integer",
            got=f"{value.dtype}{list(value.shape)}",
            expected="an int, or an array of one integer",
        )
    return np.asarray(max(-1, min(int(value.reshape(())), 2**31 - 1)), np.int32)


def _narrow(array: Array, type_: ArrayType) -> Array:
    return np.ascontiguousarray(array).reshape(type_.shape).astype(type_.dtype, copy=False)


def _check_count(program: Program, operands: Sequence[Array]) -> None:
    if len(operands) != len(given_types(program)):
        raise KernelError(
            f"kernel {program.name!r} was given the wrong number of arrays",
            got=len(operands),
            expected=len(given_types(program)),
        )


def _check_operands(name: str, arrays: Sequence[Array], types: Sequence[ArrayType], told: int) -> None:
    for i, (array, type_) in enumerate(zip(arrays, types, strict=True)):
        if array.shape != type_.shape or array.dtype != type_.dtype:
            raise KernelError(
                f"array {i - told} does not fit kernel {name!r}",
                got=f"{array.dtype}{list(array.shape)}",
                expected=f"{type_.dtype}{list(type_.shape)}",
                hint="compile the kernel again for arrays of these shapes and dtypes",
            )
