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
        from mosaic_gpu.simulator.tensor_map import TensorMap

        program = self.program
        maps = [
            TensorMap(arrays[m.argument], m.element_bytes, m.dims, m.strides_bytes, m.box, m.swizzle)
            for m in program.tensor_maps
        ]
        arguments = [*arrays, *maps]
        result = self.module.launch(
            program.entry,
            program.grid,
            program.block,
            arguments,
            cluster=program.cluster,
            shared_bytes=program.shared_bytes,
        )
        return RunStats(result.warp_instructions, result.printed)


class SimulatedRuntime:
    """Runs a program's PTX on the simulator."""

    def load(self, program: Program) -> LoadedProgram:
        """Parses the PTX; raises UnsupportedError where the simulator does not know an instruction."""
        from mosaic_gpu import simulator

        return _Simulation(program, simulator.load(program.ptx))
