"""Runs the tests of tests/runtime/stand_in, each file in a process of its own.

There libcuda.so.1 is the stand-in (tests/support/fake_driver), and a process cannot go back from that.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stand_in import ROOT, VARIABLE, compiler

_FOLDER = Path(__file__).parent / "stand_in"


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("file", sorted(path.name for path in _FOLDER.glob("test_*.py")))
def test_on_the_stand_in_driver_everything_passes_of(file: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(_FOLDER / file)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, VARIABLE: "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-12_000:] + done.stderr[-4_000:]
    assert " passed" in done.stdout
