"""The block's shared memory: planned allocations, then a region for exchanges between threads.

All of it is one extern array.  The exchange region is used over and over, so each use starts with a
barrier: threads may still be reading what the use before left there.  Only the first use of a kernel, outside
of any loop or branch, needs none.
"""

from __future__ import annotations

from dataclasses import dataclass

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.nvvm import emit

LIMIT_BYTES = 227 * 1024
"""The most dynamic shared memory that a block may have on Hopper (CUDA's compute capabilities table)."""
ALIGNMENT = 16
MIN_WINDOW_BYTES = 1024


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
    entry_block: ir.Block | None = None
    exchange_bytes: int = 0
    _used: bool = False

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
        """A pointer to `size_bytes` bytes that no thread uses any more; emits the barrier that this takes."""
        self.exchange_bytes = max(self.exchange_bytes, -(-size_bytes // ALIGNMENT) * ALIGNMENT)
        straight = ir.InsertionPoint.current.block == self.entry_block
        if self._used or not straight:
            emit.barrier()
        self._used = True
        return emit.gep(self.base, self.start_bytes)
