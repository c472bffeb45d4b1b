"""A loaded PTX module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from mosaic_gpu.errors import SimulationError, UnsupportedError
from mosaic_gpu.simulator import instructions as _instructions  # noqa: F401  registers the instructions
from mosaic_gpu.simulator.launch import Dims, LaunchResult, launch
from mosaic_gpu.simulator.parser import parse
from mosaic_gpu.simulator.prepare import Kernel, prepare


class Module:
    """Kernels that can be launched, any number of times and from several threads at once.

    `entries` are the names of the kernels that can run; `refused` maps the name of each other kernel to
    the error that says why, which its launch raises.
    """

    def __init__(self, ptx_text: str) -> None:
        self.program = parse(ptx_text)
        self.kernels: dict[str, Kernel] = {}
        self.refused: dict[str, UnsupportedError] = {}
        for function in self.program.functions.values():
            if function.is_entry and not function.declared_only:
                try:
                    with np.errstate(all="ignore"):
                        self.kernels[function.name] = prepare(self.program, function)
                except UnsupportedError as error:
                    self.refused[function.name] = error
        if self.refused and not self.kernels:
            raise next(iter(self.refused.values()))

    @property
    def entries(self) -> tuple[str, ...]:
        """The kernels that can run."""
        return tuple(self.kernels)

    def launch(
        self,
        entry: str,
        grid: Dims,
        block: Dims,
        args: Sequence[Any],
        *,
        cluster: Dims = (1, 1, 1),
        shared_bytes: int = 0,
        seed: int = 0,
        races: bool = True,
        uninitialised: Sequence[int] = (),
        progress: Callable[[int, int], object] | None = None,
        instruction_limit: int = 0,
        print: Callable[[str], object] | None = None,
    ) -> LaunchResult:
        """Runs a kernel to its end.

        Arguments:
          entry: the kernel's name.
          grid, block, cluster: an int, or up to three, in CUDA's order x, y, z.
          args: one per parameter.  An array is a device buffer, modified in place; the same array twice,
            or overlapping views, is the same memory.  A scalar is converted to the parameter's type;
            bytes or an array fill a parameter declared as an array of bytes, and so does a `TensorMap`.
          shared_bytes: dynamic shared memory of a block.
          seed: draws the times of asynchronous work (wgmma, bulk copies) and the order of warps and blocks among
            those that are legal; 0, the default, does everything as late as it may.
          races: look for races, accesses to the same memory that nothing orders, and for hazards of
            asynchronous operations.
          uninitialised: the positions of array arguments that hold nothing yet; a value that the kernel reads there
            before it writes it is a fault where it has an effect.
          progress: called with (blocks done, blocks of the launch), now and then.
          instruction_limit: thread-instructions after which the launch is stopped; 0 means no limit.
          print: called with each text that the kernel prints; by default it goes to sys.stdout.
        Raises:
          SimulationError: a fault in the kernel (out of bounds, misaligned, uninitialised, deadlock, trap),
            or a launch that does not fit it, with the PTX line and the kernel's source line.
          UnsupportedError: the kernel holds an instruction that the simulator does not know.
        """
        if entry in self.refused:
            raise self.refused[entry]
        if entry not in self.kernels:
            raise SimulationError(f"there is no kernel `{entry}`", expected=", ".join(self.kernels) or "none")
        return launch(
            self.kernels[entry], grid, block, args, cluster=cluster, shared_bytes=shared_bytes,
            instruction_limit=instruction_limit, print_text=print, seed=seed, races=races,
            uninitialised=uninitialised, progress=progress,
        )  # fmt: skip


@lru_cache(maxsize=128)
def load(ptx_text: str) -> Module:
    """The module of a PTX text.  Raises SimulationError with the PTX line for a text that cannot be read,
    and UnsupportedError if none of its kernels can run because of an instruction it does not know."""
    return Module(ptx_text)
