"""`mgpu.dot` of kind "wgmma": all its `wgmma.mma_async` in one piece of inline PTX.

The accumulator is tied to the piece's outputs, so that it stays in its registers; nothing comes between the fence,
the instructions of all row blocks, column blocks and steps of K, and the wait.  Warpgroups differ in the
descriptors that they start from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.dot_layouts import K_BYTES, WGMMA_ROWS, WgmmaPlan, wgmma_plan
from mosaic_gpu.dialect.layouts import LANE_BITS
from mosaic_gpu.dialect.ops_matmul import PENDING
from mosaic_gpu.dialect.types import is_tile
from mosaic_gpu.errors import InternalError
from mosaic_gpu.lowering.dots import DotFacts, dot_of, instruction_columns, is_zero
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.conversion import Conversion
from mosaic_gpu.lowering.nvvm.descriptors import ADDRESS_MASK, UNIT_BYTES, Operand
from mosaic_gpu.lowering.nvvm.dot_mma import without_padding, words_of
from mosaic_gpu.lowering.nvvm.memref import MemRef

COLUMNS_PER_REGISTER = 2
"""A thread holds half as many accumulators as there are columns (64 rows over 128 threads)."""
A_WORDS = 4
"""32-bit registers of A in one instruction."""
_WARPGROUP_BIT = LANE_BITS + 2

# The text of A for a row block and a step of K, and of B for a first column and a step.
_Place = Callable[[int, int], str]


def convert_wgmma(conversion: Conversion, op: Any) -> ir.Value:
    """The accumulator, as a vector, when all instructions have finished."""
    facts = dot_of(op.operation)
    plan = wgmma_plan(facts.m, facts.n, 1 << (conversion.threads.num_bits - LANE_BITS))
    acc, fresh = conversion.get(op.acc), is_zero(op.acc)
    asm = _Assembly([emit.extract(acc, i) for i in range(emit.length(acc))], fresh)
    form = _Form(facts, a_in_registers=is_tile(op.lhs.type))
    lhs = (
        _left_registers(conversion, op, facts, asm) if form.a_in_registers else _left(conversion, op, facts, plan, asm)
    )
    rhs = _right(conversion, op, facts, plan, asm)
    steps = -(-facts.k * facts.bits // 8 // K_BYTES)
    for i in range(plan.repeats_m):
        for start, count in plan.splits:
            first = (i * plan.columns + start) // COLUMNS_PER_REGISTER
            columns = instruction_columns(facts, count)
            sums = asm.accumulators(first, count // COLUMNS_PER_REGISTER, columns // COLUMNS_PER_REGISTER)
            for step in range(steps):
                scale = "q" if fresh and step == 0 else "p"
                asm.lines.append(form.line(columns, sums, lhs(i, step), rhs(start, step), scale))
    return emit.from_elements(asm.emit(_pending(op.operation)))


def convert_wait(conversion: Conversion, op: Any) -> ir.Value:
    """The accumulator of a dot in flight, tied to a wait so that nobody reads it before."""
    value = conversion.get(op.operand)
    sums = [emit.extract(value, i) for i in range(emit.length(value))]
    letter = _letter(sums)
    tied = [str(i) for i in range(len(sums))]
    constraints = ",".join([f"={letter}"] * len(sums) + tied + ["~{memory}"])
    text = f"wgmma.wait_group.sync.aligned {ir.IntegerAttr(op.pending).value};"
    return emit.from_elements(emit.inline_asm(text, constraints, sums, [v.type for v in sums], effects=True))


def _pending(op: Any) -> int:
    """How many groups may be in flight when the dot ends."""
    return int(ir.IntegerAttr(op.attributes[PENDING]).value) if PENDING in op.attributes else 0


def _letter(sums: Sequence[ir.Value]) -> str:
    """LLVM's constraint for accumulators."""
    return "r" if isinstance(sums[0].type, ir.IntegerType) else "f"


@dataclass(frozen=True)
class _Form:
    """The form of the instruction for a dot."""

    facts: DotFacts
    a_in_registers: bool

    def line(self, columns: int, sums: str, lhs: str, rhs: str, scale: str) -> str:
        """One instruction; a part of `lhs` or `rhs` before a semicolon is what computes it."""
        facts = self.facts
        setup = "".join(f"{part[0]}; " for part in (lhs.rsplit("; ", 1), rhs.rsplit("; ", 1)) if len(part) == 2)
        left, right = lhs.rsplit("; ", 1)[-1], rhs.rsplit("; ", 1)[-1]
        types = facts.ptx_types
        acc = "s32" if facts.acc_element == "i32" else "f32"
        shape = f"m64n{columns}k{K_BYTES * 8 // facts.bits}"
        text = f"wgmma.mma_async.sync.aligned.{shape}.{acc}.{types[0]}.{types[1]} {sums}, {left}, {right}, {scale}"
        if acc == "f32":
            text += ", 1, 1"
        if facts.bits == 16:
            a = "" if self.a_in_registers else f", {int(facts.lhs_transposed)}"
            text += f"{a}, {int(not facts.rhs_transposed)}"
        return f"{setup}{text};"


