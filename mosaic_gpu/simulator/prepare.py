"""A parsed entry -> a `Kernel` of basic blocks of operations, ready to run.

Prepared once per entry: the functions it reaches are laid out callees first (so that the machine, which
runs the lowest block first, finishes a call before it moves on), cut into basic blocks, their registers
given rows, and each instruction turned into an operation by its `exec_` function.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.simulator import control
from mosaic_gpu.simulator.assignment import Effects, effects_of, registers, unassigned
from mosaic_gpu.simulator.calls import callees
from mosaic_gpu.simulator.frame import Frame
from mosaic_gpu.simulator.layout import Layout, lay_out
from mosaic_gpu.simulator.ptx import (
    Function,
    Instruction,
    Program,
    unsupported,
)
from mosaic_gpu.simulator.registry import INSTRUCTIONS, Decoder, Ending, Operation
from mosaic_gpu.simulator.slots import Row, Slots, View, storage_type

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Block:
    """A basic block: `operations` in order, then `ending` says where each thread goes.

    `converge` is set where the block starts with an instruction that waits for the threads of its mask.
    `gather` are the rows whose values the block needs, `scatter` those whose values it leaves behind.
    `effects` are the registers that each instruction uses, `steps` the same beside each operation.
    """

    index: int
    function: str
    line: int
    operations: list[Operation] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    ending: Ending = control.fall_off
    converge: control.Converge | None = None
    gather: frozenset[Row] = frozenset()
    scatter: frozenset[Row] = frozenset()
    rows: dict[Row, list[tuple[int, View]]] = field(default_factory=dict)
    per_thread: tuple[int, ...] = ()
    steps: list[Effects | None] = field(default_factory=list)
    effects: list[Effects] = field(default_factory=list)


@dataclass
class Kernel:
    """An entry that can run; immutable once prepared, so several launches may share it."""

    entry: Function
    program: Program
    blocks: list[Block]
    start: int
    slots: Slots
    layout: Layout
    #: (function, register) of registers that may be read before they are written.
    unassigned: frozenset[tuple[str, str]] = frozenset()

    @property
    def shared_bytes(self) -> int:
        """Static shared memory of a block."""
        return self.layout.shared_bytes

    @property
    def local_bytes(self) -> int:
        """Local memory of a thread."""
        return self.layout.local_bytes

    @property
    def bytes_per_thread(self) -> int:
        """Register storage and local memory of a thread."""
        rows = sum(np.dtype(kind).itemsize * count for kind, count in self.slots.counts.items())
        return rows + self.local_bytes


def prepare(program: Program, entry: Function) -> Kernel:
    """The kernel of an entry.  Raises UnsupportedError for an instruction that the simulator does not
    know and SimulationError for one that PTX does not allow, with the PTX line."""
    functions = _reachable(program, entry)
    layout = lay_out(program, entry, functions)
    slots = Slots({**layout.functions, **layout.addresses})
    cut = []
    first: dict[str, int] = {}
    count = 0
    for function in functions:
        blocks = _Cutter(function, count)
        first[function.name] = count
        count += len(blocks.ranges)
        cut.append((function, blocks))
    kernel = Kernel(entry, program, [], first[entry.name], slots, layout)
    for function, blocks in cut:
        slots.function = function.name
        _allocate_rows(function, blocks.ranges, slots)
        end = blocks.base + len(blocks.ranges)
        context = control.Context(program, function, layout, slots, blocks.targets, first, end)
        for number, (start, stop) in enumerate(blocks.ranges):
            kernel.blocks.append(_block(context, blocks.base + number, start, stop))
        passed = {v.name for v in (*function.returns, *function.params)}
        missing = unassigned(kernel.blocks[blocks.base :], blocks.targets, function.tables) - passed
        kernel.unassigned |= {(function.name, name) for name in missing}
    return kernel


def _reachable(program: Program, entry: Function) -> list[Function]:
    """The functions an entry reaches, callees before callers.  Recursion is refused."""
    order: list[Function] = []
    active: list[str] = []

    def visit(function: Function) -> None:
        if function.name in active:
            raise UnsupportedError(f"PTX line {function.line}: `{function.name}` calls itself: recursion")
        if any(function is known for known in order):
            return
        active.append(function.name)
        for instruction in function.instructions:
            if instruction.opcode == "call":
                reached, by_name = callees(program, function, instruction)
                for callee in reached:
                    if by_name or callee.name not in active:
                        visit(callee)
        active.pop()
        order.append(function)

    visit(entry)
    return order


class _Cutter:
    """Cuts a function into basic blocks: `ranges` of instructions, `targets` from label to block index."""

    def __init__(self, function: Function, base: int) -> None:
        self.base = base
        leaders = {0, *function.labels.values()}
        for position, instruction in enumerate(function.instructions):
            if control.is_ending(instruction):
                leaders.add(position + 1)
                if instruction.opcode == "call":
                    leaders.add(position)
            else:
                entry = INSTRUCTIONS.get(instruction.opcode)
                if entry is not None and entry.converges and "sync" in instruction.modifiers:
                    leaders.add(position)
        size = len(function.instructions)
        marks = sorted(mark for mark in leaders if mark <= size)
        self.ranges: list[tuple[int, int]] = []
        for start, stop in zip(marks, [*marks[1:], size], strict=True):
            self.ranges.append((start, stop))
            if stop > start and function.instructions[stop - 1].opcode == "call":
                # The results come back in a block of the call's own: the next one may be reached otherwise.
                self.ranges.append((stop, stop))
        if self.ranges[-1] != (size, size):
            self.ranges.append((size, size))
        number = {start: base + n for n, (start, _) in enumerate(self.ranges)}
        self.targets = {label: number[at] for label, at in function.labels.items()}


def _allocate_rows(function: Function, ranges: list[tuple[int, int]], slots: Slots) -> None:
    """Gives rows to the registers that live inside one block, shared by a linear scan; the others get a
    row of their own when they are first seen.

    A register is local to a block if all its uses are there and the first one writes it whole, whatever
    the predicates: then no value of it can come in.
    """
    home: dict[str, int] = {}
    spans: dict[str, list[int]] = {}
    shared = {v.name for v in (*function.returns, *function.params)}
    for number, (start, stop) in enumerate(ranges):
        for position in range(start, stop):
            instruction = function.instructions[position]
            entry = INSTRUCTIONS.get(instruction.opcode)
            dests = entry.dests if entry is not None and instruction.guard is None else 0
            written = {r.name for o in instruction.operands[:dests] for r in registers(o)}
            read = {r.name for o in instruction.operands[dests:] for r in registers(o)}
            if instruction.guard is not None:
                read.add(instruction.guard.name)
            if instruction.opcode == "wgmma":
                # Read and written later, when its group is waited for.
                shared |= read
            for name in read | written:
                span = spans.get(name)
                if span is None:
                    spans[name] = [position, position]
                    home[name] = number
                    if name in read:
                        shared.add(name)
                elif home[name] != number:
                    shared.add(name)
                else:
                    span[1] = position
    _linear_scan(function, ranges, slots, {n: s for n, s in spans.items() if n not in shared}, home)


def _linear_scan(
    function: Function,
    ranges: list[tuple[int, int]],
    slots: Slots,
    spans: dict[str, list[int]],
    home: dict[str, int],
) -> None:
    types = {r.name: r for i in function.instructions for o in i.operands for r in registers(o)}
    free: dict[str, list[Row]] = {}
    block = -1
    ending: list[tuple[int, Row]] = []
    pool: dict[str, list[Row]] = {}
    for name, (start, stop) in sorted(spans.items(), key=lambda item: item[1][0]):
        if home[name] != block:
            block, ending = home[name], []
            free = {kind: list(reversed(rows)) for kind, rows in pool.items()}
        for at in [e for e in ending if e[0] < start]:
            ending.remove(at)
            free.setdefault(at[1].dtype, []).append(at[1])
        kind = storage_type(types[name])
        if free.get(kind):
            row = free[kind].pop()
        else:
            row = slots.new_row(kind)
            pool.setdefault(kind, []).append(row)
        slots.rows[(function.name, name)] = row
        slots.local_rows.add(row)
        ending.append((stop, row))


def _block(context: control.Context, index: int, start: int, stop: int) -> Block:
    function = context.function
    body = list(function.instructions[start:stop])
    block = Block(index, function.name, body[0].line if body else function.line, instructions=body)
    used = _Uses(context.slots)
    context.next_block = index + 1
    for passing in context.returns.pop(index, ()):
        block.operations.append(passing.copy)
        block.steps.append(None)
    for instruction in body:
        if control.is_ending(instruction):
            block.ending = control.ending(context, instruction, used)
            block.effects.append(context.effects)
            continue
        operation = _operation(instruction, context, used)
        block.effects.append(context.effects)
        if operation is not None:
            block.operations.append(operation)
            block.steps.append(context.effects)
        block.converge = block.converge or context.take_converge()
    if not body or not control.is_ending(body[-1]):
        last = index + 1 == context.end_block
        block.ending = control.leave(context, used) if last else control.go_to(index + 1)
    used.close(block)
    return block


class _Uses:
    """The slots a block reads and writes, in order."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.seen: set[int] = set()
        self.needed: set[Row] = set()
        self.written: set[Row] = set()

    def note(self, reads: list[int], writes: list[int], *, whole: bool) -> None:
        """One instruction; `whole` is False if it may leave some threads' results as they were."""
        views = self.slots.views
        for slot in reads:
            what = views[slot]
            self.seen.add(slot)
            if isinstance(what, View) and what.row not in self.written:
                self.needed.add(what.row)
        for slot in writes:
            what = views[slot]
            self.seen.add(slot)
            if isinstance(what, View):
                if (not whole or what.step != 1) and what.row not in self.written:
                    self.needed.add(what.row)
                self.written.add(what.row)

    def close(self, block: Block) -> None:
        """Fills in what the block needs and leaves."""
        block.gather = frozenset(self.needed)
        block.scatter = frozenset(self.written - self.slots.local_rows)
        specials = []
        for slot in sorted(self.seen):
            what = self.slots.views[slot]
            if isinstance(what, View):
                block.rows.setdefault(what.row, []).append((slot, what))
            elif isinstance(what, tuple):
                specials.append(slot)
        block.per_thread = tuple(specials)


