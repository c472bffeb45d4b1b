"""Tools are looked for in the wheels, on PATH and in a toolkit, when they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from mosaic_gpu.lowering import toolpaths
from mosaic_gpu.lowering.toolpaths import find_libdevice, find_nvjitlink, find_tool


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with no wheels of NVIDIA, an empty PATH and no toolkit; a folder to put some in."""
    monkeypatch.setattr(toolpaths, "_wheel_folders", lambda: iter(()))
    monkeypatch.setattr(toolpaths, "_DEFAULT_TOOLKIT", tmp_path / "nowhere")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def _program(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_on_a_bare_machine_nothing_is_found(bare: Path) -> None:
    assert find_tool("ptxas") is None
    assert find_libdevice() is None


def test_a_tool_is_found_on_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = _program(bare / "folder" / "ptxas")
    monkeypatch.setenv("PATH", str(program.parent))
    assert find_tool("ptxas") == program


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
def test_a_toolkit_is_found_through_the_environment_of_now(
    variable: str, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = _program(bare / "cuda" / "bin" / "ptxas")
    library = _program(bare / "cuda" / "nvvm" / "libdevice" / "libdevice.10.bc")
    assert find_tool("ptxas") is None
    monkeypatch.setenv(variable, str(bare / "cuda"))
    assert (find_tool("ptxas"), find_libdevice()) == (program, library)


def test_the_wheels_come_before_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(_program(bare / "folder" / "ptxas").parent))
    in_wheel = _program(bare / "wheel" / "bin" / "ptxas")
    monkeypatch.setattr(toolpaths, "_wheel_folders", lambda: iter([bare / "wheel"]))
    assert find_tool("ptxas") == in_wheel


def test_of_two_nvjitlinks_the_one_of_the_wanted_cuda_is_found(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = _program(bare / "cu13" / "lib" / "libnvJitLink.so.13")
    older = _program(bare / "nvjitlink" / "lib" / "libnvJitLink.so.12")
    monkeypatch.setattr(toolpaths, "_wheel_folders", lambda: iter([bare / "cu13", bare / "nvjitlink"]))
    assert [find_nvjitlink(major) for major in (12, 13, 14)] == [older, newer, None]
