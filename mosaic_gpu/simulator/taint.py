"""Uninitialised values: followed from where they arise to where they matter.

A load of bytes that were never written, or a register that is read before it is written on the thread's path, is
no fault by itself: compilers load a whole vector and drop what a mask excludes.  So such a value is followed, bit by
bit where it is moved, packed or masked, else as a whole, and the fault is reported where it has an effect: it is
stored to global memory, is part of an address, decides a branch or a predicate, or goes into an atomic.

    instruction         result is uninitialised where
    mov, cvt to fewer   the bits are
    selp                the chosen operand is (or the predicate)
    prmt, bfi, bfe, ..  the bits are, where constants say which
    and, or             an operand is, unless another one has a known 0 (or 1) there
    add, sub, mul.lo    an operand is, there or at a lower bit
    st.shared           the bytes count as not written
    shfl                the source lane's value is
    x2 arithmetic       that half is, in any operand; cvt to x2: the operand that becomes that half
    others              any operand is
    mma, vote, redux    never (not followed)

As long as there is no such value nothing is looked at and nothing is lost; while there is one, blocks run
instruction by instruction in `run_block`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mosaic_gpu.simulator.assignment import Effects, registers
from mosaic_gpu.simulator.exec_warp import source_lanes
from mosaic_gpu.simulator.ptx import TYPES, Immediate, Instruction, Operand, Register, Vector

if TYPE_CHECKING:
    from mosaic_gpu.simulator.frame import Frame
    from mosaic_gpu.simulator.prepare import Block
    from mosaic_gpu.simulator.wave import Wave

Array = np.ndarray[Any, np.dtype[Any]]
Key = tuple[str, str]
_U64 = np.uint64
_ALL = _U64(0xFFFFFFFFFFFFFFFF)
_UNFOLLOWED = frozenset(["mma", "wgmma", "wmma", "ldmatrix", "vote", "match", "redux", "activemask", "elect"])
_MEMORY = frozenset(["ld", "ldu", "st", "atom", "red", "cp", "stmatrix", "mbarrier", "prefetch"])


class Taint:
    """The uninitialised bits of registers: per register a mask for each thread, and where they come from."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        self.bits: dict[Key, Array] = {}
        self.origins: dict[Key, str] = {}
        self.storing: list[Array] | None = None
        self.store_origin = ""
        for key in wave.kernel.unassigned:
            self.bits[key] = np.full(wave.T, _ALL)
            self.origins[key] = f"register {key[1].partition('#')[0]}, which nothing has written on this path"

    def mark(self, key: Key, ids: Array, bad: Array, origin: str) -> None:
        """The register holds uninitialised values in the threads `ids` where `bad`."""
        bits = self.bits.get(key)
        if bits is None:
            bits = self.bits[key] = np.zeros(self.wave.T, _U64)
        bits[ids[bad]] = _ALL
        self.origins[key] = origin

    def run_block(self, block: Block, slots: list[Array], frame: Frame, start: int) -> None:
        """Runs the operations of a block from `start` on."""
        for position in range(start, len(block.operations)):
            effects = block.steps[position]
            if effects is None or not self.bits:
                block.operations[position](slots, frame)
            else:
                _Step(self, block, effects, slots, frame).run(block.operations[position])

    def check_ending(self, block: Block, slots: list[Array], frame: Frame) -> None:
        """The instruction that ends a block must not depend on an uninitialised value."""
        if not block.instructions or not block.effects:
            return
        effects = block.effects[-1]
        step = _Step(self, block, effects, slots, frame)
        step.check_guard()
        if effects.instruction.opcode in ("brx", "bar", "barrier", "mbarrier"):
            for name in effects.reads:
                step.require(name, "used")
        step.assign(None)


