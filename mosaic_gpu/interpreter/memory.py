"""Memory of an interpreted kernel, and selections: which of its elements a reference names.

A `Memory` is an array of bytes in granules, each the size of one element.  Beside the bytes it keeps shadows, one
entry a granule: whether it was written, by which block, by whom and when (see `access`).

A reference is a `Selection` of a memory's granules.  What can be said by an offset and strides is a `Box`; anything
else (index arrays, a tiling that slices cut across) is `Places`, which lists the granules.  Both pick from any of the
memory's arrays, the bytes or a shadow, and put into them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

from mosaic_gpu.errors import SourceLine
from mosaic_gpu.interpreter.values import Array, is_float


@dataclass(eq=False)
class Memory:
    """An array in some space.

    Attributes:
      name: for messages.
      space: "gmem", "smem", "regs" or the name of another space.
      shape, dtype: as it is allocated.
      raw: its bytes; one more at least, so that an empty array has an address.
      written: a bool a granule; None where all of it counts as written.
      owner: the number of the block (from 1) that wrote a granule, 0 for none; None where nobody asks.
      reader: the same for reads; -1 for several blocks.
      writes: see `races`; None where nobody asks.
      block, key: the block that allocated it, and its place among the block's allocations.
      live: whether it is still allocated.
      source: the line that allocated it.
      pending: asynchronous copies that read or write it.
      base: the selection of all of it, where elements do not lie in their row-major order.
      views: selections that equations name again and again (see `indexing.Plan`).
    """

    name: str
    space: str
    shape: tuple[int, ...]
    dtype: Any
    granule: int
    raw: Array
    written: Array | None = None
    owner: Array | None = None
    reader: Array | None = None
    writes: Any = None
    block: Any = None
    key: Any = None
    live: bool = True
    source: SourceLine | None = None
    pending: list[Any] = field(default_factory=list)
    base: Box | None = None
    views: dict[Any, Any] = field(default_factory=dict)

    @property
    def granules(self) -> int:
        """The number of granules."""
        return int(math.prod(self.shape) * self.dtype.itemsize // self.granule)

    def whole(self) -> Box:
        """The selection of all of it."""
        if self.base is not None:
            return self.base
        strides = [self.dtype.itemsize] * len(self.shape)
        for d in reversed(range(len(self.shape) - 1)):
            strides[d] = strides[d + 1] * max(self.shape[d + 1], 1)
        return Box(self, self.dtype, self.shape, 0, tuple(strides))


def allocate(name: str, space: str, shape: tuple[int, ...], dtype: Any, granule: int | None = None) -> Memory:
    """Memory that holds zeros."""
    size = math.prod(shape) * dtype.itemsize
    return Memory(name, space, shape, dtype, granule or dtype.itemsize, np.zeros(size + 1, np.uint8))


def memory_of(name: str, space: str, value: Array) -> Memory:
    """Memory that starts as `value`."""
    memory = allocate(name, space, value.shape, value.dtype)
    memory.whole().array()[...] = value
    return memory


def fill(memory: Memory, how: str | int, random: Any) -> None:
    """Makes all of it uninitialised: what it holds is `how` of `InterpretParams.uninitialised`."""
    raw = memory.raw
    if how == "random":
        raw[:] = random.integers(0, 256, raw.shape, np.uint8)
        if memory.dtype == np.bool_:
            raw &= 1
    elif isinstance(how, int):
        raw[:] = how
    elif how == "nan":
        memory.whole().array()[...] = initial_value(memory.dtype)
    memory.written = np.zeros(memory.granules, np.bool_)


def initial_value(dtype: Any) -> Any:
    """An element of uninitialised memory: NaN, the least integer, False; as of the compiled path's results."""
    if dtype.kind == "V":
        return np.zeros((), dtype)
    if is_float(dtype):
        return np.asarray(np.nan).astype(dtype)
    if dtype in (np.dtype(np.bool_), np.dtype(np.int16)):
        return np.zeros((), dtype)
    return np.asarray(int(ml_dtypes.iinfo(dtype).min)).astype(dtype)


