"""What a machine without PyTorch says."""

from __future__ import annotations

from typing import Any

import pytest

import mosaic_gpu
import mosaic_gpu.pytorch
from mosaic_gpu.errors import ToolError


def test_as_torch_names_what_to_install_where_pytorch_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mosaic_gpu.pytorch, "find_spec", lambda name: None)

    def fn(x: Any) -> Any:
        return x

    with pytest.raises(ToolError, match=r"PyTorch is not installed\n  what to do: pip install 'mosaic-gpu\[torch\]'"):
        mosaic_gpu.as_torch(fn)
