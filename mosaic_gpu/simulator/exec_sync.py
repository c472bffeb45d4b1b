"""Fences, hints and timers: nothing here moves data.  The machine keeps program order; a fence only tells the race
detector what is ordered."""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.simulator.registry import Decoder, Operation, instruction

Array = np.ndarray[Any, np.dtype[Any]]
_FENCE_WORDS = (
    "sc", "acq_rel", "acquire", "release", "proxy", "alias", "async", "cta", "cluster", "gpu", "sys", "gl",
    "global", "shared::cta", "shared::cluster", "tensormap::generic", "async::generic",
    "sync_restrict::shared::cta", "sync_restrict::shared::cluster", "mbarrier_init", "shared", "generic",
)  # fmt: skip


@instruction("membar", "fence", dests=0)
def exec_fence(d: Decoder) -> Operation | None:
    words = set(d.words)
    while d.one_of(_FENCE_WORDS):
        pass
    if "proxy" in words:
        return _proxy_fence if words & {"async", "async::generic"} else None
    if (d.instruction.opcode == "membar" and "cta" not in words) or words & {"gpu", "sys"}:
        d.layout.fenced = True
    return _fence


def _proxy_fence(slots: list[Array], frame: Any) -> None:
    if frame.wave.races is not None:
        frame.wave.races.proxy_fence(frame.ids)


def _fence(slots: list[Array], frame: Any) -> None:
    if frame.wave.races is not None:
        frame.wave.races.fence(frame.ids)


@instruction("nanosleep", dests=0)
def exec_nanosleep(d: Decoder) -> Operation | None:
    d.src(0, d.type())
    return None


@instruction("griddepcontrol", dests=0)
def exec_griddepcontrol(d: Decoder) -> Operation | None:
    d.one_of(("launch_dependents", "wait"))  # orders grids, not the blocks of one
    return None


@instruction("setmaxnreg", dests=0)
def exec_setmaxnreg(d: Decoder) -> Operation | None:
    d.one_of(("inc", "dec"))
    d.flag("sync")
    d.flag("aligned")
    return None


@instruction("brkpt", "pmevent", dests=0)
def exec_brkpt(d: Decoder) -> Operation | None:
    d.flag("mask")
    return None
