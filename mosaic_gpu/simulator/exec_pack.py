"""cvt.pack: two integers converted with saturation and packed (PTX ISA, "cvt.pack")."""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.simulator.exec_mma import take_words
from mosaic_gpu.simulator.registry import Decoder, Operation

Array = np.ndarray[Any, np.dtype[Any]]
_WIDTHS = (2, 4, 8, 16)


def convert_and_pack(d: Decoder) -> Operation:
    """cvt.pack.sat.type.s32 d, a, b for 16 bits; cvt.pack.sat.type.s32.b32 d, a, b, c for fewer, where c moves up
    to make room: d = c << 2 size | a << size | b."""
    words = take_words(d)
    if words[:2] != ["pack", "sat"] or len(words) < 4 or words[3] != "s32" or words[2][0] not in "us":
        raise d.refuse()
    width = int(words[2][1:]) if words[2][1:].isdigit() else 0
    if width not in _WIDTHS or words[4:] != ([] if width == 16 else ["b32"]):
        raise d.refuse()
    d.count(3 if width == 16 else 4)
    o, a, b = d.dst(0, "b32"), d.src(1, "s32"), d.src(2, "s32")
    c = None if width == 16 else d.src(3, "b32")
    signed = words[2][0] == "s"
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    mask = np.uint32((1 << width) - 1)

    def run(slots: list[Array], frame: Any) -> None:
        upper, lower = (np.clip(slots[s], low, high).astype(np.uint32) & mask for s in (a, b))
        result = upper << np.uint32(width) | lower
        slots[o][...] = result if c is None else result | slots[c] << np.uint32(2 * width)

    return run
