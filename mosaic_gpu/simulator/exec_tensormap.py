"""tensormap.replace and tensormap.cp_fenceproxy (PTX ISA, "Tensormap Manipulation Instructions")."""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.simulator.exec_matrix import require_warp, whole_warps
from mosaic_gpu.simulator.exec_memory import access_of
from mosaic_gpu.simulator.exec_mma import take_words
from mosaic_gpu.simulator.frame import Frame
from mosaic_gpu.simulator.memory import Access, Region
from mosaic_gpu.simulator.ptx import Immediate
from mosaic_gpu.simulator.registry import Decoder, Operation, instruction
from mosaic_gpu.simulator.tensor_map import ELEMENT_TYPES, FIELDS, MAGIC, MAP_BYTES, MAX_RANK, SWIZZLES

Array = np.ndarray[Any, np.dtype[Any]]
#: Fields that take a constant -> how many values there are.
_CHOICES = {"elemtype": len(ELEMENT_TYPES), "interleave_layout": 3, "swizzle_mode": len(SWIZZLES), "fill_mode": 2}
_ORDINALS = {"box_dim": MAX_RANK, "element_stride": MAX_RANK, "global_dim": MAX_RANK, "global_stride": MAX_RANK - 1}
_COPY = ["cp_fenceproxy", "global", "shared::cta", "tensormap::generic", "release", "gpu", "sync", "aligned"]
_MAP_UNIT = 64


@instruction("tensormap", dests=0, converges=True)
def exec_tensormap(d: Decoder) -> Operation:
    words = take_words(d)
    if words[:1] == ["cp_fenceproxy"]:
        return _copy(d, words)
    name = words[2] if len(words) > 2 else ""
    rest = words[3:]
    space = rest.pop(0) if rest and rest[0] in ("global", "shared::cta") else ""
    if (
        words[:2] != ["replace", "tile"]
        or name not in FIELDS
        or rest[:1] != ["b1024"]
        or rest[1:] not in (["b32"], ["b64"])
    ):
        raise d.refuse()
    offset, width, step = FIELDS[name]
    access = access_of(d, 0, space, _MAP_UNIT, "tensor map")
    at = 1
    if name in _ORDINALS:
        offset, at = offset + step * _constant(d, 1, _ORDINALS[name]), 2
    d.count(at + 1)
    if name in _CHOICES:
        _constant(d, at, _CHOICES[name])
    value = d.src(at, rest[1])
    # The rank is given less one (PTX ISA, "tensormap.replace").
    return _replace(access, offset, np.dtype(f"u{width}"), value, 1 if name == "rank" else 0)


def _constant(d: Decoder, index: int, limit: int) -> int:
    operand = d.operand(index)
    if not isinstance(operand, Immediate) or not 0 <= operand.value < limit:
        raise d.fail(f"operand {index + 1}: a constant below {limit} expected")
    return operand.value


def _maps(access: Access, slots: list[Array], frame: Frame) -> list[tuple[Region, int]]:
    """(region, byte) of each thread's tensor map."""
    found: list[tuple[Region, int]] = [None] * frame.n  # type: ignore[list-item]
    for region, index, chosen in access.reach(slots, frame):
        positions = np.arange(frame.n) if chosen is None else chosen
        starts = np.broadcast_to(index, len(positions)) * _MAP_UNIT
        for position, start in zip(positions.tolist(), starts.tolist(), strict=True):
            found[position] = (region, start)
    return found


def _replace(access: Access, offset: int, dtype: np.dtype[Any], value: int, more: int) -> Operation:
    def run(slots: list[Array], frame: Frame) -> None:
        values = np.broadcast_to(slots[value], frame.n).tolist()
        for (region, start), number in zip(_maps(access, slots, frame), values, strict=True):
            access.written(region, frame)
            _begin(region.data[start : start + len(MAGIC)])
            raw = ((number + more) & (1 << 8 * dtype.itemsize) - 1).to_bytes(dtype.itemsize, "little")
            region.data[start + offset : start + offset + dtype.itemsize] = np.frombuffer(raw, np.uint8)

    return run


def _begin(head: Array) -> None:
    """A map may be made from 128 zero bytes by replacing every field: then it becomes one with the first."""
    if not head.any():
        head[...] = np.frombuffer(MAGIC, np.uint8)


def _copy(d: Decoder, words: list[str]) -> Operation:
    """tensormap.cp_fenceproxy: one copy of 128 bytes by each warp."""
    scopes = ("cta", "cluster", "gpu", "sys")
    if len(words) != len(_COPY) or any(w != c and w not in scopes for w, c in zip(words, _COPY, strict=True)):
        raise d.refuse()
    d.count(3)
    if _constant(d, 2, MAP_BYTES + 1) != MAP_BYTES:
        raise d.fail("a size of 128 expected")
    require_warp(d)
    to = access_of(d, 0, "global", _MAP_UNIT, "tensor map")
    of = access_of(d, 1, "shared", _MAP_UNIT, "tensor map")

    def run(slots: list[Array], frame: Frame) -> None:
        whole_warps(d, frame)
        targets, sources = _maps(to, slots, frame), _maps(of, slots, frame)
        for (region, start), (source, at) in zip(targets[::32], sources[::32], strict=True):
            to.written(region, frame)
            region.data[start : start + MAP_BYTES] = source.data[at : at + MAP_BYTES]

    return run