@dataclass
class _Assembly:
    """A piece of inline PTX under construction: operands are the sums, then `inputs`."""

    sums: list[ir.Value]
    fresh: bool
    inputs: list[tuple[str, ir.Value]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    _spare: int = 0

    def operand(self, constraint: str, value: ir.Value) -> str:
        """The name of one more input."""
        self.inputs.append((constraint, value))
        return f"${len(self.sums) + len(self.inputs) - 1}"

    def accumulators(self, first: int, count: int, needed: int) -> str:
        """`count` of the sums from `first`, filled up with registers that nobody reads."""
        self._spare = max(self._spare, needed - count)
        names = [f"${first + i}" for i in range(count)] + [f"z{i}" for i in range(needed - count)]
        return f"{{{','.join(names)}}}"

    def emit(self, pending: int) -> list[ir.Value]:
        """The sums behind the piece, when at most `pending` groups of instructions are in flight."""
        letter = _letter(self.sums)
        kind = "b32" if letter == "r" else "f32"
        head = [
            ".reg .pred p, q;",
            ".reg .b64 a, b;",
            ".reg .b32 al, bl;",
            "setp.eq.b32 p, 0, 0;",
            "setp.ne.b32 q, 0, 0;",
        ]
        for i in range(self._spare):
            head.append(f".reg .{kind} z{i}; mov.{kind} z{i}, {'0' if letter == 'r' else '0f00000000'};")
        fence = ["wgmma.fence.sync.aligned;"]
        end = ["wgmma.commit_group.sync.aligned;", f"wgmma.wait_group.sync.aligned {pending};"]
        text = "\n".join(["{", *head, *fence, *self.lines, *end, "}"])
        outputs = [f"=&{letter}" if self.fresh else f"={letter}"] * len(self.sums)
        tied = [] if self.fresh else [str(i) for i in range(len(self.sums))]
        constraints = ",".join([*outputs, *(c for c, _ in self.inputs), *tied, "~{memory}"])
        operands = [v for _, v in self.inputs] + ([] if self.fresh else self.sums)
        return emit.inline_asm(text, constraints, operands, [v.type for v in self.sums], effects=True)


def _left(conversion: Conversion, op: Any, facts: DotFacts, plan: WgmmaPlan, asm: _Assembly) -> _Place:
    operand = _operand(conversion.get(op.lhs), k_major=not facts.lhs_transposed)
    groups = [operand.offset_bytes(WGMMA_ROWS << i) for i in range(plan.along_m.bit_length() - 1)]
    base = _descriptor(conversion, conversion.get(op.lhs), operand, groups, 0, asm)

    def place(block: int, step: int) -> str:
        rows = block * WGMMA_ROWS * plan.along_m
        return _moved("a", base, operand.offset_bytes(rows) + operand.step_bytes(step))

    return place


def _right(conversion: Conversion, op: Any, facts: DotFacts, plan: WgmmaPlan, asm: _Assembly) -> _Place:
    operand = _operand(conversion.get(op.rhs), k_major=facts.rhs_transposed)
    groups = [operand.offset_bytes(plan.columns << i) for i in range(plan.along_n.bit_length() - 1)]
    skipped = plan.along_m.bit_length() - 1
    base = _descriptor(conversion, conversion.get(op.rhs), operand, groups, skipped, asm)

    def place(start: int, step: int) -> str:
        return _moved("b", base, operand.offset_bytes(start) + operand.step_bytes(step))

    return place


def _left_registers(conversion: Conversion, op: Any, facts: DotFacts, asm: _Assembly) -> _Place:
    words = words_of(without_padding(conversion, conversion.get(op.lhs), op.lhs.type, 1))
    names = [asm.operand("r", word) for word in words]
    steps = -(-facts.k * facts.bits // 8 // K_BYTES)

    def place(block: int, step: int) -> str:
        first = (block * steps + step) * A_WORDS
        return f"{{{','.join(names[first : first + A_WORDS])}}}"

    return place


def _moved(register: str, base: str, num_bytes: int) -> str:
    """A descriptor that starts `num_bytes` further: what computes it, a semicolon, and its name.

    `base` names its low and high half; only the low one, which holds the address, differs.
    """
    low, high = base.split()
    add = f"add.s32 {register}l, {low}, {num_bytes // UNIT_BYTES}; " if num_bytes else ""
    return f"{add}mov.b64 {register}, {{{register + 'l' if num_bytes else low}, {high}}}; {register}"


def _operand(memref: MemRef, *, k_major: bool) -> Operand:
    if memref.box is None or not memref.box.is_whole:
        raise InternalError("an operand of wgmma is not a whole swizzled tile")
    return Operand(memref.box.panels, k_major)


def _descriptor(
    conversion: Conversion, memref: MemRef, operand: Operand, groups: Sequence[int], skipped: int, asm: _Assembly
) -> str:
    """The descriptor of a warpgroup's part: the names of its low half and of its high half.

    `groups` has bytes for the bits of the warpgroup's number from `skipped` on.
    """
    address = emit.value("llvm.ptrtoint", emit.i32(), [memref.pointer])
    weights = [0] * (_WARPGROUP_BIT + skipped) + list(groups)
    weights += [0] * (conversion.threads.num_bits - len(weights))
    offset = conversion.threads.weighted_by_warp(weights)
    address = address if offset is None else emit.add(address, offset)
    units = emit.shr(emit.and_(address, ADDRESS_MASK), UNIT_BYTES.bit_length() - 1)
    low = asm.operand("r", emit.or_(units, operand.constant & 0xFFFFFFFF))
    return f"{low} {operand.constant >> 32:#x}"