def _operation(instruction: Instruction, context: control.Context, used: _Uses) -> Operation | None:
    entry = INSTRUCTIONS.get(instruction.opcode)
    if entry is None:
        raise unsupported(instruction)
    decoder = Decoder(instruction, context.slots, context.layout)
    operation = entry.build(decoder)
    decoder.finish()
    context.effects = effects_of(instruction, decoder.reads, decoder.writes, context.slots)
    if entry.converges and decoder.member_mask is not None and instruction.guard is None:
        mask = context.slots.views[decoder.member_mask]
        everyone = isinstance(mask, np.ndarray) and int(mask[0]) == 0xFFFFFFFF
        context.converge = control.Converge(instruction, decoder.member_mask, everyone, decoder.warpgroup)
    register = instruction.guard
    used.note(decoder.reads, decoder.writes, whole=register is None)
    if operation is None or register is None:
        return operation
    guard = context.slots.view(register, np.dtype(np.bool_), 1, 0)
    used.note([guard], [], whole=True)
    return _guarded(operation, guard, instruction.guard_negated, tuple(decoder.reads), tuple(decoder.writes))


def _guarded(
    operation: Operation, guard: int, negated: bool, reads: tuple[int, ...], writes: tuple[int, ...]
) -> Operation:
    """The operation for the threads whose predicate holds."""

    def run(slots: list[Array], frame: Frame) -> None:
        mask = slots[guard]
        count = int(np.count_nonzero(mask))
        count = frame.n - count if negated else count
        if count == frame.n:
            operation(slots, frame)
        elif count:
            chosen = np.flatnonzero(~mask if negated else mask)
            sub = frame.sub(chosen, reads, writes)
            operation(sub.V, sub)
            for slot in writes:
                slots[slot][chosen] = sub.V[slot]

    return run
