"""The GPU architectures this package compiles for: one frozen `Target` each, and how a user may name one.

What differs between architectures is data in `TARGETS`; no stage asks for an architecture by name.
Limits are those of the CUDA C++ Programming Guide, "Compute Capabilities" (shared memory: the most that one
block may opt in to).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mosaic_gpu.errors import KernelError, UnsupportedError


@dataclass(frozen=True)
class Target:
    """One architecture.

    Attributes:
      name: as ptxas names it, for instance "sm_90a".
      capability: compute capability (major, minor).
      ptx_version: the PTX ISA version that its code is written in (major, minor).
      max_shared_bytes: shared memory that one block may use.
      max_registers: registers that one thread may use.
      max_threads: threads that one block may have.
      multiprocessors: of the largest GPU of the architecture that is common.
      resident_threads, resident_blocks, resident_shared_bytes: what one multiprocessor holds at once.
      features: what only some architectures have: "wgmma", "tma", "cluster", "griddepcontrol", "tcgen05", "bf16",
        "fp8".
    """

    name: str
    capability: tuple[int, int]
    ptx_version: tuple[int, int]
    max_shared_bytes: int
    multiprocessors: int
    resident_threads: int
    resident_blocks: int
    resident_shared_bytes: int
    features: frozenset[str]
    max_registers: int = 255
    max_threads: int = 1024
    resident_registers: int = 65_536

    @property
    def llvm_features(self) -> str:
        """The feature string of LLVM's target machine."""
        major, minor = self.ptx_version
        return f"+ptx{major}{minor}"

    def blocks_at_once(self, threads: int, registers: int, shared_bytes: int) -> int:
        """How many blocks of such a kernel the whole GPU holds at once, at least one a multiprocessor.

        Arguments:
          threads: of a block.
          registers: of a thread; they are given to warps in units of 256.
          shared_bytes: of a block, static and dynamic, without the 1024 that the system keeps of each block
            (from sm_80 on).
        """
        per_block = -(-registers * 32 // _REGISTER_UNIT) * _REGISTER_UNIT * -(-threads // 32)
        limits = (
            self.resident_blocks,
            self.resident_threads // threads,
            self.resident_registers // max(per_block, 1),
            self.resident_shared_bytes // (shared_bytes + _SYSTEM_SHARED_BYTES),
        )
        return self.multiprocessors * max(1, min(limits))


_REGISTER_UNIT, _SYSTEM_SHARED_BYTES = 256, 1024

_AMPERE = frozenset({"bf16"})
_ADA = _AMPERE | {"fp8"}
_HOPPER = _ADA | {"tma", "cluster", "griddepcontrol"}

_TABLE = (
    Target("sm_80", (8, 0), (8, 6), 166_912, 108, 2048, 32, 167_936, _AMPERE),
    Target("sm_86", (8, 6), (8, 6), 101_376, 84, 1536, 16, 102_400, _AMPERE),
    Target("sm_87", (8, 7), (8, 6), 166_912, 16, 1536, 16, 167_936, _AMPERE),
    Target("sm_89", (8, 9), (8, 6), 101_376, 142, 1536, 24, 102_400, _ADA),
    Target("sm_90", (9, 0), (8, 6), 232_448, 132, 2048, 32, 233_472, _HOPPER),
    Target("sm_90a", (9, 0), (8, 6), 232_448, 132, 2048, 32, 233_472, _HOPPER | {"wgmma"}),
    Target("sm_100", (10, 0), (8, 6), 232_448, 148, 2048, 32, 233_472, _HOPPER),
    Target("sm_100a", (10, 0), (8, 6), 232_448, 148, 2048, 32, 233_472, _HOPPER | {"tcgen05"}),
    Target("sm_103", (10, 3), (8, 8), 232_448, 148, 2048, 32, 233_472, _HOPPER),
    Target("sm_103a", (10, 3), (8, 8), 232_448, 148, 2048, 32, 233_472, _HOPPER | {"tcgen05"}),
    Target("sm_120", (12, 0), (8, 7), 101_376, 170, 1536, 24, 102_400, _HOPPER),
    Target("sm_120a", (12, 0), (8, 7), 101_376, 170, 1536, 24, 102_400, _HOPPER),
    Target("sm_121", (12, 1), (8, 8), 101_376, 48, 1536, 24, 102_400, _HOPPER),
    Target("sm_121a", (12, 1), (8, 8), 101_376, 48, 1536, 24, 102_400, _HOPPER),
)

TARGETS: dict[str, Target] = {target.name: target for target in _TABLE}

_DOTTED = re.compile(r"(\d+)\.(\d)([af]?)")
_PLAIN = re.compile(r"(?:sm_?|compute_?)?(\d+)(\d)([af]?)")


def parse_target(name: str | tuple[int, int] | Target) -> Target:
    """The target a user names: "sm_90a", "90a", "9.0a", "12.1" or a compute capability such as (9, 0).

    Raises:
      UnsupportedError: an architecture that exists (or may), but that is not in the table.
      KernelError: not the name of an architecture.
    """
    if isinstance(name, Target):
        return name
    if isinstance(name, tuple):
        name = ".".join(map(str, name))
    if not isinstance(name, str):
        raise KernelError("the target is not a name", got=repr(name), expected=_expected())
    text = name.strip().lower()
    match = _DOTTED.fullmatch(text) or _PLAIN.fullmatch(text)
    if match is not None:
        canonical = "sm_" + "".join(match.groups())
        if canonical in TARGETS:
            return TARGETS[canonical]
        raise UnsupportedError(f"the target {name!r} is not supported", got=canonical, expected=_expected())
    if re.match(r"gfx|amdgcn|hip", text):
        raise UnsupportedError(f"the target {name!r} is not an NVIDIA GPU", expected=_expected())
    raise KernelError(f"{name!r} names no GPU architecture", expected=_expected())


def _expected() -> str:
    return f"one of {', '.join(TARGETS)}, or a compute capability such as '9.0a'"
