"""A kernel as the driver takes it: a cubin and how it is launched."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from mosaic_gpu.lowering.tensor_maps import TensorMapFacts
from mosaic_gpu.runtime.dtypes import name_of, named
from mosaic_gpu.runtime.interface import ArrayType
from mosaic_gpu.runtime.sizes import Size

PERSISTENT = -1
"""As the grid's x: any number of blocks will do, best as many as run on the GPU at once."""

POINTER_ALIGNMENT = 16
"""Bytes that divide the address of every array, as the compiled code expects."""


@dataclass(frozen=True)
class GpuKernel:
    """A compiled kernel.

    Its parameters: one pointer a bound of the grid, one a symbol, one an operand behind the bounds, one a result; then
    the tensor maps.

    Attributes:
      name: the kernel's name, for messages.
      entry: name of the code in the cubin.
      target: architecture that the cubin is for, such as "sm_90a".
      cubin: the binary.
      grid, block, cluster: blocks, threads of a block, blocks of a cluster; along x, y, z.  A grid with a zero launches
        nothing; x may be PERSISTENT.
      shared_bytes: dynamic shared memory of a block.
      operands, results: the arrays; the first operands are the bounds of the grid that are computed.
      aliases: pairs (operand, result) that are one memory.
      bound_sizes, symbols: see `Sized`.
      tensor_maps: of the parameters behind the pointers, in order.
      programmatic: whether it may start before its predecessor on the stream ends (PTX ISA, `griddepcontrol`).
    """

    name: str
    entry: str
    target: str
    cubin: bytes
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    operands: tuple[ArrayType, ...]
    results: tuple[ArrayType, ...]
    aliases: tuple[tuple[int, int], ...] = ()
    bound_sizes: tuple[Size | None, ...] = ()
    symbols: tuple[Size, ...] = ()
    tensor_maps: tuple[TensorMapFacts, ...] = ()
    cluster: tuple[int, int, int] = (1, 1, 1)
    programmatic: bool = False

    def facts(self) -> dict[str, Any]:
        """All but the cubin, as JSON can hold it."""
        arrays = {key: [_text(a) for a in getattr(self, key)] for key in ("operands", "results")}
        maps = [asdict(m) for m in self.tensor_maps]
        sizes = {key: [_plain(size) for size in getattr(self, key)] for key in ("bound_sizes", "symbols")}
        plain = ("name", "entry", "target", "grid", "block", "cluster", "shared_bytes", "aliases", "programmatic")
        return {key: getattr(self, key) for key in plain} | arrays | sizes | {"tensor_maps": maps}

    @staticmethod
    def of(facts: dict[str, Any], cubin: bytes) -> GpuKernel:
        """The kernel that `facts()` told, with its cubin."""
        fields = dict(facts)
        for key in ("grid", "block", "cluster"):
            fields[key] = tuple(fields[key])
        for key in ("operands", "results"):
            fields[key] = tuple(ArrayType(_sizes(shape), named(dtype)) for dtype, shape in fields[key])
        for key in ("bound_sizes", "symbols"):
            fields[key] = _sizes(fields[key])
        fields["aliases"] = tuple((operand, result) for operand, result in fields["aliases"])
        fields["tensor_maps"] = tuple(TensorMapFacts.of(m) for m in fields["tensor_maps"])
        return GpuKernel(cubin=cubin, **fields)


def _text(array: ArrayType) -> tuple[str, list[Any]]:
    return name_of(array.dtype), [_plain(size) for size in array.shape]


def _plain(size: Any) -> Any:
    return size.text if isinstance(size, Size) else size


def _sizes(plain: list[Any]) -> tuple[Any, ...]:
    return tuple(Size(size) if isinstance(size, str) else size for size in plain)
