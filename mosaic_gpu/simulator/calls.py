"""Calls of device functions, by name or through a pointer, and of the functions of CUDA's run-time system.

A function has one set of registers and one return address a thread, so what calls itself is refused.  A call
through a pointer may reach the functions that its `.calltargets` name, or else those whose address is taken
somewhere and whose parameters have the sizes of the arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.simulator.memory import LOCAL_WINDOW
from mosaic_gpu.simulator.printf import failed_assertion, print_values
from mosaic_gpu.simulator.ptx import (
    TYPES,
    Function,
    Instruction,
    Operand,
    Program,
    Register,
    Symbol,
    Variable,
    Vector,
    unsupported,
)
from mosaic_gpu.simulator.registry import Decoder, Ending, Successors

if TYPE_CHECKING:
    from mosaic_gpu.simulator.control import Context
    from mosaic_gpu.simulator.frame import Frame

Array = np.ndarray[Any, np.dtype[Any]]


def _parts(instruction: Instruction) -> tuple[Operand | None, tuple[Operand, ...], tuple[Operand, ...]]:
    """(what is called, the results, the arguments) of `call (results), target, (arguments), prototype`."""
    operands = instruction.operands
    at = next((i for i, o in enumerate(operands) if not isinstance(o, Vector)), None)
    if at is None:
        return None, (), ()
    results = operands[0].items if at and isinstance(operands[0], Vector) else ()
    following = operands[at + 1] if len(operands) > at + 1 else None
    return operands[at], results, following.items if isinstance(following, Vector) else ()


def callees(program: Program, function: Function, instruction: Instruction) -> tuple[list[Function], bool]:
    """The functions with a body that a call in `function` may reach, and whether it names the one."""
    target, results, arguments = _parts(instruction)
    functions = program.functions
    if isinstance(target, Symbol):
        found = functions.get(target.name)
        return [found] if found is not None and not found.declared_only else [], True
    last = instruction.operands[-1] if instruction.operands else None
    table = function.tables.get(last.name) if isinstance(last, Symbol) else None
    names = program.addressed if table is None else table
    known = [functions[name] for name in names if name in functions]
    sizes = {v.name: v.size for v in (*function.returns, *function.params, *function.variables)}
    given = [_size(operand, sizes) for operand in (*results, *arguments)]

    def fits(callee: Function) -> bool:
        if (len(callee.returns), len(callee.params)) != (len(results), len(arguments)):
            return False
        formal = [v.size for v in (*callee.returns, *callee.params)]
        return all(size in (None, has) for size, has in zip(given, formal, strict=True))

    return [f for f in known if not f.is_entry and not f.declared_only and fits(f)], False


def _size(operand: Operand, sizes: dict[str, int]) -> int | None:
    """The bytes of an argument; None where it does not say."""
    if isinstance(operand, Register):
        return TYPES[operand.type].itemsize
    return sizes.get(operand.name) if isinstance(operand, Symbol) else None


def by_block(frame: Frame, where: Array) -> Successors:
    """Each thread goes to its own block."""
    blocks = np.unique(where)
    if len(blocks) == 1:
        return int(blocks[0])
    return [(int(block), frame.ids[np.flatnonzero(where == block)]) for block in blocks]


def call(decoder: Decoder, context: Context) -> Ending:
    decoder.flag("uni")
    instruction = decoder.instruction
    target, results, arguments = _parts(instruction)
    for index in range(len(decoder.operands)):
        decoder.operand(index)
    if isinstance(target, Register):
        return _call_through(decoder, context, target, results, arguments)
    name = target.name if isinstance(target, Symbol) else ""
    callee = context.program.functions.get(name)
    if callee is None:
        raise unsupported(instruction, f"a call of `{name}`")
    if (len(results), len(arguments)) != (len(callee.returns), len(callee.params)):
        raise decoder.fail(f"`{name}` takes {len(callee.params)} arguments and returns {len(callee.returns)}")
    if callee.declared_only:
        return _call_extern(decoder, context, name, arguments)
    into = [Passing(decoder, context, callee, v, o, True) for v, o in zip(callee.params, arguments, strict=True)]
    back = [Passing(decoder, context, callee, v, o, False) for v, o in zip(callee.returns, results, strict=True)]
    link, start, after = context.slots.link(name), context.entries[name], context.next_block
    context.returns[after] = [*back]

    def end(slots: list[Array], frame: Frame) -> Successors:
        for passing in into:
            passing.copy(slots, frame)
        frame.wave.slots[link][frame.ids] = after
        return start

    return end


def _call_through(
    decoder: Decoder, context: Context, target: Register, results: tuple[Operand, ...], arguments: tuple[Operand, ...]
) -> Ending:
    """A call through a pointer: each thread goes to the function that its own pointer names."""
    instruction, program, own = decoder.instruction, context.program, context.function.name
    pointer, after = decoder.source(target, "u64"), context.next_block
    reached, _ = callees(program, context.function, instruction)
    # Those laid out later call this function, so to call them would be recursion.
    choices = [f for f in reached if context.entries.get(f.name, context.entries[own]) < context.entries[own]]
    chosen = context.slots.link(f"{own}/{instruction.line}")
    routes, context.returns[after] = [], []
    for number, callee in enumerate(choices):
        into = [Passing(decoder, context, callee, v, o, True) for v, o in zip(callee.params, arguments, strict=True)]
        back = [Passing(decoder, context, callee, v, o, False) for v, o in zip(callee.returns, results, strict=True)]
        context.returns[after].append(_Chosen(chosen, number, back))
        routes.append((into, context.slots.link(callee.name)))
    starts = np.array([context.entries[f.name] for f in choices], np.int64)
    addresses = [context.layout.functions[f.name] for f in choices]
    names = {address: name for name, address in context.layout.functions.items()}
    reads = tuple(decoder.reads)

    def end(slots: list[Array], frame: Frame) -> Successors:
        where = np.broadcast_to(slots[pointer], frame.n)
        numbers = np.full(frame.n, -1)
        for number, address in enumerate(addresses):
            numbers[where == address] = number
        if (numbers < 0).any():
            position = int(np.argmin(numbers))
            name = names.get(int(where[position]))
            what = f"`{name}`, which it cannot call" if name else f"{int(where[position]):#x}, which is no function"
            hint = "its parameters must fit, and a function must not call itself" if name else ""
            raise frame.error(instruction, f"a call through a pointer to {what}", position, hint=hint)
        frame.wave.slots[chosen][frame.ids] = numbers
        for number in np.unique(numbers):
            part = frame.sub(np.flatnonzero(numbers == number), reads, ())
            into, link = routes[number]
            for passing in into:
                passing.copy(part.V, part)
            frame.wave.slots[link][part.ids] = after
        return by_block(frame, starts[numbers])

    return end


class _Chosen:
    """Copies the results of one of the functions that a call may reach, for the threads that called it."""

    def __init__(self, chosen: int, number: int, back: list[Passing]) -> None:
        self.chosen, self.number, self.back = chosen, number, back

    def copy(self, slots: list[Array], frame: Frame) -> None:
        """Copies for the threads of the frame whose slot `chosen` holds `number`."""
        mine = np.flatnonzero(frame.pick(frame.wave.slots[self.chosen]) == self.number)
        if len(mine):
            part = frame.sub(mine, (), ())
            for passing in self.back:
                passing.copy(part.V, part)


class Passing:
    """Copies one argument to a callee, or one result back: `forward` says which way."""

    def __init__(
        self,
        decoder: Decoder,
        context: Context,
        callee: Function,
        formal: Variable,
        actual: Operand,
        forward: bool,
    ) -> None:
        self.size, self.forward = formal.size, forward
        self.formal = self._place(decoder, context, callee.name, formal, not forward)
        if isinstance(actual, Symbol):
            key = context.layout.find(context.function.name, actual.name)
            if key is None or context.layout.spaces[key] != "param":
                raise decoder.fail(f"`{actual.name}` is not a parameter variable")
            if context.layout.variables[key].size != formal.size:
                raise decoder.fail(f"`{actual.name}` does not have the {formal.size} bytes of `{formal.name}`")
            self.actual: tuple[str, int] = ("memory", context.layout.addresses[key] - LOCAL_WINDOW)
        else:
            slot = decoder.source(actual, formal.type) if forward else decoder.destination(actual, formal.type)
            self.actual = ("slot", slot)
        self.source, self.result = (self.actual, self.formal) if forward else (self.formal, self.actual)
        self.dtype = TYPES[formal.type]

    def _place(self, decoder: Decoder, context: Context, callee: str, formal: Variable, reads: bool) -> tuple[str, int]:
        if formal.space != "reg":
            return "memory", context.layout.addresses[f"{callee}/{formal.name}"] - LOCAL_WINDOW
        saved, context.slots.function = context.slots.function, callee
        slot = context.slots.view(Register(formal.name, formal.type), TYPES[formal.type], 1, 0)
        context.slots.function = saved
        if reads:
            decoder.reads.append(slot)
        return "slot", slot

    def copy(self, slots: list[Array], frame: Frame) -> None:
        """Copies for the threads of the frame; memory and registers of the whole wave are written."""
        local = frame.wave.local
        rows = local.data.reshape(frame.wave.T, -1) if local.size else local.data
        kind, start = self.source
        if kind == "slot":
            value = slots[start] if self.forward else frame.pick(frame.wave.slots[start])
            raw = np.ascontiguousarray(np.broadcast_to(value, frame.n)).view(np.uint8).reshape(frame.n, -1)
        else:
            raw = rows[frame.ids, start : start + self.size]
        kind, start = self.result
        if kind == "slot":
            frame.wave.slots[start][frame.ids] = np.ascontiguousarray(raw).view(self.dtype).reshape(-1)
        else:
            rows[frame.ids, start : start + self.size] = raw


def _call_extern(decoder: Decoder, context: Context, name: str, arguments: tuple[Operand, ...]) -> Ending:
    """The functions that CUDA's run-time system provides."""
    if name not in ("vprintf", "__assertfail"):
        raise UnsupportedError(
            f"PTX line {decoder.instruction.line}: the simulator does not provide `{name}`",
            source=decoder.instruction.source,
        )
    count = {"vprintf": 2, "__assertfail": 5}[name]
    if len(arguments) != count:
        raise decoder.fail(f"{name} takes {count} arguments")
    places = []
    for argument in arguments:
        key = context.layout.find(context.function.name, argument.name) if isinstance(argument, Symbol) else None
        if key is None or context.layout.spaces[key] != "param":
            raise decoder.fail(f"{name} takes its arguments in parameter variables")
        places.append(context.layout.addresses[key] - LOCAL_WINDOW)
    after = context.next_block

    def end(slots: list[Array], frame: Frame) -> Successors:
        if name == "__assertfail":
            raise failed_assertion(decoder.instruction, frame, places)
        print_values(decoder.instruction, frame, places[0], places[1])
        return after

    return end


Returned = Passing | _Chosen
