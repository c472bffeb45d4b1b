"""The pictures.  Importing this needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

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
_STAGES = ("dialect", "layouts", "pipelined", "nvvm", "llvm", "ptx", "cubin", "rest")
_STAGE_COLOURS = ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#f0e442", "#cc79a7", "#d55e00", "#999999")


def shares(cases: Sequence[dict[str, Any]], gpu: str) -> Figure:
    """Bars of each contender's share of the roofline: a panel for each operation, two of them in a row."""
    operations = list(dict.fromkeys(case["operation"] for case in cases))
    panels = [[case for case in cases if case["operation"] == name] for name in operations]
    rows = [panels[i : i + 2] for i in range(0, len(panels), 2)]
    heights = [max(sum(_height(case) for case in panel) for panel in row) for row in rows]
    columns = min(2, len(panels))
    inches = 1.2 + sum(_BAR_INCHES * height + 0.7 for height in heights)
    figure = Figure(figsize=(8.5 * columns, inches), layout="constrained")
    grid = figure.add_gridspec(len(rows), columns, height_ratios=heights)
    for row, both in enumerate(rows):
        for column, panel in enumerate(both):
            _panel(figure.add_subplot(grid[row, column]), panel)
    figure.suptitle(
        f"Share of the roofline on {gpu}, in percent (whiskers: 10th and 90th percentile; beside: the median)"
    )
    handles = [
        Patch(color=colour, label=name) for name, colour in _COLOURS.items() if any(_timed(c, name) for c in cases)
    ]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure


_BAR_INCHES = 0.16


def _height(case: dict[str, Any]) -> int:
    """Of a case, in bars: those that there are, and the space behind them."""
    return max(2, sum(_timed(case, name) is not None for name in _COLOURS)) + 1


def _panel(axes: Any, cases: Sequence[dict[str, Any]]) -> None:
    """The cases of one operation, below each other."""
    top, places, furthest = 0, [], 100.0
    for case in cases:
        rows = [(name, row) for name in _COLOURS if (row := _timed(case, name)) is not None]
        for at, (name, row) in enumerate(rows, top):
            share, least = 100 * row["share"], 100 * case["roofline_us"]
            low, high = least / row["high"], least / row["low"]
            axes.barh(at, share, 0.9, color=_COLOURS[name])
            around = [[max(share - low, 0)], [max(high - share, 0)]]
            axes.errorbar(share, at, xerr=around, color="#333333", linewidth=0.8, capsize=1.5)
            axes.text(max(high, share) + 1, at, _duration(row["median"]), va="center", fontsize=7)
            furthest = max(furthest, high)
        places.append(top + (_height(case) - 2) / 2)
        top += _height(case)
    labels = [case["name"].removeprefix(f"{case['operation']}_") + f"\n{_bound(case)}" for case in cases]
    axes.set_yticks(places, labels, fontsize=7.5)
    axes.set_ylim(top - 0.5, -1)
    axes.set_xlim(0, furthest + 14)
    axes.axvline(100, color="#333333", linewidth=0.8, linestyle="--")
    axes.set_title(cases[0]["operation"], fontsize=10)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _duration(microseconds: float) -> str:
    return f"{microseconds:,.0f} us" if microseconds >= 100 else f"{microseconds:.3g} us"


def _timed(case: dict[str, Any], name: str) -> dict[str, Any] | None:
    rows = (row for row in case["contenders"] if row["contender"] == name and row["status"] == TIMED)
    return next(rows, None)


def _bound(case: dict[str, Any]) -> str:
    return f"({case['bound']} bounds it)" if "bound" in case else "(did not run)"


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
