"""The block's shared memory: planned allocations, then a region for exchanges between threads.

All of it is one extern array.  An exchange is: store, barrier, load.  The region is used over and over, and
threads may still be reading what the exchange before left there; so an exchange starts with a barrier, unless

* nothing was exchanged before, outside of any loop or branch, or a barrier stands between; or
* the exchange before is in the same straight-line code and has other bytes: whoever stores now has passed the
  barrier in its middle, and so has everybody read what was there before that.  Small exchanges take turns in this way.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.nvvm import emit

LIMIT_BYTES = 227 * 1024
"""The most dynamic shared memory that a block may have on Hopper (CUDA's compute capabilities table)."""
ALIGNMENT = 16
MIN_WINDOW_BYTES = 1024
TURNS_BYTES = 8192
"""Up to here exchanges spread, to save barriers; more would take shared memory from other blocks."""


@dataclass
class SharedMemory:
    """Shared memory of the kernel that is being converted.

    Attributes:
      base: pointer to its first byte.
      planned_bytes: the end of the planned allocations; the exchange region starts there.
      exchange_bytes: size of the exchange region so far.
      entry_block: the block of straight-line code in which a first exchange needs no barrier.
    """

    base: ir.Value
    planned_bytes: int
    entry_block: InitVar[ir.Block | None] = None
    exchange_bytes: int = 0
    _idle_block: ir.Block | None = None
    _last: tuple[ir.Block, int, int] | None = None

    def __post_init__(self, entry_block: ir.Block | None) -> None:
        self._idle_block = entry_block

    @property
    def start_bytes(self) -> int:
        """Where the exchange region starts."""
        return -(-self.planned_bytes // ALIGNMENT) * ALIGNMENT

    @property
    def total_bytes(self) -> int:
        """Shared memory that the kernel needs in all."""
        return self.start_bytes + self.exchange_bytes if self.exchange_bytes else self.planned_bytes

    def window_bytes(self) -> int:
        """How much one round of an exchange may take.

        Raises UnsupportedError where the planned allocations leave nearly nothing.
        """
        room = LIMIT_BYTES - self.start_bytes
        if room < MIN_WINDOW_BYTES:
            raise UnsupportedError(
                "scratch memory leaves no room for exchanges between threads",
                got=f"{self.planned_bytes} bytes planned",
                expected=f"at most {LIMIT_BYTES - MIN_WINDOW_BYTES} bytes",
                hint="use less scratch memory, or smaller blocks",
            )
        return room

    def exchange(self, size_bytes: int) -> ir.Value:
        """A pointer to `size_bytes` bytes that no thread uses any more; emits the barrier that this may take."""
        size, block = -(-size_bytes // ALIGNMENT) * ALIGNMENT, ir.InsertionPoint.current.block
        is_idle = self._idle_block is not None and self._idle_block == block
        start = 0 if is_idle else self._turn(size, block)
        if start is None:
            emit.barrier()
            start = 0
        self._idle_block, self._last = None, (block, start, size)
        self.exchange_bytes = max(self.exchange_bytes, start + size)
        return emit.gep(self.base, self.start_bytes + start)

    def note_barrier(self) -> None:
        """Says that all threads meet here, so that the next exchange of this block needs no barrier of its own."""
        self._idle_block = ir.InsertionPoint.current.block

    def _turn(self, size: int, block: ir.Block) -> int | None:
        """Where an exchange fits beside the last one, if that is in the same block; None where a barrier is needed."""
        if self._last is None or self._last[0] != block:
            return None
        _, start, last = self._last
        if start >= size:
            return 0
        end = start + last + size
        return start + last if end <= min(TURNS_BYTES, self.window_bytes()) else None
