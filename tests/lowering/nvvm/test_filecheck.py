"""The per-thread IR itself, for a few kernels: .mlir files with CHECK lines."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser, pattern_for_opts

from mosaic_gpu import dialect
from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.nvvm import convert_to_nvvm
from mosaic_gpu.lowering.options import LoweringOptions

FILES = sorted(Path(__file__).parent.glob("*.mlir"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_conversion_makes_what_the_file_says(path: Path) -> None:
    with ir.Context():
        dialect.load()
        printed = str(convert_to_nvvm(ir.Module.parse(path.read_text()), LoweringOptions()))
    options = Options(match_filename=str(path))
    parser = Parser(options, io.StringIO(path.read_text()), *pattern_for_opts(options))
    report = io.StringIO()
    with redirect_stderr(report), redirect_stdout(report):
        status = Matcher(options, FInput(path.name, printed), parser).run()
    assert status == 0, f"{report.getvalue()}\n{printed}"


def test_there_are_files_to_check() -> None:
    assert len(FILES) >= 3
