"""The example of a PyTorch model with our kernels."""

from __future__ import annotations

import re

import pytest

from tests.support.examples import FOLDER, example

pytest.importorskip("torch", reason="PyTorch is not installed")


def test_a_pytorch_model_trains_with_our_kernels_as_with_pytorchs_functions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))  # it imports another example
    example("torch_rms_norm").main()
    output = capsys.readouterr().out
    first, last = map(float, re.findall(r"loss: (\S+) at first, (\S+) after", output)[0])
    assert last < first / 2
    difference = re.search(r"largest difference from plain PyTorch: (\S+)", output)
    assert difference is not None
    assert float(difference[1]) < 1e-3
