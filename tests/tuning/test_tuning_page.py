"""The page on tuning: its example runs and prints what it shows, and its tables are the code's."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import mosaic_gpu
from mosaic_gpu.tuning.model import ASSUMED_BOUND, OVERLAP_LOSS
from mosaic_gpu.tuning.result import Status
from mosaic_gpu.tuning.work import ASSUMED_TRIPS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tuning.md").read_text()


def _first_column(heading: str) -> set[str]:
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return {row.strip("` ") for row in re.findall(r"^\| ([^|]*)\|", section, re.MULTILINE)} - {"---"}


def test_the_example_runs_and_finds_the_configuration_that_the_page_shows(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "tune.py"
    file.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{code}")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    shown = re.findall(r"^    (best of .*)$", PAGE, re.MULTILINE)
    assert done.stdout.splitlines()[0] == shown[0]
    assert [line.split()[:3] for line in done.stdout.splitlines()[2:4]] == [["128", "256", "64"], ["256", "128", "64"]]


def test_every_status_and_every_option_is_on_the_page() -> None:
    assert _first_column("What becomes of a configuration") == {"status", *get_args(Status)}
    options = {
        name
        for name, parameter in inspect.signature(mosaic_gpu.autotune).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert _first_column("Options") == {"option", *options}


def test_the_numbers_of_the_model_are_the_code_s() -> None:
    assert f"+ {OVERLAP_LOSS} * the sum" in PAGE
    assert f"{ASSUMED_TRIPS} trips" in PAGE
    assert f"{ASSUMED_BOUND} steps" in PAGE
