"""The errors of the package, and how a message is built.

Every message says what is wrong, what was got, what is expected and what to do, and ends with the
line of the user's kernel.  The five classes say whose turn it is:

* `KernelError`       the kernel is wrong: its author mends it.
* `UnsupportedError`  the kernel is right, this version cannot do it.
* `ToolError`         ptxas, nvJitLink, the driver or another tool failed.
* `SimulationError`   the simulator found a fault in the running program.
* `InternalError`     a fault of this package: please report it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceLine:
    """A line of the user's source: `file` as Python names it, `line` counted from 1."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        inside = f" in {self.function}" if self.function else ""
        return f"{self.file}:{self.line}{inside}"


class MosaicGpuError(Exception):
    """Base of the five; `source` is the kernel's line, or None where no line is to blame.

    Arguments:
      what: the fault in one sentence.
      got, expected: the two sides of the fault, where there are two.
      hint: what to do.
      source: the line of the kernel.
    """

    def __init__(
        self,
        what: str,
        *,
        got: object = None,
        expected: object = None,
        hint: str = "",
        source: SourceLine | None = None,
    ) -> None:
        self.what = what
        self.got = got
        self.expected = expected
        self.hint = hint
        self.source = source
        super().__init__(self._message())

    def _message(self) -> str:
        lines = [self.what]
        if self.got is not None:
            lines.append(f"  got: {self.got}")
        if self.expected is not None:
            lines.append(f"  expected: {self.expected}")
        if self.hint:
            lines.append(f"  what to do: {self.hint}")
        if self.source is not None:
            lines.append(f"  at {self.source}")
        return "\n".join(lines)

    def at(self, source: SourceLine | None) -> MosaicGpuError:
        """This error with `source` filled in, unless it already names a line."""
        if self.source is None and source is not None:
            self.source = source
            self.args = (self._message(),)
        return self


class KernelError(MosaicGpuError, ValueError):
    """The kernel is wrong."""


class UnsupportedError(MosaicGpuError, NotImplementedError):
    """The kernel is valid, but this version does not support it."""


class ToolError(MosaicGpuError, RuntimeError):
    """A tool of the tool chain, or the driver, failed."""


class SimulationError(MosaicGpuError, RuntimeError):
    """The simulator found a fault in the program it ran."""


class InternalError(MosaicGpuError, RuntimeError):
    """A fault of this package."""
