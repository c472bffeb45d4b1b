"""nvJitLink and ptxas make the same kernel of the same PTX, and say why where they refuse."""

from __future__ import annotations

import dataclasses

import pytest

from mosaic_gpu.errors import ToolError
from mosaic_gpu.lowering import assemblers
from mosaic_gpu.lowering.assemblers import assemble, assembler_version, nvjitlink_version, ptxas_version
from mosaic_gpu.lowering.resources import read_resources
from mosaic_gpu.lowering.targets import TARGETS
from mosaic_gpu.lowering.toolpaths import find_tool

PTX = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry copy(.param .u64 x, .param .u64 y) .reqntid 32
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<2>;
  .shared .align 16 .b8 tile[512];
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  ld.global.u32 %r1, [%rd1];
  st.shared.u32 [tile], %r1;
  bar.sync 0;
  ld.shared.u32 %r1, [tile+4];
  st.global.u32 [%rd2], %r1;
  ret;
}
"""
TARGET = TARGETS["sm_90a"]

needs_ptxas = pytest.mark.skipif(find_tool("ptxas") is None, reason="ptxas is not installed")


@pytest.fixture
def without_nvjitlink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemblers, "_load_nvjitlink", lambda: None)


@pytest.fixture
def without_ptxas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemblers, "ptxas_version", lambda: None)


@pytest.mark.usefixtures("without_ptxas")
def test_nvjitlink_gives_a_cubin_and_a_report_of_spills() -> None:
    image, report = assemble(PTX, TARGET)
    assert image.startswith(b"\x7fELF")
    assert "0 bytes spill stores" in report


@needs_ptxas
@pytest.mark.usefixtures("without_nvjitlink")
def test_ptxas_takes_over_where_nvjitlink_is_missing() -> None:
    image, report = assemble(PTX, TARGET)
    assert read_resources(image, "copy", report).shared_bytes >= 512
    assert "0 bytes spill stores" in report


@pytest.mark.usefixtures("without_ptxas")
def test_a_refusal_of_nvjitlink_holds_its_log() -> None:
    with pytest.raises(ToolError, match=r"sm_90a(.|\n)*line 15(.|\n)*\.nonsense"):
        assemble(PTX.replace("ld.shared.u32", "ld.nonsense.u32"), TARGET)


@pytest.mark.usefixtures("without_ptxas")
def test_an_architecture_that_nvjitlink_does_not_know_is_a_tool_error() -> None:
    future = dataclasses.replace(TARGET, name="sm_990")
    with pytest.raises(ToolError, match="sm_990"):
        assemble(PTX, future)


@needs_ptxas
@pytest.mark.usefixtures("without_nvjitlink")
def test_a_refusal_of_ptxas_holds_its_log() -> None:
    with pytest.raises(ToolError, match=r"sm_90a(.|\n)*line 15"):
        assemble(PTX.replace("ld.shared.u32", "ld.nonsense.u32"), TARGET)


@pytest.mark.usefixtures("without_nvjitlink")
def test_with_no_assembler_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemblers, "find_tool", lambda name: None)
    with pytest.raises(ToolError, match="pip install"):
        assemble(PTX, TARGET)


@needs_ptxas
@pytest.mark.parametrize(("older", "choice"), [(0, True), (1, False)])
def test_ptxas_is_preferred_unless_it_is_older(monkeypatch: pytest.MonkeyPatch, older: int, choice: bool) -> None:
    newest = nvjitlink_version()
    assert newest is not None
    monkeypatch.setattr(assemblers, "ptxas_version", lambda: (newest[0] - older, newest[1]))
    assert assemblers._prefers_ptxas() is choice


def test_the_version_names_the_assembler() -> None:
    versions = {"ptxas": ptxas_version(), "nvJitLink": nvjitlink_version()}
    name, version = assembler_version().split()
    assert version == "{}.{}".format(*(versions[name] or ()))
