"""The instructions that end a basic block: branches, calls, returns, barriers of a block, trap.

An ending is called as `ending(V, frame)` after the block's operations; it returns the index of the next
block if all threads of the frame go there, else a list of (block index, threads), where the index EXIT
means that the threads are done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mosaic_gpu.simulator.assignment import NO_EFFECTS, Effects, effects_of
from mosaic_gpu.simulator.calls import Returned, by_block, call
from mosaic_gpu.simulator.layout import Layout
from mosaic_gpu.simulator.ptx import Function, Instruction, Operand, Program, Symbol
from mosaic_gpu.simulator.registry import ENDINGS, Decoder, Ending, Successors
from mosaic_gpu.simulator.slots import Slots

if TYPE_CHECKING:
    from mosaic_gpu.simulator.frame import Frame
    from mosaic_gpu.simulator.prepare import _Uses

Array = np.ndarray[Any, np.dtype[Any]]
EXIT = -1
_ENDINGS = frozenset(["bra", "brx", "ret", "exit", "call", "bar", "barrier", "trap"])


@dataclass(frozen=True)
class Converge:
    """The threads named by the mask in slot `mask` must have come to `instruction` before it runs; `everyone`
    says that the mask is known to name all lanes, `warpgroup` that the four warps of the warpgroup come together."""

    instruction: Instruction
    mask: int
    everyone: bool
    warpgroup: bool = False


@dataclass
class Context:
    """What preparing a function needs; `targets` maps its labels, `entries` all functions, to blocks."""

    program: Program
    function: Function
    layout: Layout
    slots: Slots
    targets: dict[str, int]
    entries: dict[str, int]
    end_block: int
    next_block: int = 0
    returns: dict[int, list[Returned]] = field(default_factory=dict)
    converge: Converge | None = None
    effects: Effects = field(default_factory=lambda: NO_EFFECTS)

    def take_converge(self) -> Converge | None:
        """The mark left by the last instruction prepared, once."""
        mark, self.converge = self.converge, None
        return mark


def is_ending(instruction: Instruction) -> bool:
    """True for an instruction after which a new basic block begins."""
    if instruction.opcode in _ENDINGS:
        return instruction.modifiers[:1] != ("warp",)
    return ".".join((instruction.opcode, *instruction.modifiers[:1])) in ENDINGS


def fall_off(slots: list[Array], frame: Frame) -> Successors:
    """The end of a kernel without `ret`."""
    return EXIT


def go_to(block: int) -> Ending:
    """Every thread goes on at `block`."""

    def end(slots: list[Array], frame: Frame) -> Successors:
        return block

    return end


def split(frame: Frame, mask: Array, yes: int, no: int) -> Successors:
    """Threads whose mask holds go to `yes`, the others to `no`."""
    count = int(np.count_nonzero(mask))
    if count == frame.n or yes == no:
        return yes
    if count == 0:
        return no
    return [(yes, frame.ids[np.flatnonzero(mask)]), (no, frame.ids[np.flatnonzero(~mask)])]


def ending(context: Context, instruction: Instruction, used: _Uses) -> Ending:
    """The ending of a block whose last instruction is `instruction`."""
    decoder = Decoder(instruction, context.slots, context.layout)
    builders: dict[str, Callable[[Decoder, Context], Ending]] = {
        "bra": _branch, "brx": _branch_table, "ret": _return, "exit": _exit, "call": call,
        "bar": _barrier, "barrier": _barrier, "trap": _trap,
    }  # fmt: skip
    build = builders.get(instruction.opcode)
    if build is None:
        end = ENDINGS[".".join((instruction.opcode, instruction.modifiers[0]))](decoder, context.next_block)
    else:
        end = build(decoder, context)
    decoder.finish()
    used.note(decoder.reads, [], whole=True)
    context.effects = effects_of(instruction, decoder.reads, decoder.writes, context.slots)
    if instruction.guard is None:
        return end
    guard = context.slots.view(instruction.guard, np.dtype(np.bool_), 1, 0)
    used.note([guard], [], whole=True)
    return _guarded(end, guard, instruction.guard_negated, context.next_block, tuple(decoder.reads))


def _guarded(end: Ending, guard: int, negated: bool, otherwise: int, reads: tuple[int, ...]) -> Ending:
    """The ending for threads whose predicate holds; the others go on at `otherwise`."""

    def run(slots: list[Array], frame: Frame) -> Successors:
        mask = ~slots[guard] if negated else slots[guard]
        count = int(np.count_nonzero(mask))
        if count == 0:
            return otherwise
        if count == frame.n:
            return end(slots, frame)
        sub = frame.sub(np.flatnonzero(mask), reads, ())
        taken = end(sub.V, sub)
        rest = frame.ids[np.flatnonzero(~mask)]
        return [*([(taken, sub.ids)] if isinstance(taken, int) else taken), (otherwise, rest)]

    return run


def _target(decoder: Decoder, context: Context, name: str) -> int:
    if name not in context.targets:
        raise decoder.fail(f"there is no label {name}")
    return context.targets[name]


def _branch(decoder: Decoder, context: Context) -> Ending:
    decoder.flag("uni")
    decoder.count(1)
    label = decoder.operand(0)
    if not isinstance(label, Symbol):
        raise decoder.fail("a label expected")
    return go_to(_target(decoder, context, label.name))


def _branch_table(decoder: Decoder, context: Context) -> Ending:
    decoder.flag("idx")
    decoder.flag("uni")
    decoder.count(2)
    index, table = decoder.src(0, "u32"), decoder.operand(1)
    if not isinstance(table, Symbol) or table.name not in context.function.tables:
        raise decoder.fail("a table of branch targets expected")
    targets = np.array([_target(decoder, context, name) for name in context.function.tables[table.name]])

    def end(slots: list[Array], frame: Frame) -> Successors:
        where = np.broadcast_to(slots[index], frame.n)
        bad = where >= len(targets)
        if bad.any():
            position = int(np.argmax(bad))
            raise frame.error(decoder.instruction, f"branch index {where[position]} of {len(targets)}", position)
        return by_block(frame, targets[where])

    return end


def _exit(decoder: Decoder, context: Context) -> Ending:
    return go_to(EXIT)


def leave(context: Context, used: _Uses) -> Ending:
    """The end of a function's text, which returns like `ret`."""
    if context.function.is_entry:
        return go_to(EXIT)
    link = context.slots.link(context.function.name)
    used.note([link], [], whole=True)
    return _by_link(link)


