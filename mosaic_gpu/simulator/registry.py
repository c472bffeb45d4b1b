"""The table of instructions, and what one of its functions is given.

An instruction is one function `exec_<name>(d)` decorated with `@instruction(...)`.  It is called once
per PTX line, when a kernel is prepared: it asks the `Decoder` for its modifiers and operands and
returns the operation that runs.  An operation is called as `op(V, frame)`: `V` is the list of slots and
`V[slot]` an array with one element per active thread (or of length 1 for a constant), so an operation
neither masks nor indexes; the machine has already chosen the threads.  Adding an instruction is one
function and its test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.simulator.ptx import (
    TYPES,
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
    syntax_error,
    unsupported,
)

if TYPE_CHECKING:
    from mosaic_gpu.simulator.frame import Frame
    from mosaic_gpu.simulator.layout import Layout
    from mosaic_gpu.simulator.slots import Slots

Array = np.ndarray[Any, np.dtype[Any]]
#: What runs: reads and writes the slots of the active threads.
Operation = Callable[[list[Array], "Frame"], None]
#: Where the threads of a frame go: one block, or (block, threads) of each part.
Successors = int | list[tuple[int, Array]]
#: What runs at the end of a basic block.
Ending = Callable[[list[Array], "Frame"], Successors]
#: Computes `out` from its operands, all arrays over threads; the last argument is the result's array.
Kernel = Callable[..., Any]


_TAKE_B128 = ("mov", "ld", "st", "atom")


@dataclass(frozen=True)
class Entry:
    """How an instruction is prepared: `dests` leading operands are written; `converges` says that all
    threads of its member mask must be at this instruction before it runs."""

    build: Callable[[Decoder], Operation | None]
    dests: int
    converges: bool


INSTRUCTIONS: dict[str, Entry] = {}


def instruction(
    *names: str, dests: int = 1, converges: bool = False
) -> Callable[[Callable[[Decoder], Operation | None]], Callable[[Decoder], Operation | None]]:
    """Registers the decorated function as the meaning of the instructions `names` (first words)."""

    def register(build: Callable[[Decoder], Operation | None]) -> Callable[[Decoder], Operation | None]:
        for name in names:
            INSTRUCTIONS[name] = Entry(build, dests, converges)
        return build

    return register


ENDINGS: dict[str, Callable[[Decoder, int], Ending]] = {}


def ending(*names: str) -> Callable[[Callable[[Decoder, int], Ending]], Callable[[Decoder, int], Ending]]:
    """Registers the decorated function for the instructions `names` (first two words), which end a basic
    block because threads may wait there, or registers change behind the block's back.  It is given the
    decoder and the block that follows."""

    def register(build: Callable[[Decoder, int], Ending]) -> Callable[[Decoder, int], Ending]:
        for name in names:
            ENDINGS[name] = build
        return build

    return register


def _differ(declared: str, wanted: str) -> bool:
    """True if a register of one type can never be used as the other: predicates and .b128 stand alone."""
    return declared != wanted and bool({declared, wanted} & {"pred", "b128"})


class Decoder:
    """One instruction being prepared: consumes its modifiers, resolves its operands to slots."""

    def __init__(self, instruction: Instruction, slots: Slots, layout: Layout) -> None:
        self.instruction = instruction
        self.slots = slots
        self.layout = layout
        self.operands = instruction.operands
        self.types = [word for word in instruction.modifiers if word in TYPES]
        self.words = [word for word in instruction.modifiers if word not in TYPES]
        self.reads: list[int] = []
        self.writes: list[int] = []
        self.member_mask: int | None = None
        self.warpgroup = False
        self.order = ""

    def fail(self, what: str) -> SimulationError:
        """The error for an instruction that PTX does not allow."""
        return syntax_error(self.instruction.line, f"`{self.instruction.name}`: {what}")

    def refuse(self, why: str = "") -> Exception:
        """The error for an instruction that the simulator does not know."""
        return unsupported(self.instruction, why)

    def flag(self, word: str) -> bool:
        """True if the modifier is there; consumes it."""
        if word in self.words:
            self.words.remove(word)
            return True
        return False

    def one_of(self, words: Iterable[str], default: str = "") -> str:
        """The modifier that is there out of `words`; consumes it."""
        for word in words:
            if self.flag(word):
                return word
        return default

    def need(self, words: Iterable[str]) -> str:
        """The modifier that must be there out of `words`; consumes it."""
        word = self.one_of(words)
        if not word:
            raise self.fail(f"one of .{', .'.join(words)} expected")
        return word

    def type(self, index: int = -1) -> str:
        """The `index`-th type in the instruction's name."""
        if not -len(self.types) <= index < len(self.types):
            raise self.refuse("it has no type that the simulator knows")
        if self.types[index] == "b128" and self.instruction.opcode not in _TAKE_B128:
            raise self.refuse("type .b128")
        return self.types[index]

    def finish(self) -> None:
        """Refuses modifiers that nobody asked for: they would have been ignored silently."""
        if self.words:
            raise self.refuse(f"modifier .{self.words[0]}")

    def operand(self, index: int) -> Operand:
        """The `index`-th operand; an error if the instruction has fewer."""
        try:
            return self.operands[index]
        except IndexError:
            raise self.fail(f"operand {index + 1} is missing") from None

    def count(self, *allowed: int) -> int:
        """The number of operands, which must be one of `allowed`."""
        if len(self.operands) not in allowed:
            raise self.fail(f"{' or '.join(map(str, allowed))} operands expected, got {len(self.operands)}")
        return len(self.operands)

    def src(self, index: int, type_name: str) -> int:
        """The slot that holds operand `index` read as `type_name`."""
        return self.source(self.operand(index), type_name)

    def source(self, operand: Operand, type_name: str) -> int:
        """The slot of an operand read as `type_name`."""
        slot = self._source(operand, type_name)
        self.reads.append(slot)
        return slot

    def _source(self, operand: Operand, type_name: str) -> int:
        dtype = TYPES[type_name]
        if isinstance(operand, Register):
            size = TYPES[operand.type].itemsize
            if _differ(operand.type, type_name) or size < dtype.itemsize:
                raise self.fail(f"{operand.name} of type .{operand.type} cannot be read as .{type_name}")
            return self.slots.view(operand, dtype, size // dtype.itemsize, 0)
        if isinstance(operand, Immediate):
            return self.slots.constant(self.constant(operand, type_name), dtype)
        if isinstance(operand, Special):
            return self.special(operand, dtype)
        if isinstance(operand, Symbol):
            address = self.slots.address_of(operand, self.instruction)
            return self.slots.constant(np.array(address & (1 << 8 * dtype.itemsize) - 1).astype(dtype), dtype)
        raise self.fail("this operand cannot be read here")

    def special(self, operand: Special, dtype: np.dtype[Any]) -> int:
        """The slot of a special register."""
        slot = self.slots.special(operand.name, dtype)
        if slot is None:
            raise self.refuse(f"special register {operand.name}")
        return slot

    def constant(self, operand: Immediate, type_name: str) -> Any:
        """The constant as a NumPy scalar of the type: integers wrap, floats convert, bits stay."""
        dtype = TYPES[type_name]
        if type_name == "pred":
            return np.bool_(operand.value != 0)
        if operand.kind == "int" and type_name not in ("f32", "f64"):
            bits = operand.value & ((1 << 8 * dtype.itemsize) - 1)
            return np.frombuffer(bits.to_bytes(dtype.itemsize, "little"), dtype)[0]
        if operand.kind == "int":
            raise self.fail(f"a float constant expected, got {operand.value}")
        width = 4 if operand.kind == "f32" else 8
        raw = operand.value.to_bytes(width, "little")
        if dtype.itemsize == width:
            return np.frombuffer(raw, dtype)[0]
        if type_name in ("f32", "f64"):
            return np.frombuffer(raw, f"<f{width}")[0].astype(dtype)
        raise self.fail(f"a float constant cannot be read as .{type_name}")

    def part(self, operand: Operand, dtype: np.dtype[Any], index: int) -> int:
        """The slot of the `index`-th piece of a register, read as the narrower `dtype`."""
        if not isinstance(operand, Register):
            raise self.fail("a register expected")
        if index >= TYPES[operand.type].itemsize // dtype.itemsize:
            raise self.fail(f"{operand.name} of type .{operand.type} has fewer parts")
        slot = self.slots.view(operand, dtype, TYPES[operand.type].itemsize // dtype.itemsize, index)
        self.reads.append(slot)
        return slot

    def dst(self, index: int, type_name: str) -> int:
        """The slot that operand `index` is written through as `type_name` (extended if it is wider)."""
        return self.destination(self.operand(index), type_name)

    def destination(self, operand: Operand, type_name: str) -> int:
        """The slot an operand is written through."""
        dtype = TYPES[type_name]
        if isinstance(operand, Sink):
            slot = self.slots.sink(dtype)
        elif not isinstance(operand, Register):
            raise self.fail("a register expected as the destination")
        else:
            slot = self._destination(operand, type_name, dtype)
        self.writes.append(slot)
        return slot

    def _destination(self, operand: Register, type_name: str, dtype: np.dtype[Any]) -> int:
        size = TYPES[operand.type].itemsize
        if _differ(operand.type, type_name) or size < dtype.itemsize:
            raise self.fail(f"a .{type_name} result does not fit {operand.name} of type .{operand.type}")
        if size > dtype.itemsize:
            if type_name[0] not in "bus" or type_name[-2:] == "x2" or type_name == "bf16":
                dtype = np.dtype(f"u{dtype.itemsize}") if dtype.kind == "f" else dtype
            dtype = np.dtype(f"{'i' if dtype.kind == 'i' else 'u'}{size}")
        return self.slots.view(operand, dtype, 1, 0)

    def carry(self, *, read: bool, write: bool) -> int:
        """The slot of the condition code register."""
        slot = self.slots.condition_code()
        if read:
            self.reads.append(slot)
        if write:
            self.writes.append(slot)
        return slot

    def predicate(self, operand: Operand) -> tuple[int, bool]:
        """The slot of a predicate operand, and whether it is negated."""
        if isinstance(operand, Negated):
            return self.source(operand.register, "pred"), True
        return self.source(operand, "pred"), False

    def vector(self, index: int) -> tuple[Operand, ...]:
        """The items of {a, b, ..}; a lone operand is a vector of one."""
        operand = self.operand(index)
        return operand.items if isinstance(operand, Vector) else (operand,)

    def pair(self, index: int) -> tuple[Operand, Operand]:
        """d|p, where a lone d has the sink beside it."""
        operand = self.operand(index)
        return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, Sink())

    def address(self, index: int) -> Address:
        """The address operand."""
        operand = self.operand(index)
        if not isinstance(operand, Address):
            raise self.fail("an address in brackets expected")
        return operand

    def unary(self, kernel: Kernel, source: str, result: str = "") -> Operation:
        """d = kernel(a)."""
        self.count(2)
        o, a = self.dst(0, result or source), self.src(1, source)

        def run(slots: list[Array], frame: Frame) -> None:
            kernel(slots[a], slots[o])

        return run

    def binary(self, kernel: Kernel, source: str, result: str = "", second: str = "") -> Operation:
        """d = kernel(a, b)."""
        self.count(3)
        o, a, b = self.dst(0, result or source), self.src(1, source), self.src(2, second or source)

        def run(slots: list[Array], frame: Frame) -> None:
            kernel(slots[a], slots[b], slots[o])

        return run

    def ternary(self, kernel: Kernel, sources: tuple[str, str, str], result: str) -> Operation:
        """d = kernel(a, b, c)."""
        self.count(4)
        o = self.dst(0, result)
        a, b, c = (self.src(i + 1, t) for i, t in enumerate(sources))

        def run(slots: list[Array], frame: Frame) -> None:
            kernel(slots[a], slots[b], slots[c], slots[o])

        return run
