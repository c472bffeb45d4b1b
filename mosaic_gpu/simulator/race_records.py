"""Who last touched each unit of memory; see `races.py`.

A record is one 64-bit number, 0 for none:

    bits 40-62   time; FUTURE while an asynchronous access is under way
    bits 27-39   number of the access among the kernel's (0: one without a number)
    bit  26      the access is of the async proxy: a bulk copy, or an operand of wgmma
    bit  25      of a read: other warps have read the unit too, and their reads are kept beside it
    bit  24      the access is strong: an atomic, or volatile, relaxed, acquire, release
    bits 0-23    the thread's number in its wave
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mosaic_gpu.simulator.memory import Access

Array = np.ndarray[Any, np.dtype[Any]]
TIME_SHIFT = 40
_ACCESS_SHIFT = 27
_ACCESS_MASK = (1 << TIME_SHIFT - _ACCESS_SHIFT) - 1
STRONG = 1 << 24
SEVERAL = 1 << 25
ASYNC = 1 << 26
FUTURE = (1 << 22) - 1
THREAD_MASK = STRONG - 1
#: The widest access.
_WIDEST = 32


def access_bits(access: Access) -> int:
    """The part of a record that says which access it was."""
    return min(access.number, _ACCESS_MASK) << _ACCESS_SHIFT | (STRONG if access.strong else 0)


def access_number(record: Any) -> Any:
    """The number of the access of a record, or of an array of them."""
    return record >> _ACCESS_SHIFT & _ACCESS_MASK


def _rows(array: Array, k: int) -> Array:
    return array if k == 1 else array.reshape(-1, k)


class SharedRecords:
    """The records of shared memory of all blocks: the last write and the last read of each unit, and where several
    warps of the block (or of its cluster) read it, the last read by each.  `k` is the number of units of an access."""

    def __init__(self, nbytes: int, unit: int, columns: int) -> None:
        self.units, self.columns = nbytes // unit, columns
        self._written = np.zeros(self.units, np.int64)
        self._read = np.zeros(self.units, np.int64)
        self._reads = np.zeros(columns * self.units, np.int64)

    def written(self, k: int) -> Array:
        """The last writes."""
        return _rows(self._written, k)

    def read(self, k: int) -> Array:
        """The last reads."""
        return _rows(self._read, k)

    def reads(self, k: int, column: int) -> Array:
        """The last reads by a warp (or by its asynchronous accesses), of the units marked with SEVERAL."""
        return _rows(self._reads[column * self.units : (column + 1) * self.units], k)

    def keep(self, k: int, columns: Array, index: Array, records: Array) -> None:
        """Keeps the reads `records` beside the last read."""
        table = _rows(self._reads, k)
        flat = columns * (self.units // k) + (index if records.ndim == 1 else index[:, None])
        if records.ndim == 1:
            table[flat] = records
        else:
            table[flat, np.arange(k)] = records


class GlobalRecords:
    """The records of a buffer: of each unit the last write, the last read, and the last read by another block than that
    one's, so that of whatever block writes then a read by another one is known."""

    def __init__(self, nbytes: int, unit: int) -> None:
        self.units = (nbytes + _WIDEST) // _WIDEST * (_WIDEST // unit)
        self.was_written = False
        self._written: Array | None = None
        self._reads: Array | None = None
        self._others: Array | None = None

    def written(self, k: int) -> Array:
        """The last writes."""
        if self._written is None:
            self._written = np.zeros(self.units, np.int64)
        return _rows(self._written, k)

    def reads(self, k: int) -> Array:
        """The last reads."""
        if self._reads is None:
            self._reads = np.zeros(self.units, np.int64)
        return _rows(self._reads, k)

    def other_reads(self, k: int) -> list[Array]:
        """The last reads by other blocks than those of the last reads, where there are any."""
        return [] if self._others is None else [_rows(self._others, k)]

    def mark_read(self, k: int, where: Any, ids: Array, bits: int, block_of: Callable[[Array], Array]) -> None:
        """The threads read at `where`; `bits` is the rest of their record.

        `block_of`: the blocks of records, a number of its own for those of earlier waves.
        """
        table, stamps = self.reads(k), ids + bits
        stamps = stamps if k == 1 else stamps[:, None]
        is_one = not isinstance(where, slice) and len(where) == 1
        old = np.array(table[where])
        table[where] = stamps[-1:] if is_one else stamps
        if isinstance(where, slice) and not old.any():
            return  # a unit a thread, which nobody read before
        last = block_of(table[where])
        beside = np.where(block_of(stamps) != last, stamps, 0)
        found = np.where(beside != 0, beside, np.where(block_of(old) != last, old, 0))
        chosen = np.flatnonzero(found if found.ndim == 1 else found.any(axis=1))
        if chosen.size:
            self._mark_others(k, where, chosen[:1] if is_one else chosen, found)

    def _mark_others(self, k: int, where: Any, chosen: Array, found: Array) -> None:
        if self._others is None:
            self._others = np.zeros(self.units, np.int64)
        others = _rows(self._others, k)
        places = np.arange(where.start, where.stop, where.step) if isinstance(where, slice) else np.asarray(where)
        index = places if len(places) == 1 else places[chosen]
        others[index] = np.where(found[chosen] != 0, found[chosen], others[index])
