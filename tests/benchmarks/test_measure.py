"""How contenders are timed and what becomes of those that fail, by the host's clock, which needs no GPU."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.suite import report
from benchmarks.suite.cases import Case
from benchmarks.suite.contender import Contender, Prepared
from benchmarks.suite.measure import FAILED, NOT_APPLICABLE, TIMED, Effort, Measured, Roofline, Row, time_rounds
from benchmarks.suite.operation import Tolerance
from mosaic_gpu.errors import KernelError

LIMITS = Roofline(flops=1e3, bytes=1e3, flops_per_s=1e12, bytes_per_s=1e12)
CASE = Case("softmax_f32_4x4", "softmax", "float32", {"m": 4, "n": 4}, (1,))


def timed(effort: Effort, **runs: Any) -> tuple[list[Row], list[str]]:
    """The rows of contenders with these functions, and who ran in which order, repetitions left out."""
    log: list[str] = []
    ready = []
    for name, run in runs.items():

        def logged(number: int, name: str = name, run: Any = run) -> Any:
            log.append(name)
            return run(number)

        prepared = Prepared(logged, list, wait=lambda _: None, calls=2)
        ready.append((Contender(name, "", {}, (ValueError,)), Row(name, "", TIMED), prepared))
    time_rounds(ready, effort, LIMITS)
    return [row for _, row, _ in ready], [name for name, _ in itertools.groupby(log)]


def test_in_each_round_another_contender_begins_and_all_are_timed() -> None:
    effort = Effort(rounds=3, repeats=2, min_seconds=0.0, warmup=1)
    rows, order = timed(effort, a=lambda _: None, b=lambda _: None, c=lambda _: None)
    assert order == [*"abc", *"bca", *"cab"]
    for row in rows:
        assert row.status == TIMED
        assert row.samples == 6
        assert row.median is not None
        assert row.share == pytest.approx(LIMITS.least_us / row.median)


def test_a_contender_that_fails_while_it_is_timed_does_not_stop_the_others() -> None:
    def fail(_: int) -> None:
        raise ValueError("no more\nmemory")

    effort = Effort(rounds=2, repeats=2, min_seconds=0.0, warmup=1)
    (good, bad), order = timed(effort, good=lambda _: None, bad=fail)
    assert (good.status, bad.status, bad.reason) == (TIMED, FAILED, "ValueError: no more")
    assert bad.median is None
    assert order == ["good", "bad", "good"]


def test_calls_see_numbers_that_count_on_so_that_inputs_rotate() -> None:
    seen: list[int] = []
    timed(Effort(rounds=1, repeats=2, min_seconds=0.0, warmup=1), one=seen.append)
    assert seen == list(range(len(seen)))
    assert len(seen) > 5


def measured(*rows: Row) -> Measured:
    return Measured(CASE, LIMITS, Tolerance(1e-3, 0.0, "because"), list(rows), 2, True, None)


def good(name: str, median: float) -> Row:
    return Row(name, "how", TIMED, "", "events", 0.5, median, 0.9 * median, 1.2 * median, 10, 1e-3 / median)


def test_the_table_tells_times_rates_shares_and_who_is_faster() -> None:
    rows = good("mosaic_gpu", 2.0), good("torch", 3.0), Row("jax", "how", NOT_APPLICABLE, "no such mask")
    lines = [report.line(row, measured(*rows)) for row in rows]
    # 1000 bytes in 3 us are 0.33 GB/s, and 1 ns of 3 us is 0.033 percent.
    assert lines[1].split() == ["torch", "3.00", "2.70", "3.60", "0.0", "0", "0.0%", "1.50x", "0.50", "events", "how"]
    assert lines[2].strip() == "jax         not applicable: no such mask"


def test_numbers_that_json_has_not_are_words(tmp_path: Path) -> None:
    wrong = Row("mosaic_gpu", "how", "wrong", "off", "events", float("inf"))
    content = {"cases": [report.case_content(measured(wrong))]}
    report.write_json(tmp_path / "deep" / "numbers.json", content)
    (case,) = json.loads((tmp_path / "deep" / "numbers.json").read_text())["cases"]
    assert case["contenders"][0]["error"] == "inf"
    assert not report.is_right(content["cases"])
    assert "NOT right in softmax_f32_4x4 (wrong)" in report.summary(content["cases"])


def test_no_row_of_ours_is_not_right() -> None:
    assert not report.is_right([])
    assert report.is_right([report.case_content(measured(good("mosaic_gpu", 2.0), Row("jax", "", FAILED)))])


def test_the_picture_has_a_panel_for_each_operation_and_bars_for_who_was_timed(tmp_path: Path) -> None:
    from benchmarks.suite import plot

    one = report.case_content(measured(good("mosaic_gpu", 2.0), good("torch", 3.0), Row("jax", "", FAILED, "x")))
    other = {**report.failed_case(CASE, KernelError("too large")), "operation": "matmul"}
    figure = plot.shares([one, other], "a GPU")
    softmax, matmul = figure.axes
    assert (softmax.get_title(), matmul.get_title()) == ("softmax", "matmul")
    assert (len(softmax.patches), len(matmul.patches)) == (2, 0)
    assert softmax.patches[0].get_width() == pytest.approx(100 * LIMITS.least_us / 2.0)
    report.write_plot(tmp_path / "shares.png", {"cases": [one, other], "gpu": {"name": "a GPU"}})
    assert (tmp_path / "shares.png").read_bytes()[:4] == b"\x89PNG"
