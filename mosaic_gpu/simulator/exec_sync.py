"""Fences, hints and timers: nothing here moves data, so the program order that the machine keeps is enough."""

from __future__ import annotations

from mosaic_gpu.simulator.registry import Decoder, Operation, instruction

_FENCE_WORDS = (
    "sc", "acq_rel", "acquire", "release", "proxy", "alias", "async", "cta", "cluster", "gpu", "sys", "gl",
    "global", "shared::cta", "shared::cluster", "tensormap::generic", "async::generic",
    "sync_restrict::shared::cta", "sync_restrict::shared::cluster", "mbarrier_init", "shared", "generic",
)  # fmt: skip


@instruction("membar", "fence", dests=0)
def exec_fence(d: Decoder) -> Operation | None:
    while d.one_of(_FENCE_WORDS):
        pass
    return None


@instruction("nanosleep", dests=0)
def exec_nanosleep(d: Decoder) -> Operation | None:
    d.src(0, d.type())
    return None


@instruction("griddepcontrol", dests=0)
def exec_griddepcontrol(d: Decoder) -> Operation | None:
    d.one_of(("launch_dependents", "wait"))
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
