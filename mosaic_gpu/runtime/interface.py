"""What a compiled kernel is to a runtime, and what a runtime is to the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mosaic_gpu.lowering.tensor_maps import TensorMapFacts
from mosaic_gpu.runtime.dtypes import name_of
from mosaic_gpu.runtime.sizes import Size

Array = np.ndarray[Any, np.dtype[Any]]

_NARROW = {"int4": np.dtype(np.int8), "uint4": np.dtype(np.uint8)}


@dataclass(frozen=True)
class ArrayType:
    """Shape and dtype of a whole array that a kernel takes or gives; a size may be a `Size`."""

    shape: tuple[Any, ...]
    dtype: np.dtype[Any]

    def at(self, variables: Mapping[str, int]) -> ArrayType:
        """The type where dimension variables have these values; KeyError for one that has none."""
        sizes = (size.at(variables) if isinstance(size, Size) else size for size in self.shape)
        return ArrayType(tuple(sizes), self.dtype)

    @property
    def memory_dtype(self) -> np.dtype[Any]:
        """The dtype of the elements in a kernel's memory: 4-bit integers take a byte each."""
        return _NARROW.get(name_of(self.dtype), self.dtype)


@dataclass(frozen=True)
class Program:
    """A compiled kernel, ready to be loaded.

    Attributes:
      name: the kernel's name.
      ptx: the code.
      entry: name of the entry point; its parameters are one pointer an operand, then one a result.
      grid, block: blocks and threads a block, along x, y, z.  Of a kernel that walks over its tiles, one block for each
        multiprocessor of the target; any number does.
      shared_bytes: dynamic shared memory a block.
      operands, results: the arrays.
      aliases: pairs (operand, result) that are one memory.
      bound_sizes: one for each bound of the grid among the operands (int32, the first ones): the expression that it is,
        or None where only the caller knows it.
      symbols: sizes in the arrays' shapes that are not known; the entry gets each as an int32 of rank 0, behind the
        bounds.
      tensor_maps: of the entry's parameters behind the pointers, in order.
      cluster: blocks of a cluster along x, y, z.
      programmatic: whether it may start before its predecessor on the stream has ended.
    """

    name: str
    ptx: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    operands: tuple[ArrayType, ...]
    results: tuple[ArrayType, ...]
    aliases: tuple[tuple[int, int], ...]
    bound_sizes: tuple[Size | None, ...] = ()
    symbols: tuple[Size, ...] = ()
    tensor_maps: tuple[TensorMapFacts, ...] = ()
    cluster: tuple[int, int, int] = (1, 1, 1)
    programmatic: bool = False


@dataclass(frozen=True)
class RunStats:
    """What a run tells besides its results.

    Attributes:
      instructions: instructions run, counted once a warp; 0 where the runtime does not count.
      printed: what the kernel printed, one text a print; it went to standard output as well.
    """

    instructions: int = 0
    printed: tuple[str, ...] = ()


class LoadedProgram(Protocol):
    """A program that is ready to run."""

    def launch(self, arrays: Sequence[Array]) -> RunStats:
        """Runs it once; `arrays` are the memory behind the entry's pointers, written in place."""
        ...


class Runtime(Protocol):
    """Something that runs programs."""

    def load(self, program: Program) -> LoadedProgram:
        """Makes `program` ready; raises UnsupportedError for code that this runtime cannot run."""
        ...
