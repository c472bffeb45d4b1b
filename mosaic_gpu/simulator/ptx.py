"""The immutable objects that a PTX text is parsed into, and PTX's table of types.

Every object knows the PTX line it came from; instructions also know the line of the kernel's source
(from `.loc`), so that each error names both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mosaic_gpu.errors import SimulationError, SourceLine, UnsupportedError

#: PTX type -> the NumPy type that the simulator computes it in.  bf16 and the packed pairs stay bits; b128 is opaque.
TYPES: dict[str, np.dtype[np.generic]] = {
    "pred": np.dtype(np.bool_),
    "b8": np.dtype(np.uint8), "u8": np.dtype(np.uint8), "s8": np.dtype(np.int8),
    "b16": np.dtype(np.uint16), "u16": np.dtype(np.uint16), "s16": np.dtype(np.int16),
    "b32": np.dtype(np.uint32), "u32": np.dtype(np.uint32), "s32": np.dtype(np.int32),
    "b128": np.dtype("V16"),
    "b64": np.dtype(np.uint64), "u64": np.dtype(np.uint64), "s64": np.dtype(np.int64),
    "f16": np.dtype(np.float16), "bf16": np.dtype(np.uint16), "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64), "tf32": np.dtype(np.uint32),
    "f16x2": np.dtype(np.uint32), "bf16x2": np.dtype(np.uint32),
    "u16x2": np.dtype(np.uint32), "s16x2": np.dtype(np.uint32),
    "e4m3x2": np.dtype(np.uint16), "e5m2x2": np.dtype(np.uint16),
}  # fmt: skip


class Register(NamedTuple):
    """A register: `name` is unique in its function (scoped names carry their scope), `type` as declared."""

    name: str
    type: str


class Immediate(NamedTuple):
    """A constant: a Python int, or the bits of a float with `kind` "f32" or "f64"."""

    value: int
    kind: str


class Symbol(NamedTuple):
    """A variable, function or label by name, plus a byte offset."""

    name: str
    offset: int


class Special(NamedTuple):
    """A special register such as %tid.x."""

    name: str


class Address(NamedTuple):
    """[base + offset]; `extra` holds what follows a comma inside the brackets (TMA coordinates)."""

    base: Register | Symbol | Immediate
    offset: int
    extra: tuple[Operand, ...]


class Vector(NamedTuple):
    """{a, b, ...}."""

    items: tuple[Operand, ...]


class Pair(NamedTuple):
    """d|p: a destination and the predicate beside it."""

    first: Operand
    second: Operand


class Negated(NamedTuple):
    """!p."""

    register: Register


class Sink(NamedTuple):
    """The destination `_`: the result is thrown away."""


Operand = Register | Immediate | Symbol | Special | Address | Vector | Pair | Negated | Sink


class Instruction(NamedTuple):
    """One PTX instruction; `opcode` is the first word, `modifiers` the rest of the dotted name."""

    opcode: str
    modifiers: tuple[str, ...]
    guard: Register | None
    guard_negated: bool
    operands: tuple[Operand, ...]
    line: int
    source: SourceLine | None

    @property
    def name(self) -> str:
        """The dotted name as PTX writes it."""
        return ".".join((self.opcode, *self.modifiers))


class Relocation(NamedTuple):
    """An initialiser that holds the address of a symbol; `generic` asks for the generic address."""

    offset: int
    bytes: int
    symbol: Symbol
    generic: bool


@dataclass(frozen=True)
class Variable:
    """A variable: `size` and `align` in bytes; `size` 0 with `extern` is dynamic shared memory."""

    name: str
    space: str
    type: str
    align: int
    size: int
    line: int
    data: bytes = b""
    relocations: tuple[Relocation, ...] = ()
    extern: bool = False
    is_array: bool = False


@dataclass(frozen=True)
class Function:
    """An entry or a device function; `labels` maps a label to the index of the instruction after it."""

    name: str
    is_entry: bool
    returns: tuple[Variable, ...]
    params: tuple[Variable, ...]
    variables: tuple[Variable, ...]
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    tables: dict[str, tuple[str, ...]]
    directives: dict[str, tuple[int, ...]]
    line: int
    declared_only: bool = False


@dataclass(frozen=True)
class Program:
    """A parsed PTX module."""

    version: str
    target: str
    functions: dict[str, Function]
    variables: dict[str, Variable]

    @cached_property
    def addressed(self) -> tuple[str, ...]:
        """The functions whose address is taken, by an instruction or by an initialiser."""
        names = {r.symbol.name for v in self.variables.values() for r in v.relocations}
        for function in self.functions.values():
            for instruction in function.instructions:
                if instruction.opcode != "call":
                    names.update(o.name for o in instruction.operands if isinstance(o, Symbol))
        return tuple(name for name in self.functions if name in names)


def syntax_error(line: int, what: str, *, hint: str = "") -> SimulationError:
    """The error for a PTX text that cannot be read."""
    return SimulationError(f"PTX line {line}: {what}", hint=hint)


def unsupported(instruction: Instruction, why: str = "") -> UnsupportedError:
    """The refusal of an instruction, by name and line."""
    reason = f" ({why})" if why else ""
    return UnsupportedError(
        f"PTX line {instruction.line}: the simulator does not support `{instruction.name}`{reason}",
        source=instruction.source,
    )
