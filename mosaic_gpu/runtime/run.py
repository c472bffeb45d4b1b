"""One run of a kernel on host memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from mosaic_gpu.errors import KernelError
from mosaic_gpu.lowering.jaxpr import compat
from mosaic_gpu.runtime.buffers import GuardedArray, uninitialised
from mosaic_gpu.runtime.interface import Array, ArrayType, LoadedProgram, Program, RunStats


def run(
    program: Program, loaded: LoadedProgram, operands: Sequence[Array], poison: int | None = None
) -> tuple[list[Array], RunStats]:
    """The results of `program` for `operands`, which stay as they are, and what the run tells.

    A result that aliases an operand starts as a copy of it, any other as `uninitialised(type, poison)`; with
    no block in the grid nothing runs and the results stay like that.

    Raises KernelError where `operands` are not of the program's types.
    """
    program, sizes = _with_known_sizes(program, operands)
    _check_operands(program, operands)
    inputs = [
        GuardedArray(a.astype(t.memory_dtype, copy=False)) for a, t in zip(operands, program.operands, strict=True)
    ]
    aliased = {result: inputs[operand] for operand, result in program.aliases}
    outputs = [aliased.get(i) or GuardedArray(uninitialised(t, poison)) for i, t in enumerate(program.results)]
    stats = RunStats()
    if all(program.grid):
        memory = [guarded.array for guarded in (*inputs, *outputs)]
        stats = loaded.launch([*memory[: program.num_bounds], *sizes, *memory[program.num_bounds :]])
    for kind, arrays in (("operand", inputs), ("result", outputs)):
        for i, guarded in enumerate(arrays):
            guarded.check(f"{kind} {i} of kernel {program.name}")
    return [_narrow(g.array, t) for g, t in zip(outputs, program.results, strict=True)], stats


def _with_known_sizes(program: Program, operands: Sequence[Array]) -> tuple[Program, list[Array]]:
    """The program for arrays of the operands' sizes, and the values of its symbolic ones."""
    if not program.symbols or len(operands) != len(program.operands):
        return program, []
    variables = compat.solve_sizes([t.shape for t in program.operands], [a.shape for a in operands])

    def known(type_: ArrayType) -> ArrayType:
        return ArrayType(tuple(compat.size_at(size, variables) for size in type_.shape), type_.dtype)

    try:
        sizes = [as_bound(np.asarray(compat.size_at(size, variables))) for size in program.symbols]
        types = [tuple(known(t) for t in side) for side in (program.operands, program.results)]
    except KeyError as error:
        raise KernelError(
            f"the sizes of the arrays do not tell dimension variable {error} of kernel {program.name!r}",
            got=[a.shape for a in operands],
            expected=[t.shape for t in program.operands],
        ) from None
    return dataclasses.replace(program, operands=types[0], results=types[1]), sizes


def as_bound(value: Array) -> Array:
    """A bound of a grid (one integer of any dtype) as the kernel takes it: an int32 of rank 0; far ones saturate."""
    return np.asarray(max(-1, min(int(value.reshape(())), 2**31 - 1)), np.int32)


def _narrow(array: Array, type_: ArrayType) -> Array:
    return np.ascontiguousarray(array).reshape(type_.shape).astype(type_.dtype, copy=False)


def _check_operands(program: Program, operands: Sequence[Array]) -> None:
    if len(operands) != len(program.operands):
        raise KernelError(
            f"kernel {program.name!r} was given the wrong number of arrays",
            got=len(operands),
            expected=len(program.operands),
        )
    for i, (array, type_) in enumerate(zip(operands, program.operands, strict=True)):
        if array.shape != type_.shape or array.dtype != type_.dtype:
            raise KernelError(
                f"array {i} does not fit kernel {program.name!r}",
                got=f"{array.dtype}{list(array.shape)}",
                expected=f"{type_.dtype}{list(type_.shape)}",
                hint="compile the kernel again for arrays of these shapes and dtypes",
            )
