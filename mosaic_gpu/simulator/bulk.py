"""Bulk copies on their way: cp.async.bulk, its tensor and reduction forms, st.async and red.async.

A copy has a source, which is read as late as it may, and destinations.  Copies that an mbarrier completes land
when nothing else can run, one after the other (with a seed, in another order and sooner).  Those of a bulk group
read shared memory at the wait_group that covers them (.read or not), and write global memory at a wait_group
without .read, or when the kernel ends.  Bytes of shared memory that a copy is on its way to count as not written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.simulator import halves
from mosaic_gpu.simulator.copies import IN_FLIGHT
from mosaic_gpu.simulator.descriptors import CHUNK_BYTES, swizzled
from mosaic_gpu.simulator.frame import Frame
from mosaic_gpu.simulator.memory import Region
from mosaic_gpu.simulator.ptx import TYPES, Instruction

if TYPE_CHECKING:
    from mosaic_gpu.simulator.wave import Wave

Array = np.ndarray[Any, np.dtype[Any]]
#: Which of a copy's bytes come to be written; None for all.
Needed = Callable[[], Array | None]
_U64 = np.dtype(np.uint64)


@dataclass(frozen=True)
class Reduction:
    """What a reducing copy does with what is there: `name` add, min, .. on elements of the PTX type `kind`."""

    name: str
    kind: str

    def combine(self, old: Array, new: Array) -> Array:
        """Arrays of unsigned elements of the type's width, bit patterns in and out."""
        kind = self.kind
        if self.name in ("inc", "dec"):
            return _wrap(self.name, old, new)
        ufunc = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
                 "xor": np.bitwise_xor}[self.name]  # fmt: skip
        if kind in ("f16", "bf16"):
            chosen: Any = {"min": np.fmin, "max": np.fmax}.get(self.name, ufunc)
            return halves.narrow(chosen(halves.widen(old, kind), halves.widen(new, kind)), kind)
        dtype = TYPES[kind]
        result: Array = ufunc(old.view(dtype), new.view(dtype)).view(old.dtype)
        return result


def _wrap(name: str, old: Array, new: Array) -> Array:
    one = old.dtype.type(1)
    if name == "inc":
        return np.asarray(np.where(old >= new, old.dtype.type(0), old + one))
    return np.asarray(np.where((old == 0) | (old > new), new, old - one))


class CopyError(Exception):
    """A fault of a copy, before it is known whose it is."""


class Place(Protocol):
    """Where a copy comes from or goes to."""

    def read(self, needed: Needed | None = None) -> Array:
        """The bytes, in the order of the copy; those that are `needed` (all, if not given) must have been
        written."""

    def needed(self) -> Array | None:
        """Which of a copy's bytes come to be written here; None for all."""

    def write(self, data: Array, reduction: Reduction | None) -> None:
        """Writes the bytes, or combines them with what is there."""


