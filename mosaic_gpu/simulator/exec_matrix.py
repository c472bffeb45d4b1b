"""ldmatrix and stmatrix: 8x8 matrices of 16-bit elements between shared memory and a warp's registers.

Lane 8 i + r gives the address of row r of matrix i.  In registers, lane t holds the elements 2 (t % 4) and
2 (t % 4) + 1 of row t // 4 (with .trans, of column t // 4): PTX ISA, ldmatrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.simulator.exec_memory import access_of, fetch, place_name, put
from mosaic_gpu.simulator.frame import Frame
from mosaic_gpu.simulator.memory import Access
from mosaic_gpu.simulator.ptx import TYPES
from mosaic_gpu.simulator.registry import Decoder, Operation, instruction

Array = np.ndarray[Any, np.dtype[Any]]
_ROW_BYTES = 16
_WORD = TYPES["b32"]


def _shape(d: Decoder) -> tuple[int, bool, str]:
    """(number of matrices, transposed, space); consumes the modifiers."""
    if not (d.flag("sync") and d.flag("aligned") and d.flag("m8n8")) or d.type() != "b16":
        raise d.refuse()
    count = int(d.need(("x1", "x2", "x4"))[1:])
    transposed = d.flag("trans")
    space = d.one_of(("shared", "shared::cta")).partition("::")[0]
    require_warp(d)
    return count, transposed, space


def require_warp(d: Decoder) -> None:
    """The instruction waits for all lanes of the warp."""
    d.member_mask = d.slots.constant(np.uint32(0xFFFFFFFF), _WORD)
    d.reads.append(d.member_mask)


def whole_warps(d: Decoder, frame: Frame) -> None:
    """Raises SimulationError unless all 32 lanes of each warp are in the frame."""
    if frame.threads is None and frame.wave.per_block % 32 == 0:
        return
    lanes = frame.pick(frame.wave.lane)
    if frame.n % 32 or not np.array_equal(lanes.reshape(-1, 32), np.broadcast_to(np.arange(32), (frame.n // 32, 32))):
        raise frame.error(d.instruction, "not all 32 lanes of the warp are here", 0)


def _rows_frame(d: Decoder, frame: Frame, count: int, access: Access, extra: tuple[int, ...] = ()) -> Frame:
    """The frame of the lanes whose addresses count; all warps must be whole."""
    whole_warps(d, frame)
    lanes = frame.pick(frame.wave.lane)
    return frame if count == 4 else frame.sub(np.flatnonzero(lanes < 8 * count), (access.slot, *extra), ())


@instruction("ldmatrix", converges=True)
def exec_ldmatrix(d: Decoder) -> Operation:
    count, transposed, space = _shape(d)
    access = access_of(d, 1, space, _ROW_BYTES, place_name(space, "matrix load"))
    targets = [d.destination(item, "b32") for item in d.vector(0)]
    if len(targets) != count:
        raise d.fail(f"{count} destinations expected")

    def run(slots: list[Array], frame: Frame) -> None:
        some = _rows_frame(d, frame, count, access)
        rows = np.empty((some.n, 4), np.uint32)
        for region, index, chosen in access.reach(some.V, some):
            rows[... if chosen is None else chosen] = fetch(access, region, index, _WORD, 4, some, chosen)
        matrices = rows.reshape(-1, count, 8, 4)
        for i, target in enumerate(targets):
            slots[target][...] = _to_lanes(matrices[:, i], transposed)

    return run


def _to_lanes(matrix: Array, transposed: bool) -> Array:
    """(warps, 8 rows, 4 words) -> the word of each lane."""
    if transposed:
        halves = np.ascontiguousarray(matrix).view(np.uint16).reshape(-1, 8, 8)
        matrix = np.ascontiguousarray(halves.transpose(0, 2, 1)).view(np.uint32)
    return matrix.reshape(-1)


@instruction("stmatrix", dests=0, converges=True)
def exec_stmatrix(d: Decoder) -> Operation:
    count, transposed, space = _shape(d)
    access = access_of(d, 0, space, _ROW_BYTES, place_name(space, "matrix store"))
    sources = [d.source(item, "b32") for item in d.vector(1)]
    if len(sources) != count:
        raise d.fail(f"{count} sources expected")

    def run(slots: list[Array], frame: Frame) -> None:
        some = _rows_frame(d, frame, count, access)
        words = [np.broadcast_to(slots[a], frame.n).reshape(-1, 8, 4) for a in sources]
        matrices = np.stack([_to_lanes(w, transposed).reshape(-1, 8, 4) for w in words], axis=1)
        rows = matrices.reshape(some.n, 4)
        for region, index, chosen in access.reach(some.V, some):
            part = rows if chosen is None else rows[chosen]
            put(access, region, index, _WORD, list(part.T), some, chosen)

    return run
