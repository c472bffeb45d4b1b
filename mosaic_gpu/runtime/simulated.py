"""The runtime of machines without a GPU: the project's own PTX simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mosaic_gpu.runtime.interface import Array, LoadedProgram, Program, RunStats

if TYPE_CHECKING:
    from mosaic_gpu.simulator import Module


@dataclass(frozen=True)
class _Simulation:
    program: Program
    module: Module

    def launch(self, arrays: Sequence[Array]) -> RunStats:
        program = self.program
        result = self.module.launch(
            program.entry, program.grid, program.block, list(arrays), shared_bytes=program.shared_bytes
        )
        return RunStats(result.warp_instructions, result.printed)


class SimulatedRuntime:
    """Runs a program's PTX on the simulator."""

    def load(self, program: Program) -> LoadedProgram:
        """Parses the PTX; raises UnsupportedError where the simulator does not know an instruction."""
        from mosaic_gpu import simulator

        return _Simulation(program, simulator.load(program.ptx))
