"""The errors of the package, and how a message is built.

Every message says what is wrong, what was got, what is expected and what to do, and ends with the
line of the user's kernel.  The five classes say whose turn it is:

* `KernelError`       the kernel is wrong: its author mends it.
* `UnsupportedError`  the kernel is right, this version cannot do it.
* `ToolError`         ptxas, nvJitLink, the driver or another tool failed.
* `SimulationError`   the simulator or the interpreter found a fault in the running program.
* `InternalError`     a fault of this package: please report it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, TracebackType
from typing import NoReturn


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
    """The simulator, or the interpreter, found a fault in the program it ran."""


class InternalError(MosaicGpuError, RuntimeError):
    """A fault of this package."""


def ends_at_kernel[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Wraps `function` so that the traceback of an error of ours ends at the kernel's line."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except MosaicGpuError as error:
            if error.source is None:
                raise
            raise error.with_traceback(_traceback_at(error.source)) from error.__cause__

    return wrapped


def _traceback_at(source: SourceLine) -> TracebackType:
    """A traceback of one frame, which claims to be at `source`; Python shows that line of the file."""
    code = compile("raise StopIteration", source.file, "exec")
    code = code.replace(co_name=source.function or "<kernel>", co_firstlineno=source.line)
    try:
        _run(code)
    except StopIteration as stop:
        innermost = stop.__traceback__
        while innermost is not None and innermost.tb_next is not None:
            innermost = innermost.tb_next
    assert innermost is not None
    # An instruction of -1 leaves the columns out: those of the made-up statement mean nothing here.
    return TracebackType(None, innermost.tb_frame, -1, source.line)


def _run(code: CodeType) -> NoReturn:
    exec(code, {"__name__": "mosaic_gpu.kernel_source"})
    raise AssertionError("the code raises")
