"""The code on the page about PyTorch runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

PAGE = Path(__file__).parents[2] / "docs/pytorch.md"


def test_the_model_on_the_page_trains(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = tmp_path / "page.py"
    file.write_text(code)
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    (loss,) = re.findall(r"loss: (\S+)", done.stdout)
    assert float(loss) < 5
