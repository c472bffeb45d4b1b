"""Hazards of wgmma's registers (PTX ISA, "wgmma.fence", "wgmma.wait_group").

Between a wgmma.mma_async and the wait_group that covers it, no other instruction may touch its accumulators or write
its A registers; another wgmma may, in order.  And what other instructions wrote to these registers, and all of a
kernel's first wgmma, needs a wgmma.fence before the wgmma.

Only kernels with wgmma pay for this, by one look per basic block: at what is pending if the block uses any of the
registers that some wgmma uses.  Instructions under a predicate are taken to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.simulator.assignment import Effects, registers
from mosaic_gpu.simulator.ptx import Instruction, Vector

if TYPE_CHECKING:
    from mosaic_gpu.simulator.frame import Frame
    from mosaic_gpu.simulator.prepare import Block, Kernel
    from mosaic_gpu.simulator.wave import Wave

Array = np.ndarray[Any, np.dtype[Any]]
Key = tuple[str, str]


class _Use(NamedTuple):
    """What an instruction that is no wgmma does to registers of some wgmma."""

    instruction: Instruction
    reads: frozenset[Key]
    writes: frozenset[Key]


class RegisterHazards:
    """Watches a launch's wgmma registers."""

    def __init__(self, kernel: Kernel) -> None:
        self.accumulators: dict[int, frozenset[Key]] = {}
        self.inputs: dict[int, frozenset[Key]] = {}
        self.operations: dict[int, Instruction] = {}
        self.fences: set[int] = set()
        for block in kernel.blocks:
            for instruction in block.instructions:
                if instruction.opcode == "wgmma":
                    self._note(block, instruction)
        mine = frozenset().union(*self.accumulators.values(), *self.inputs.values())
        self.uses: dict[int, list[_Use]] = {}
        for block in kernel.blocks:
            found = [use for effects in block.effects if (use := _use(block.function, effects, mine)) is not None]
            if found:
                self.uses[block.index] = found

    @property
    def active(self) -> bool:
        """True if the kernel has a wgmma."""
        return bool(self.operations)

    def _note(self, block: Block, instruction: Instruction) -> None:
        if "fence" in instruction.modifiers[:1]:
            self.fences.add(block.index)
        if "mma_async" not in instruction.modifiers[:1]:
            return
        # A single register as the second operand is the descriptor of A, which is read at once.
        operands = [o if isinstance(o, Vector) else Vector(()) for o in instruction.operands[:2]]
        sides = [frozenset((block.function, r.name) for r in registers(o)) for o in operands]
        self.operations[block.index] = instruction
        self.accumulators[id(instruction)], self.inputs[id(instruction)] = sides

    def start_wave(self, wave: Wave) -> None:
        """New threads: none of them has executed a wgmma.fence."""
        self.wave = wave
        self.unfenced = np.ones(wave.T, np.bool_)
        self.dirty: dict[Key, Array] = {}

    def before(self, block: Block, frame: Frame) -> None:
        """A block begins: its first instruction may be a wgmma or a wgmma.fence."""
        if block.index in self.fences:
            self._fence(frame)
        instruction = self.operations.get(block.index)
        if instruction is None:
            return
        late = self.unfenced[frame.ids]
        if late.any():
            raise self._missing_fence(instruction, frame, late, "before the first wgmma")
        if self.dirty:
            for key in self.accumulators[id(instruction)] | self.inputs[id(instruction)]:
                late = self.dirty[key][frame.ids] if key in self.dirty else late
                if late.any():
                    raise self._missing_fence(instruction, frame, late, f"after {_name(key)} was written")

    def _missing_fence(self, instruction: Instruction, frame: Frame, late: Array, when: str) -> SimulationError:
        return frame.error(
            instruction, f"hazard: there is no wgmma.fence {when}", int(np.argmax(late)),
            hint="wgmma.fence.sync.aligned before the wgmma",
        )  # fmt: skip

    def _fence(self, frame: Frame) -> None:
        self.unfenced[frame.ids] = False
        for key, bits in list(self.dirty.items()):
            bits[frame.ids] = False
            if not bits.any():
                del self.dirty[key]

    def after(self, block: Block, frame: Frame) -> None:
        """The operations of a block have run, but not its ending."""
        uses = self.uses.get(block.index)
        if uses is None:
            return
        pending = self.wave.warpgroups.pending
        for use in uses:
            for operation in pending:
                key_of = id(operation.operation.instruction)
                clash = (use.reads | use.writes) & self.accumulators[key_of] or use.writes & self.inputs[key_of]
                if clash:
                    self._check(use, operation.operation.instruction, operation.threads, min(clash), frame)
            for key in use.writes:
                self.dirty.setdefault(key, np.zeros(self.wave.T, np.bool_))[frame.ids] = True

    def _check(self, use: _Use, operation: Instruction, threads: Array, key: Key, frame: Frame) -> None:
        busy = np.zeros(self.wave.T, np.bool_)
        busy[threads.reshape(-1)] = True
        bad = busy[frame.ids]
        if not bad.any():
            return
        line = f" ({operation.source})" if operation.source else ""
        what = "written" if key in use.writes else "read"
        raise frame.error(
            use.instruction,
            f"hazard: {_name(key)} is {what} while a wgmma is using it\n  the wgmma: PTX line {operation.line}{line}",
            int(np.argmax(bad)), hint="wgmma.wait_group before the registers are used",
        )  # fmt: skip


def _use(function: str, effects: Effects, mine: frozenset[Key]) -> _Use | None:
    if effects.instruction.opcode == "wgmma":
        return None
    reads = frozenset((function, name) for name in effects.reads) & mine
    writes = frozenset((function, name) for name in effects.writes) & mine
    return _Use(effects.instruction, reads, writes) if reads or writes else None


def _name(key: Key) -> str:
    return key[1].partition("#")[0]