@dataclass(frozen=True)
class SharedSpan:
    """`size` bytes from `start` on in the shared memory of a resident block; `swizzle` address bits are exchanged."""

    region: Region
    block: int
    start: int
    size: int
    swizzle: int = 0

    def _index(self) -> Any:
        base = self.block * self.region.stride
        if self.swizzle:
            address = swizzled(self.start + CHUNK_BYTES * np.arange(self.size // CHUNK_BYTES), self.swizzle)
            return (base + address) // CHUNK_BYTES
        return slice(base + self.start, base + self.start + self.size)

    def _rows(self, *, shadow: bool = False) -> Array:
        """The bytes of shared memory, in chunks if there is a swizzle."""
        if self.swizzle:
            return self.region.typed(_U64, 2, shadow=shadow)
        return self.region.typed(TYPES["b8"], 1, shadow=shadow)

    def needed(self) -> Array | None:
        return None

    def read(self, needed: Needed | None = None) -> Array:
        index = self._index()
        if self.region.shadow is not None and not (self._rows(shadow=True)[index] == self._full()).all():
            self._check_written(index, needed)
        return np.ascontiguousarray(self._rows()[index]).view(np.uint8).reshape(-1).copy()

    def _check_written(self, index: Any, needed: Needed | None) -> None:
        mask = needed() if needed is not None else None
        state = np.ascontiguousarray(self._rows(shadow=True)[index]).view(np.uint8).reshape(-1)
        bad = (state != 0xFF) if mask is None else (state != 0xFF) & mask
        if bad.any():
            raise CopyError(
                f"reads shared memory at bytes {self.start} to {self.start + self.size - 1}, not all of them written: "
                f"{int(np.count_nonzero(bad))} were not, the first of them byte {int(np.argmax(bad))} of the copy"
            )

    def _full(self) -> Any:
        return np.uint64((1 << 64) - 1) if self.swizzle else np.uint8(0xFF)

    def write(self, data: Array, reduction: Reduction | None) -> None:
        index, rows = self._index(), self._rows()
        if reduction is not None:
            dtype = np.dtype(f"u{TYPES[reduction.kind].itemsize}")
            data = reduction.combine(self.read().view(dtype), data.view(dtype)).view(np.uint8)
        rows[index] = data.view(rows.dtype).reshape(-1, 2) if self.swizzle else data
        if self.region.shadow is not None:
            self._rows(shadow=True)[index] = self._full()

    def expect(self) -> None:
        """Marks the bytes as on their way."""
        if self.region.shadow is not None:
            mark = IN_FLIGHT * 0x0101010101010101 if self.swizzle else IN_FLIGHT
            rows = self._rows(shadow=True)
            rows[self._index()] = rows.dtype.type(mark)


@dataclass(frozen=True)
class GlobalSpan:
    """`size` bytes of a region from `start` on; `mask` says which byte of each 16 is written."""

    region: Region
    start: int
    size: int
    mask: int = 0xFFFF

    def needed(self) -> Array | None:
        return None if self.mask == 0xFFFF else (self.mask >> (np.arange(self.size) % 16)) & 1 == 1

    def read(self, needed: Needed | None = None) -> Array:
        return self.region.data[self.start : self.start + self.size].copy()

    def write(self, data: Array, reduction: Reduction | None) -> None:
        window = self.region.data[self.start : self.start + self.size]
        if reduction is not None:
            dtype = np.dtype(f"u{TYPES[reduction.kind].itemsize}")
            data = reduction.combine(window.copy().view(dtype), data.view(dtype)).view(np.uint8)
        chosen = self.needed()
        if chosen is None:
            window[...] = data
        else:
            window[chosen] = data[chosen]


@dataclass(frozen=True)
class Value:
    """Bytes that come from registers."""

    data: Array

    def needed(self) -> Array | None:
        return None

    def read(self, needed: Needed | None = None) -> Array:
        return self.data

    def write(self, data: Array, reduction: Reduction | None) -> None:
        raise AssertionError("registers are no destination of a copy")


@dataclass
class Flight:
    """One copy of one thread.  `barriers` are the mbarriers that count its bytes, one per destination; a copy
    of a bulk group has none, and a `group`.  `data` is what has been read already."""

    instruction: Instruction
    thread: int
    size: int
    source: Place
    destinations: tuple[Place, ...]
    barriers: tuple[int, ...] = ()
    reduction: Reduction | None = None
    group: int = -1
    data: Array | None = None

    def fetch(self, wave: Wave) -> None:
        """Reads the source, once."""
        if self.data is None:
            try:
                needed = self.destinations[0].needed if len(self.destinations) == 1 else None
                self.data = self.source.read(needed)
            except CopyError as fault:
                raise self.error(wave, str(fault)) from None

    def land(self, wave: Wave) -> None:
        """Reads, writes and counts the bytes."""
        self.fetch(wave)
        assert self.data is not None
        for destination in self.destinations:
            try:
                destination.write(self.data, self.reduction)
            except CopyError as fault:
                raise self.error(wave, str(fault)) from None
            if isinstance(destination, SharedSpan):
                if wave.races is not None:
                    self.note(wave, destination, writes=True, over=True)
            elif (region := getattr(destination, "region", None)) is not None and region.shadow is not None:
                region.shadow.fill(0xFF)  # which of a buffer's bytes a copy has written is not followed
        for index in self.barriers:
            if wave.races is not None:
                wave.races.finish_copy(index, self.thread)
            wave.mbarriers.update(index, lambda what: self.error(wave, what), tx=-self.size)

    def note(self, wave: Wave, span: SharedSpan, *, writes: bool, over: bool) -> None:
        """Tells the race detector that the use of shared memory begins, or is over."""
        assert wave.races is not None
        copies = wave.races.copies
        tell = copies.end if over else copies.begin
        tell(self.instruction, self.thread, copies.span(span.block, span.start, span.size), 1, writes=writes)

    def error(self, wave: Wave, what: str) -> SimulationError:
        """A fault of the thread that started the copy."""
        return Frame(wave, np.array([self.thread]), 1, wave.slots).error(self.instruction, f"the copy {what}", 0)


@dataclass
class CopyArrival:
    """cp.async.mbarrier.arrive of some threads: arrives when their earlier cp.async have landed."""

    instruction: Instruction
    threads: Array
    indexes: Array

    def land(self, wave: Wave) -> None:
        """Lands the threads' copies and arrives."""
        wave.copies.wait(self.threads, -1)
        for thread, index in zip(self.threads.tolist(), self.indexes.tolist(), strict=True):
            frame = Frame(wave, np.array([thread]), 1, wave.slots)
            if wave.races is not None:
                wave.races.arrive(index, frame.ids)
            wave.mbarriers.update(index, lambda what, f=frame: f.error(self.instruction, what, 0), arrivals=1)  # type: ignore[misc]


@dataclass
class BulkCopies:
    """The copies in flight of a wave.  `flying` land on their own; `stores` wait for their group."""

    wave: Wave
    flying: list[list[Flight] | CopyArrival] = field(default_factory=list)
    stores: list[Flight] = field(default_factory=list)
    group: Array = field(init=False)

    def __post_init__(self) -> None:
        self.group = np.zeros(self.wave.T, np.int64)

    def start(self, flights: list[Flight]) -> None:
        """Copies that an instruction starts, for all its threads; an mbarrier completes them."""
        for flight in flights:
            for destination in flight.destinations:
                if isinstance(destination, SharedSpan) and flight.reduction is None:
                    if self.wave.races is not None:
                        flight.note(self.wave, destination, writes=True, over=False)
                    destination.expect()
            if self.wave.races is not None and isinstance(flight.source, SharedSpan):
                flight.note(self.wave, flight.source, writes=False, over=False)
        self.flying.append(flights)
        if self.wave.timing.early():
            self.advance()

    def store(self, flights: list[Flight]) -> None:
        """Copies of the bulk groups that their threads are filling."""
        for flight in flights:
            flight.group = int(self.group[flight.thread])
            if self.wave.races is not None and isinstance(flight.source, SharedSpan):
                flight.note(self.wave, flight.source, writes=False, over=False)
            if self.wave.timing.early():
                flight.fetch(self.wave)
        self.stores += flights

    def advance(self) -> bool:
        """Lands the copies of one instruction; False if none is in flight."""
        if not self.flying:
            return False
        some = self.flying.pop(self.wave.timing.choose(len(self.flying)))
        if isinstance(some, CopyArrival):
            some.land(self.wave)
            return True
        for flight in some:
            flight.land(self.wave)
        return True

    def commit(self, ids: Array) -> None:
        """cp.async.bulk.commit_group."""
        self.group[ids] += 1

    def wait(self, ids: Array, most: int, *, read_only: bool) -> None:
        """Completes the groups of these threads except the `most` youngest, or only what they read."""
        waits = np.zeros(self.wave.T, np.bool_)
        waits[ids] = True
        left = []
        for flight in self.stores:
            done = waits[flight.thread] and flight.group < self.group[flight.thread] - most
            if done:
                flight.fetch(self.wave)
                self._source_free(flight)
            if done and not read_only:
                flight.land(self.wave)
            else:
                left.append(flight)
        self.stores = left

    def _source_free(self, flight: Flight) -> None:
        """The thread knows that its copy has read its source."""
        races = self.wave.races
        if races is not None and isinstance(flight.source, SharedSpan):
            flight.note(self.wave, flight.source, writes=False, over=True)
            races.finished(flight.thread, self.wave.warp_of[[flight.thread]])
            races.tick()

    def finish(self) -> None:
        """The kernel has ended: what was read is written; a copy that still uses shared memory is a fault."""
        for some in self.flying:
            if not isinstance(some, CopyArrival):
                raise some[0].error(self.wave, "to shared memory is in flight when the kernel ends")
        for flight in self.stores:
            if flight.data is None:
                raise flight.error(self.wave, "has yet to read its shared memory when the kernel ends")
            flight.land(self.wave)
        self.stores = []
