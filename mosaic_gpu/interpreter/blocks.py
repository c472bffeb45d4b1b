"""The blocks of whole arrays that a kernel's body works on, one an operand and grid step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaic_gpu.errors import KernelError, UnsupportedError
from mosaic_gpu.interpreter.code import Code, code_of
from mosaic_gpu.interpreter.memory import Box, Memory, Places
from mosaic_gpu.lowering.jaxpr import compat


@dataclass(frozen=True)
class BlockMap:
    """How the block of a grid step is found.

    Attributes:
      code: of the index map: grid indices and index operands to one index a dimension.
      sizes: of the block.
      factors, shifts: an index times its factor minus its shift is the first element.
      dropped: dimensions that the kernel does not see.
      origin: for messages.
    """

    code: Code
    sizes: tuple[int, ...]
    factors: tuple[int, ...]
    shifts: tuple[int, ...]
    dropped: tuple[int, ...]
    origin: str

    @classmethod
    def of(cls, block: Any, num_indices: int) -> BlockMap | None:
        """Of Pallas' BlockMapping; None where the block is the array, wherever the grid is.

        Raises UnsupportedError for unsupported kinds of dimensions, KernelError for a rank that does not fit.
        """
        kinds = [compat.block_kind(dim) for dim in block.block_shape]
        for kind in kinds:
            if kind not in ("Blocked", "Element", "Squeezed"):
                raise UnsupportedError(
                    f"the block of {block.origin} has a pl.{kind}, which is not supported",
                    expected="an int, None, pl.Blocked, pl.Squeezed or pl.Element",
                )
        shape = tuple(block.array_aval.shape)
        if len(kinds) != len(shape):
            raise KernelError(
                f"the block of {block.origin} has another rank than the array",
                got=block.block_shape,
                expected=f"{len(shape)} sizes",
            )
        dims = list(zip(kinds, block.block_shape, strict=True))
        return cls(
            code_of(block.index_map_jaxpr),
            tuple(1 if kind == "Squeezed" else int(dim.block_size) for kind, dim in dims),
            tuple(int(dim.block_size) if kind == "Blocked" else 1 for kind, dim in dims),
            tuple(int(dim.padding[0]) if kind == "Element" else 0 for kind, dim in dims),
            tuple(d for d, kind in enumerate(kinds) if kind == "Squeezed"),
            str(block.origin),
        )

    def view(self, thread: Any, memory: Memory, step: Sequence[int], indices: Sequence[Any]) -> Any:
        """The block of `memory` at grid step `step`; what is outside of the array reads as zero and is not written."""
        whole = memory.whole()
        if not whole.shape:
            return whole
        found = self.code.run(thread, [*(np.int32(i) for i in step), *indices])
        starts = [int(i) * f - s for i, f, s in zip(found, self.factors, self.shifts, strict=True)]
        if all(0 <= a <= n - size for a, size, n in zip(starts, self.sizes, whole.shape, strict=True)):
            return self._inside(whole, starts)
        return self._overhanging(whole, starts)

    def _inside(self, whole: Box, starts: Sequence[int]) -> Box:
        offset = sum(a * s for a, s in zip(starts, whole.strides, strict=True))
        kept = [d for d in range(len(starts)) if d not in self.dropped]
        return Box(
            whole.memory, whole.dtype, tuple(self.sizes[d] for d in kept), offset, tuple(whole.strides[d] for d in kept)
        )

    def _overhanging(self, whole: Box, starts: Sequence[int]) -> Places:
        rank = len(starts)
        numbers: Any = np.zeros((), np.int64)
        inside: Any = np.bool_(True)
        for d, (start, size, extent) in enumerate(zip(starts, self.sizes, whole.shape, strict=True)):
            places = (start + np.arange(size)).reshape([-1 if e == d else 1 for e in range(rank)])
            numbers = numbers + places * (whole.strides[d] // whole.dtype.itemsize)
            inside = inside & (places >= 0) & (places < extent)
        numbers = np.where(np.broadcast_to(inside, self.sizes), np.broadcast_to(numbers, self.sizes), -1)
        return Places(
            whole.memory, whole.dtype, numbers.reshape([n for d, n in enumerate(self.sizes) if d not in self.dropped])
        )
