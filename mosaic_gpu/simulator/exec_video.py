"""The video instructions that compilers still emit for Hopper: vabsdiff2 and vabsdiff4."""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.simulator.registry import Decoder, Operation, instruction

Array = np.ndarray[Any, np.dtype[Any]]


@instruction("vabsdiff2", "vabsdiff4")
def exec_vabsdiff(d: Decoder) -> Operation:
    """vabsdiff4.dtype.atype.btype{.add} d, a, b, c: |a - b| in each byte (or half), or c plus their sum."""
    d.count(4)
    total, result, kinds = d.flag("add"), d.type(0), (d.type(1), d.type(2))
    if any(kind not in ("u32", "s32") for kind in (result, *kinds)):
        raise d.fail("types .u32 or .s32 expected")
    size = 1 if d.instruction.opcode.endswith("4") else 2
    o, a, b, c = d.dst(0, "u32"), d.src(1, "b32"), d.src(2, "b32"), d.src(3, "u32")
    lanes = [np.dtype(f"{'i' if kind == 's32' else 'u'}{size}") for kind in kinds]

    def run(slots: list[Array], frame: Any) -> None:
        x, y = (slots[s].view(t).reshape(-1, 4 // size).astype(np.int64) for s, t in zip((a, b), lanes, strict=True))
        difference = np.abs(x - y)
        if total:
            slots[o][...] = (difference.sum(axis=1) + slots[c]).astype(np.uint32)
        else:
            slots[o][...] = difference.astype(f"u{size}").view(np.uint32).reshape(-1)

    return run