@dataclass(eq=False, slots=True)
class Box:
    """Elements at an offset and strides, both in bytes.  Never changed once made."""

    memory: Memory
    dtype: Any
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]

    @property
    def inside(self) -> None:
        """All of it is there."""
        return None

    def array(self) -> Array:
        """The elements themselves: an array that is the memory."""
        if 0 in self.shape:
            return np.zeros(self.shape, self.dtype)
        return np.ndarray(self.shape, self.dtype, self.memory.raw.data, self.offset, self.strides)

    def read(self) -> Any:
        """A copy of the elements; a scalar at rank 0."""
        return self.array()[()] if not self.shape else self.array().copy()

    def write(self, value: Any, mask: Any = None) -> None:
        """Writes, where `mask` holds."""
        if mask is None:
            self.array()[...] = value
        else:
            np.copyto(self.array(), value, where=mask)

    def pick(self, shadow: Array) -> Array:
        """The entries of a shadow: an array that is part of it, where granules are elements."""
        if 0 in self.shape:
            return np.zeros(self.shape, shadow.dtype)
        granule, size = self.memory.granule, shadow.dtype.itemsize
        if self.dtype.itemsize == granule:
            if size == granule:
                return np.ndarray(self.shape, shadow.dtype, shadow.data, self.offset, self.strides)
            strides = tuple([s // granule * size for s in self.strides])
            return np.ndarray(self.shape, shadow.dtype, shadow.data, self.offset // granule * size, strides)
        strides = tuple([s // granule * size for s in self.strides])
        count = self.dtype.itemsize // granule
        return np.ndarray(
            (*self.shape, count), shadow.dtype, shadow.data, self.offset // granule * size, (*strides, size)
        )

    def put(self, shadow: Array, value: Any, mask: Any = None) -> None:
        """Sets the entries of a shadow."""
        entries = self.pick(shadow)
        if 0 in self.shape:
            return
        if mask is None:
            entries[...] = value
        else:
            extra = entries.ndim - len(self.shape)
            entries[np.broadcast_to(np.reshape(mask, np.shape(mask) + (1,) * extra), entries.shape)] = value

    def transpose(self, permutation: tuple[int, ...]) -> Box:
        return replace(
            self,
            shape=tuple(self.shape[p] for p in permutation),
            strides=tuple(self.strides[p] for p in permutation),
        )

    def reshape(self, shape: tuple[int, ...]) -> Box | Places:
        """As a box where strides can say it."""
        if 0 in self.shape:
            return replace(self, shape=shape, strides=(0,) * len(shape))
        array = self.array()
        moved = array.reshape(shape)
        if np.may_share_memory(array, moved):
            return replace(self, shape=shape, strides=moved.strides)
        return self.places().reshape(shape)

    def places(self) -> Places:
        """The same elements, listed."""
        numbers: Any = np.asarray(self.offset // self.dtype.itemsize)
        for d, (n, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            along = np.arange(n) * (stride // self.dtype.itemsize)
            numbers = numbers + along.reshape([-1 if e == d else 1 for e in range(len(self.shape))])
        return Places(self.memory, self.dtype, np.broadcast_to(numbers, self.shape))


@dataclass(frozen=True)
class Places:
    """Elements listed by their number in memory; negative where there is none."""

    memory: Memory
    dtype: Any
    numbers: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the selection."""
        shape: tuple[int, ...] = self.numbers.shape
        return shape

    @property
    def inside(self) -> Any:
        """Where there is an element; None where there is one everywhere."""
        inside = self.numbers >= 0
        return None if inside.all() else inside

    def _elements(self) -> Array:
        size = self.dtype.itemsize
        return self.memory.raw[: len(self.memory.raw) // size * size].view(self.dtype)

    def read(self) -> Any:
        """A copy of the elements (anything, where there is none)."""
        if not len(self._elements()):
            return np.zeros(self.shape, self.dtype)
        return self._elements()[self.numbers]

    def write(self, value: Any, mask: Any = None) -> None:
        """Writes, where `mask` holds and there is an element."""
        where = self._where(mask)
        if where is None:
            self._elements()[self.numbers] = value
        else:
            self._elements()[self.numbers[where]] = np.broadcast_to(value, self.shape)[where]

    def _where(self, mask: Any) -> Any:
        masks = [np.broadcast_to(m, self.shape) for m in (mask, self.inside) if m is not None]
        return None if not masks else masks[0] if len(masks) == 1 else masks[0] & masks[1]

    def _granules(self) -> Array:
        count = self.dtype.itemsize // self.memory.granule
        return self.numbers if count == 1 else self.numbers[..., None] * count + np.arange(count)

    def pick(self, shadow: Array) -> Array:
        """A copy of the entries of a shadow (of any, where there is no element)."""
        picked: Array = shadow[self._granules()] if len(shadow) else np.zeros(self.shape, shadow.dtype)
        return picked

    def put(self, shadow: Array, value: Any, mask: Any = None) -> None:
        """Sets the entries of a shadow."""
        where, granules = self._where(mask), self._granules()
        shadow[granules if where is None else granules[where]] = value

    def transpose(self, permutation: tuple[int, ...]) -> Places:
        return replace(self, numbers=np.transpose(self.numbers, permutation))

    def reshape(self, shape: tuple[int, ...]) -> Places:
        return replace(self, numbers=np.reshape(self.numbers, shape))

    def places(self) -> Places:
        return self


Selection = Box | Places


@dataclass(frozen=True)
class Recast:
    """A selection read as another dtype of another size: the last dimension but one stretches or shrinks."""

    base: Selection
    dtype: Any
    shape: tuple[int, ...]

    @property
    def memory(self) -> Memory:
        """What it is a part of."""
        return self.base.memory

    @property
    def inside(self) -> None:
        """All of it is."""
        return None

    def read(self) -> Any:
        """A copy, recast."""
        return recast(self.base.read(), self.dtype)

    def write(self, value: Any, mask: Any = None) -> None:
        """Writes; with a mask, what is masked keeps its bits."""
        if mask is not None:
            value = np.where(mask, value, self.read())
        self.base.write(recast(np.broadcast_to(value, self.shape), self.base.dtype))

    def pick(self, shadow: Array) -> Array:
        return self.base.pick(shadow)

    def put(self, shadow: Array, value: Any, mask: Any = None) -> None:
        self.base.put(shadow, value)


def recast(value: Array, dtype: Any) -> Any:
    """Element (i, j) of a wide type is the elements (r*i .. r*i + r-1, j) of the narrow one, lowest bits first."""
    value = np.ascontiguousarray(value)
    old, new = value.dtype.itemsize, dtype.itemsize
    *rest, rows, columns = value.shape
    if old >= new:
        parts = value.reshape(*value.shape, 1).view(dtype)
        return np.swapaxes(parts, -1, -2).reshape(*rest, rows * (old // new), columns)
    ratio = new // old
    parts = np.swapaxes(value.reshape(*rest, rows // ratio, ratio, columns), -1, -2)
    return np.ascontiguousarray(parts).view(dtype).reshape(*rest, rows // ratio, columns)


def tile(memory: Memory, tilings: tuple[tuple[int, ...], ...]) -> None:
    """Lays the elements of tiled memory (.., M/X, N/Y, X, Y) out as rows of the untiled array, so that it can be
    seen untiled with strides alone.  How they lie on hardware makes no difference to what a kernel computes."""
    if len(tilings) != 1:
        return
    (tiling,) = tilings
    rank, shape = len(tiling), memory.shape
    lead = len(shape) - 2 * rank
    logical = [*shape[:lead], *(shape[lead + d] * shape[lead + rank + d] for d in range(rank))]
    strides = [memory.dtype.itemsize] * len(logical)
    for d in reversed(range(len(logical) - 1)):
        strides[d] = strides[d + 1] * logical[d + 1]
    tiles = [strides[lead + d] * shape[lead + rank + d] for d in range(rank)]
    memory.base = Box(memory, memory.dtype, shape, 0, (*strides[:lead], *tiles, *strides[lead:]))
