"""wgmma: asynchronous products of a warpgroup (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").

See `warpgroups.py` for when they happen and `descriptors.py` for operands in shared memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.simulator.exec_matrix import require_warp
from mosaic_gpu.simulator.exec_mma import parse_shape, refuse_word, take_words
from mosaic_gpu.simulator.fragments import BITS, registers_of
from mosaic_gpu.simulator.frame import Frame
from mosaic_gpu.simulator.ptx import Immediate, Vector
from mosaic_gpu.simulator.registry import Decoder, Ending, Operation, Successors, ending, instruction
from mosaic_gpu.simulator.warpgroups import GROUP, MatrixOperation, PendingProduct

Array = np.ndarray[Any, np.dtype[Any]]
_DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}
_COLUMNS = frozenset(range(8, 257, 8))
#: N for the integer types: multiples of 8 up to 32, of 16 beyond (PTX ISA, "wgmma.mma_async", shapes).
_INTEGER_COLUMNS = frozenset([8, 16, 24, *range(32, 257, 16)])


@instruction("wgmma", dests=0, converges=True)
def exec_wgmma(d: Decoder) -> Operation | None:
    words = take_words(d)
    if words == ["fence", "sync", "aligned"]:
        d.count(0)
        return None
    if words[:3] != ["mma_async", "sync", "aligned"]:
        raise d.refuse()
    operation = _decode(d, words[3:])
    require_warp(d)
    d.warpgroup = True
    return operation


def _decode(d: Decoder, words: list[str]) -> Operation:
    saturate = "satfinite" in words
    words = [w for w in words if w not in ("satfinite", "and", "popc")]
    if len(words) < 4 or any(w not in BITS for w in words[1:4]):
        raise d.refuse()
    (m, n, k), (kind, a_kind, b_kind) = parse_shape(d, words.pop(0)), words[:3]
    refuse_word(d, words[3:])
    allowed = _INTEGER_COLUMNS if kind == "s32" else _COLUMNS
    if m != 64 or n not in allowed or _DEPTH.get(a_kind) != k or not _types_fit(kind, a_kind, b_kind):
        raise d.refuse("this shape with these types")
    count = registers_of(_ROWS, n, kind, accumulator=True)
    accumulators = _registers(d, 0, count)
    from_registers = isinstance(d.operand(1), Vector)
    a_registers = _registers(d, 1, 4) if from_registers else ()
    a = None if from_registers else d.src(1, "b64")
    b = d.src(2, "b64")
    read, negated = d.predicate(d.operand(3))
    signs, majors = _immediates(d, kind, a_kind, from_registers)
    operation = MatrixOperation(
        d.instruction, n, k, kind, a_kind, b_kind, accumulators, a_registers, majors[0], majors[1],
        signs[0], signs[1], saturate,
    )  # fmt: skip
    return _issue(d, operation, a, b, read, negated)


_ROWS = 16


def _types_fit(kind: str, a: str, b: str) -> bool:
    if a in ("f16", "e4m3", "e5m2"):
        return kind in ("f16", "f32") and (b == "f16" if a == "f16" else b in ("e4m3", "e5m2"))
    if a in ("bf16", "tf32"):
        return kind == "f32" and a == b
    return kind == "s32" and (a == b == "b1" or (a in ("s8", "u8") and b in ("s8", "u8")))


def _registers(d: Decoder, index: int, count: int) -> tuple[int, ...]:
    items = d.vector(index)
    if len(items) != count:
        raise d.fail(f"operand {index + 1}: {count} registers expected, got {len(items)}")
    return tuple(d.source(item, "b32") for item in items)


def _immediates(
    d: Decoder, kind: str, a_kind: str, from_registers: bool
) -> tuple[tuple[bool, bool], tuple[bool, bool]]:
    """((A negated, B negated), (A's K contiguous, B's K contiguous))."""
    rest = d.operands[4:]
    if any(not isinstance(item, Immediate) for item in rest):
        raise d.fail("constants expected after scale-d")
    values = [item.value for item in rest if isinstance(item, Immediate)]
    transposes = (1 if from_registers else 2) if a_kind in ("f16", "bf16") else 0
    expected = 0 if kind == "s32" else 2 + transposes
    if len(values) != expected:
        raise d.fail(f"{expected} constants expected after scale-d, got {len(values)}")
    if not values:
        return (False, False), (True, True)
    signs, flags = values[:2], values[2:]
    if any(s not in (-1, 1) for s in signs) or any(f not in (0, 1) for f in flags):
        raise d.fail("imm-scale must be 1 or -1 and imm-trans 0 or 1")
    flags = [0] * (2 - len(flags)) + flags
    return (signs[0] == -1, signs[1] == -1), (flags[0] == 0, flags[1] == 0)


def _issue(d: Decoder, operation: MatrixOperation, a: int | None, b: int, read: int, negated: bool) -> Operation:
    def run(slots: list[Array], frame: Frame) -> None:
        wave = frame.wave
        threads = _groups(d, frame)
        descriptor = None if a is None else _uniform(d, frame, slots[a], "descriptors of A")
        reads = _uniform(d, frame, slots[read], "predicates scale-d") ^ negated
        pending = PendingProduct(
            operation, threads, wave.warpgroups.group[threads[:, 0]], descriptor,
            _uniform(d, frame, slots[b], "descriptors of B"), reads,
        )  # fmt: skip
        if wave.timing.early():
            pending.product = wave.warpgroups.product(pending, _words(operation, slots, frame))
        wave.warpgroups.issue(pending)

    return run


def _words(operation: MatrixOperation, slots: list[Array], frame: Frame) -> Array | None:
    """A's registers as they are now: (warps, registers * 32)."""
    if not operation.a_registers:
        return None
    columns = [np.broadcast_to(slots[a], frame.n).reshape(-1, 32) for a in operation.a_registers]
    return np.stack(columns, axis=1).reshape(frame.n // 32, -1)


def _groups(d: Decoder, frame: Frame) -> Array:
    """The threads of the frame as whole warpgroups, (groups, 128)."""
    tid = frame.pick(frame.wave.tid)
    if frame.n % GROUP or (tid.reshape(-1, GROUP) % GROUP != np.arange(GROUP)).any():
        raise frame.error(d.instruction, "not all 128 threads of the warpgroup are here", 0)
    return frame.ids.reshape(-1, GROUP)


def _uniform(d: Decoder, frame: Frame, value: Array, what: str) -> Array:
    """One value per warpgroup."""
    if len(value) == 1:
        return np.broadcast_to(value, frame.n // GROUP)
    groups = value.reshape(-1, GROUP)
    if (groups != groups[:, :1]).any():
        position = int(np.argmax((groups != groups[:, :1]).reshape(-1)))
        raise frame.error(d.instruction, f"the threads of a warpgroup give different {what}", position)
    return groups[:, 0].copy()


@ending("wgmma.commit_group")
def end_commit(d: Decoder, after: int) -> Ending:
    refuse_word(d, [w for w in take_words(d) if w not in ("commit_group", "sync", "aligned")])
    d.count(0)

    def end(slots: list[Array], frame: Frame) -> Successors:
        groups = frame.wave.warpgroups
        groups.commit(frame.ids)
        if frame.wave.timing.early():
            groups.wait(frame.ids, 0)
        return after

    return end


@ending("wgmma.wait_group")
def end_wait(d: Decoder, after: int) -> Ending:
    refuse_word(d, [w for w in take_words(d) if w not in ("wait_group", "sync", "aligned")])
    d.count(1)
    most = d.operand(0)
    if not isinstance(most, Immediate) or most.value < 0:
        raise d.fail("the number of groups must be a constant")

    def end(slots: list[Array], frame: Frame) -> Successors:
        frame.wave.warpgroups.wait(frame.ids, most.value)
        return after

    return end
