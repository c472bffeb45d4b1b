"""The pictures.  Importing this needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from .measure import TIMED

# Okabe and Ito's colours, which people see apart who do not see red or green.
_COLOURS = {
    "mosaic_gpu": "#0072b2",
    "torch": "#d55e00",
    "torch-flash": "#e69f00",
    "jax": "#009e73",
    "mosaic": "#cc79a7",
    "triton": "#56b4e9",
}
_OTHER = "#999999"
_STAGES = ("dialect", "layouts", "pipelined", "nvvm", "llvm", "ptx", "cubin", "rest")
_STAGE_COLOURS = ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#f0e442", "#cc79a7", "#d55e00", "#999999")


def shares(cases: Sequence[dict[str, Any]], gpu: str) -> Figure:
    """Bars of each contender's share of the roofline, cases below each other, with low and high as whiskers."""
    names = [n for n in _COLOURS if any(_timed(case, n) for case in cases)]
    height = 0.8 / max(len(names), 1)
    figure = Figure(figsize=(11, 1.6 + len(cases) * (0.25 + 0.17 * max(len(names), 1))), layout="constrained")
    axes = figure.subplots()
    for number, name in enumerate(names):
        for place, case in enumerate(cases):
            row = _timed(case, name)
            if row is None:
                continue
            share, least = 100 * row["share"], 100 * case["roofline_us"]
            at = place - 0.4 + height * (number + 0.5)
            axes.barh(
                at,
                share,
                0.9 * height,
                color=_COLOURS.get(name, _OTHER),
                label=name if _is_first(cases, place, name) else None,
            )
            around = [[max(share - least / row["high"], 0)], [max(least / row["low"] - share, 0)]]
            axes.errorbar(share, at, xerr=around, color="#333333", linewidth=0.8, capsize=1.5)
            axes.text(max(least / row["low"], share) + 0.8, at, f"{row['median']:,.0f} us", va="center", fontsize=6.5)
    axes.set_yticks(range(len(cases)), [f"{case['name']}\n{_bound(case)}" for case in cases], fontsize=8)
    axes.invert_yaxis()
    axes.axvline(100, color="#333333", linewidth=0.8, linestyle="--")
    axes.set_xlim(
        0, max(110, *(100 * r["share"] + 10 for c in cases for r in c["contenders"] if r["share"])) if names else 110
    )
    axes.set_xlabel("percent of the roofline (whiskers: 10th and 90th percentile)")
    axes.set_title(f"Share of the roofline on {gpu}")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if names:
        figure.legend(loc="outside lower center", ncols=len(names), frameon=False)
    return figure


def _timed(case: dict[str, Any], name: str) -> dict[str, Any] | None:
    rows = (row for row in case["contenders"] if row["contender"] == name and row["status"] == TIMED)
    return next(rows, None)


def _is_first(cases: Sequence[dict[str, Any]], place: int, name: str) -> bool:
    return not any(_timed(case, name) for case in cases[:place])


def _bound(case: dict[str, Any]) -> str:
    return f"{case['bound']} bounds it" if "bound" in case else "did not run"


def compile_times(content: dict[str, Any]) -> Figure:
    """Bars of the time from jaxpr to cubin, its stages in a row."""
    rows = [row for row in content["without_gpu"]["compile_seconds"] if "error" not in row]
    figure = Figure(figsize=(11, 1.6 + 0.3 * len(rows)), layout="constrained")
    axes = figure.subplots()
    places, left = list(range(len(rows))), [0.0] * len(rows)
    for stage, colour in zip(_STAGES, _STAGE_COLOURS, strict=True):
        widths = [1e3 * row[stage] for row in rows]
        axes.barh(places, widths, 0.75, left=left, color=colour, label=stage)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for place, total in zip(places, left, strict=True):
        axes.text(total, place, f" {total:.0f}", va="center", fontsize=8)
    axes.set_yticks(places, [row["name"] for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds from jaxpr to cubin (sm_90a)")
    axes.set_title("Time to compile, by stage; the machine has no GPU")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=len(_STAGES), frameon=False)
    return figure