class _Step:
    """One instruction of one frame."""

    def __init__(self, taint: Taint, block: Block, effects: Effects, slots: list[Array], frame: Frame) -> None:
        self.taint, self.block, self.effects, self.slots, self.frame = taint, block, effects, slots, frame
        self.instruction: Instruction = effects.instruction
        guard = self.instruction.guard
        self.active: Array | None = None
        if guard is not None:
            value = self.value(guard.name)
            if value is not None:
                self.active = np.broadcast_to(~value if self.instruction.guard_negated else value, frame.n).copy()

    def key(self, name: str) -> Key:
        return self.block.function, name

    def of(self, name: str) -> Array | None:
        """The uninitialised bits of a register, None if there are none."""
        bits = self.taint.bits.get(self.key(name))
        if bits is None:
            return None
        mine = self.frame.pick(bits)
        return mine if mine.any() else None

    def value(self, name: str) -> Array | None:
        """What a register holds."""
        row = self.frame.wave.kernel.slots.rows.get(self.key(name))
        for slot, view in self.block.rows.get(row, ()) if row is not None else ():
            if view.step == 1:
                return self.slots[slot]
        return None

    def check_guard(self) -> None:
        guard = self.instruction.guard
        if guard is not None:
            self.require(guard.name, "its predicate", everyone=True)

    def require(self, name: str, role: str, *, everyone: bool = False) -> None:
        """Raises SimulationError if the register is uninitialised in a thread that runs the instruction."""
        bits = self.of(name)
        if bits is None:
            return
        bad = bits != 0
        if self.active is not None and not everyone:
            bad = bad & self.active
        if bad.any():
            raise self.fault(name, role, int(np.argmax(bad)))

    def fault(self, name: str, role: str, position: int) -> Exception:
        return self.frame.error(
            self.instruction,
            f"an uninitialised value is {role}: {name.partition('#')[0]}\n  it comes from "
            f"{self.taint.origins.get(self.key(name), 'an unknown place')}", position,
        )  # fmt: skip

    def run(self, operation: Any) -> None:
        self.check_guard()
        opcode = self.instruction.opcode
        if opcode in _MEMORY:
            self.memory(operation)
            return
        sources = [name for name in self.effects.reads if self.of(name) is not None]
        result = self.follow(sources) if sources and opcode not in _UNFOLLOWED else None
        operation(self.slots, self.frame)
        if isinstance(result, list):
            for name, bits in result:
                self.put(name, bits, sources)
        else:
            self.assign(result, sources)

    def memory(self, operation: Any) -> None:
        """Addresses and the operands of atomics must be known; what is stored is noted for `storing`."""
        store = self.instruction.opcode == "st"
        values = {r.name for r in registers(self.instruction.operands[1])} if store else set()
        for name in self.effects.reads:
            if name not in values:
                self.require(name, "part of an address or an operand")
        if store:
            addresses = {r.name for r in registers(self.instruction.operands[0])}
            for name in values & addresses:
                self.require(name, "part of an address")
            self.note_stored()
        self.assign(None)
        operation(self.slots, self.frame)
        self.taint.storing = None

    def note_stored(self) -> None:
        taint, operand = self.taint, self.instruction.operands[1]
        items = operand.items if isinstance(operand, Vector) else (operand,)
        width = _U64(_width(self.instruction))
        masks, found = [], ""
        for item in items:
            mask = np.zeros(taint.wave.T, np.bool_)
            bits = self.of(item.name) if isinstance(item, Register) else None
            if bits is not None and isinstance(item, Register):
                mask[self.frame.ids] = bits & width != 0
                found = f"{item.name.partition('#')[0]}\n  it comes from {taint.origins.get(self.key(item.name), '')}"
            masks.append(mask)
        if found:
            taint.storing, taint.store_origin = masks, found

    def assign(self, bits: Array | None, sources: list[str] | None = None) -> None:
        """The same bits for every register that the instruction writes."""
        for name in self.effects.writes:
            self.put(name, bits, sources or [])

    def put(self, name: str, bits: Array | None, sources: list[str]) -> None:
        taint, key = self.taint, self.key(name)
        old = taint.bits.get(key)
        if old is None and (bits is None or not bits.any()):
            return
        if old is None:
            old = taint.bits[key] = np.zeros(taint.wave.T, _U64)
        new: Any = _U64(0) if bits is None else bits
        ids = self.frame.ids
        old[ids] = new if self.active is None else np.where(self.active, new, old[ids])
        if bits is not None and bits.any() and sources:
            taint.origins[key] = taint.origins[self.key(sources[0])]
        if not old.any():
            del taint.bits[key]

    def follow(self, sources: list[str]) -> Any:
        """The uninitialised bits of the result, or (register, bits) of each one."""
        opcode, words = self.instruction.opcode, self.instruction.modifiers
        if opcode == "selp":
            return self.select()
        if opcode == "mov":
            return self.move()
        if opcode in ("and", "or") and len(self.instruction.operands) == 3:
            return self.logic(_U64(0) if opcode == "and" else _ALL)
        if opcode == "shfl":
            return self.shuffle()
        if opcode == "cvt" and _types_of(words)[:1] in (["f16x2"], ["bf16x2"]) and len(self.instruction.operands) == 3:
            high, low = (self.bits_of(operand) != 0 for operand in self.instruction.operands[1:])
            return low * _U64(0xFFFF) + high * _U64(0xFFFF0000)
        if opcode in ("prmt", "shl", "shr", "bfe", "bfi"):
            exact = self.rearrange()
            if exact is not None:
                return exact
        total = np.bitwise_or.reduce([self.bits_of(r) for o in self.instruction.operands for r in registers(o)
                                      if r.name in sources])  # fmt: skip
        types = _types_of(words)
        if opcode == "cvt" and len(types) == 2 and all(t[0] in "su" for t in types):
            total = total & _U64((1 << 8 * min(TYPES[t].itemsize for t in types)) - 1)
            if types[-1][0] == "u" and "sat" not in words:
                return total
        elif opcode in ("xor", "not"):
            return total
        elif types and types[-1].endswith("x2") and opcode != "cvt":
            low, high = total & _U64(0xFFFF) != 0, total >> _U64(16) & _U64(0xFFFF) != 0
            return low * _U64(0xFFFF) + high * _U64(0xFFFF0000)
        elif _carries_upwards(opcode, words):
            return ~((total & (~total + _U64(1))) - _U64(1))
        return np.where(total != 0, _ALL, _U64(0))

    def bits_of(self, operand: Operand) -> Array:
        """The uninitialised bits of an operand."""
        bits = self.of(operand.name) if isinstance(operand, Register) else None
        return np.zeros(self.frame.n, _U64) if bits is None else bits

    def select(self) -> Array:
        _, a, b, p = self.instruction.operands
        value = self.value(p.name) if isinstance(p, Register) else None
        doubt = np.where(self.bits_of(p) != 0, _ALL, _U64(0))
        if value is None:
            return np.asarray(self.bits_of(a) | self.bits_of(b) | doubt)
        return np.asarray(np.where(value, self.bits_of(a), self.bits_of(b)) | doubt)

    def logic(self, dominant: np.uint64) -> Array:
        """and, or: a bit that is known to be `dominant`'s decides whatever the other is."""
        _, a, b = self.instruction.operands
        bits = [self.bits_of(a), self.bits_of(b)]
        total = bits[0] | bits[1]
        for operand, own in zip((a, b), bits, strict=True):
            value = self.known(operand)
            if value is not None:
                total = total & ~(~(value ^ dominant) & ~own)
        if self.instruction.modifiers == ("pred",):
            total = np.where(total & _U64(1), _ALL, _U64(0))
        return np.asarray(total)

    def rearrange(self) -> Array | None:
        """prmt, shl, shr, bfe and bfi of unsigned values by constants move the bits."""
        opcode, words, operands = self.instruction.opcode, self.instruction.modifiers, self.instruction.operands
        constants = [o.value for o in operands[1:] if isinstance(o, Immediate)]
        if opcode == "prmt":
            if words != ("b32",) or not isinstance(operands[3], Immediate):
                return None
            both = self.bits_of(operands[1]) & _U64(0xFFFFFFFF) | self.bits_of(operands[2]) << _U64(32)
            total = np.zeros(self.frame.n, _U64)
            for byte in range(4):
                code = operands[3].value >> 4 * byte
                part = both >> _U64(8 * (code & 7)) & _U64(0xFF)
                part = np.where(part & _U64(0x80), _U64(0xFF), _U64(0)) if code & 8 else part
                total |= part << _U64(8 * byte)
            return total
        width = 8 * TYPES[words[-1]].itemsize
        if words[-1][0] == "s" or len(constants) != (2 if opcode in ("bfe", "bfi") else 1):
            return None
        if opcode == "bfi":
            start, field = min(constants[0] & 0xFF, 63), (1 << min(constants[1] & 0xFF, 63)) - 1
            kept = self.bits_of(operands[2]) & _U64(~(field << start) & int(_ALL))
            return np.asarray(kept | (self.bits_of(operands[1]) & _U64(field)) << _U64(start))
        bits = self.bits_of(operands[1]) & _U64((1 << width) - 1)
        start = min(constants[0] & 0xFFFFFFFF, 63)
        if opcode == "shl":
            return bits << _U64(start)
        return bits >> _U64(start) & _U64((1 << min(constants[-1] & 0xFF, 63)) - 1 if opcode == "bfe" else int(_ALL))

    def known(self, operand: Operand) -> Array | None:
        if isinstance(operand, Immediate):
            return np.full(1, operand.value & int(_ALL), _U64)
        value = self.value(operand.name) if isinstance(operand, Register) else None
        if value is None:
            return None
        return np.where(value, _ALL, _U64(0)) if value.dtype == np.bool_ else value.astype(_U64)

    def move(self) -> Any:
        target, source = self.instruction.operands
        width = TYPES[self.instruction.modifiers[-1]].itemsize * 8
        if isinstance(source, Vector):
            part, total = width // len(source.items), np.zeros(self.frame.n, _U64)
            for i, item in enumerate(source.items):
                total |= (self.bits_of(item) & _U64((1 << part) - 1)) << _U64(part * i)
            return total
        bits = self.bits_of(source)
        if not isinstance(target, Vector):
            return bits
        part = width // len(target.items)
        return [(item.name, bits >> _U64(part * i) & _U64((1 << part) - 1))
                for i, item in enumerate(target.items) if isinstance(item, Register)]  # fmt: skip

    def shuffle(self) -> Array:
        """The bits of the lane that the value comes from."""
        mode = next(w for w in self.instruction.modifiers if w in ("up", "down", "bfly", "idx"))
        value, lanes, clamp = self.instruction.operands[1:4]
        b, c = self.known(lanes), self.known(clamp)
        own = self.bits_of(value)
        if b is None or c is None:
            return own
        lane = self.frame.pick(self.frame.wave.lane)
        source, _ = source_lanes(mode, lane, b.astype(np.int64), c.astype(np.int64))
        everyone = np.zeros(self.frame.wave.T, _U64)
        everyone[self.frame.ids] = own
        return np.asarray(everyone[np.minimum(self.frame.ids - lane + source, self.frame.wave.T - 1)])


def _types_of(words: tuple[str, ...]) -> list[str]:
    """The types among an instruction's modifiers."""
    return [w for w in words if w in TYPES]


def _carries_upwards(opcode: str, words: tuple[str, ...]) -> bool:
    """Whether a bit of the result depends on the operands' bits there and below alone: sums and low products."""
    is_sum = opcode in ("add", "sub") or (opcode in ("mul", "mad") and "lo" in words)
    return is_sum and words[-1] in ("s16", "u16", "s32", "u32", "s64", "u64") and not {"cc", "sat"} & set(words)


def _width(instruction: Instruction) -> int:
    kind = next(w for w in reversed(instruction.modifiers) if w in TYPES)
    return (1 << 8 * TYPES[kind].itemsize) - 1