def _by_link(link: int) -> Ending:
    def end(slots: list[Array], frame: Frame) -> Successors:
        return by_block(frame, slots[link])

    return end


def _return(decoder: Decoder, context: Context) -> Ending:
    decoder.flag("uni")
    if context.function.is_entry:
        return go_to(EXIT)
    link = context.slots.link(context.function.name)
    decoder.reads.append(link)
    return _by_link(link)


def _trap(decoder: Decoder, context: Context) -> Ending:
    def end(slots: list[Array], frame: Frame) -> Successors:
        raise frame.error(decoder.instruction, "the kernel trapped", 0)

    return end


def _barrier(decoder: Decoder, context: Context) -> Ending:
    cluster = decoder.flag("cluster")
    decoder.flag("cta")
    kind = decoder.one_of(("sync", "arrive", "red", "wait"))
    decoder.flag("aligned")
    after = context.next_block
    if cluster or kind == "wait":
        return _cluster_barrier(decoder, kind, after)
    operands = list(decoder.operands)
    if kind == "red":
        return _barrier_reduction(decoder, operands, after)
    if kind not in ("sync", "arrive") or not 1 <= len(operands) <= 2:
        raise decoder.fail("a barrier and at most a thread count expected")
    barrier = decoder.source(operands[0], "u32")
    count = decoder.source(operands[1], "u32") if len(operands) == 2 else None
    waits = kind == "sync"

    def end(slots: list[Array], frame: Frame) -> Successors:
        expected = None if count is None else slots[count]
        return frame.wave.barriers.arrive(decoder.instruction, frame, slots[barrier], expected, after, waits)

    return end


def _cluster_barrier(decoder: Decoder, kind: str, after: int) -> Ending:
    decoder.one_of(("acquire", "release", "relaxed"))
    if kind not in ("arrive", "wait"):
        raise decoder.refuse()

    def end(slots: list[Array], frame: Frame) -> Successors:
        barriers = frame.wave.barriers
        if kind == "arrive":
            return barriers.cluster_arrive(decoder.instruction, frame, after)
        return barriers.cluster_wait(decoder.instruction, frame, after)

    return end


def _barrier_reduction(decoder: Decoder, operands: list[Operand], after: int) -> Ending:
    how = decoder.one_of(("popc", "and", "or"))
    if not how or len(operands) not in (3, 4):
        raise decoder.fail("popc, and or or, with 3 or 4 operands, expected")
    result = decoder.destination(operands[0], decoder.type())
    barrier = decoder.source(operands[1], "u32")
    count = decoder.source(operands[2], "u32") if len(operands) == 4 else None
    value, negated = decoder.predicate(operands[-1])

    def end(slots: list[Array], frame: Frame) -> Successors:
        given = np.broadcast_to(slots[value] ^ negated, frame.n)
        expected = None if count is None else slots[count]
        return frame.wave.barriers.arrive(
            decoder.instruction, frame, slots[barrier], expected, after, True, reduction=(how, result, given)
        )

    return end
