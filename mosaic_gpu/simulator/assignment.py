"""Which registers may be read before they are written: a forward data-flow analysis, once per kernel.

A register is surely assigned at the start of a basic block if it is so at the end of every block that comes
before it.  A write under a predicate assigns nothing for sure.  Registers that some block reads although they are
not surely assigned there start out as uninitialised (`taint.py`); for all others nothing needs to be watched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from mosaic_gpu.simulator.ptx import Address, Instruction, Negated, Operand, Pair, Register, Sink, Symbol, Vector
from mosaic_gpu.simulator.slots import Slots, View

if TYPE_CHECKING:
    from mosaic_gpu.simulator.prepare import Block


class Effects(NamedTuple):
    """The names of the registers that an instruction reads (its predicate not among them) and writes."""

    instruction: Instruction
    reads: tuple[str, ...]
    writes: tuple[str, ...]


NO_EFFECTS = Effects(Instruction("", (), None, False, (), 0, None), (), ())


def registers(operand: Operand) -> Iterator[Register]:
    """The registers of an operand."""
    if isinstance(operand, Register):
        yield operand
    elif isinstance(operand, Negated):
        yield operand.register
    elif isinstance(operand, Address):
        if isinstance(operand.base, Register):
            yield operand.base
        for item in operand.extra:
            yield from registers(item)
    elif isinstance(operand, Vector | Pair):
        for item in operand:
            if isinstance(item, tuple) and not isinstance(item, Register | Negated | Address | Vector | Pair | Sink):
                for inner in item:
                    if isinstance(inner, tuple):
                        yield from registers(inner)
            else:
                yield from registers(item)


def effects_of(instruction: Instruction, reads: list[int], writes: list[int], slots: Slots) -> Effects:
    """The effects of an instruction that was prepared with these slots."""
    views = slots.views
    read_rows, written_rows = (
        {view.row for view in (views[slot] for slot in some) if isinstance(view, View)} for some in (reads, writes)
    )
    found: dict[str, None] = {r.name: None for operand in instruction.operands for r in registers(operand)}
    rows = {name: slots.rows.get((slots.function, name)) for name in found}
    names = [name for name, row in rows.items() if row in read_rows]
    written = [name for name, row in rows.items() if row in written_rows]
    if instruction.opcode == "wgmma" and instruction.operands:
        # The accumulators: written, and read only if the operation says so.
        accumulators = [r.name for r in registers(instruction.operands[0])]
        names, written = [name for name in names if name not in accumulators], accumulators
    return Effects(instruction, tuple(names), tuple(written))


def unassigned(blocks: list[Block], targets: dict[str, int], tables: dict[str, tuple[str, ...]]) -> set[str]:
    """The registers of one function's blocks that may be read before they are written."""
    numbers: dict[str, int] = {}
    exposed, assigned = [], []
    for block in blocks:
        uses = kills = 0
        for effects in block.effects:
            guard = effects.instruction.guard
            names = effects.reads if guard is None else (*effects.reads, guard.name)
            for name in names:
                bit = 1 << numbers.setdefault(name, len(numbers))
                uses |= bit & ~kills
            for name in effects.writes if guard is None else ():
                kills |= 1 << numbers.setdefault(name, len(numbers))
        exposed.append(uses)
        assigned.append(kills)
    every = (1 << len(numbers)) - 1
    base = blocks[0].index
    entering = [0, *[every] * (len(blocks) - 1)]
    work = list(range(len(blocks)))
    while work:
        number = work.pop(0)
        leaving = entering[number] | assigned[number]
        for following in _successors(blocks[number], base, len(blocks), targets, tables):
            merged = entering[following] & leaving
            if merged != entering[following]:
                entering[following] = merged
                work.append(following)
    missing = 0
    for uses, known in zip(exposed, entering, strict=True):
        missing |= uses & ~known
    return {name for name, number in numbers.items() if missing >> number & 1}


def _successors(
    block: Block, base: int, count: int, targets: dict[str, int], tables: dict[str, tuple[str, ...]]
) -> list[int]:
    """The blocks after a block, as positions in the function."""
    last = block.instructions[-1] if block.instructions else None
    following = block.index - base + 1
    result = [following] if following < count else []
    if last is None:
        return result
    if last.opcode in ("ret", "exit", "trap") and last.guard is None:
        return []
    if last.opcode in ("bra", "brx"):
        names = [o.name for o in last.operands if isinstance(o, Symbol)]
        names = [n for name in names for n in tables.get(name, (name,))]
        jumps = [targets[name] - base for name in names if name in targets]
        return jumps if last.guard is None else [*jumps, *result]
    return result
