"""What a cubin tells of a kernel's resources, against what NVIDIA's own tool reads from it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from mosaic_gpu.errors import ToolError
from mosaic_gpu.lowering import assemblers
from mosaic_gpu.lowering.assemblers import assemble
from mosaic_gpu.lowering.resources import read_resources
from mosaic_gpu.lowering.targets import TARGETS
from mosaic_gpu.lowering.toolpaths import find_tool


def _kernel(name: str, values: int, body: str = "") -> str:
    """PTX that holds `values` loaded numbers at once."""
    loads = "\n".join(f"ld.volatile.global.f32 %f{i}, [%rd1+{4 * i}];" for i in range(values))
    stores = "\n".join(f"st.volatile.global.f32 [%rd1+{4 * i}], %f{i};" for i in range(values))
    return f"""
    .visible .entry {name}(.param .u64 x) .maxntid 1024
    {{ .reg .b64 %rd<4>; .reg .f32 %f<{values}>; {body}
    ld.param.u64 %rd1, [x]; {loads} bar.sync 0; {stores} ret; }}"""


HEAD = ".version 8.8\n.target {}\n.address_size 64\n"
SHARED = ".shared .align 16 .b8 tile[1040]; mov.u64 %rd2, tile; st.volatile.shared.u64 [tile+1024], %rd2;"
LOCAL = """.local .align 16 .b8 depot[400]; .reg .u32 %r<3>; mov.u32 %r1, %tid.x; mov.u64 %rd2, depot;
    mad.wide.u32 %rd3, %r1, 4, %rd2; st.local.u32 [%rd3], %r1; ld.local.u32 %r2, [depot+8];
    ld.param.u64 %rd1, [x]; st.global.u32 [%rd1], %r2;"""


def _tool_facts(image: bytes, entry: str, folder: Path) -> dict[str, int]:
    """What `cuobjdump -res-usage` prints for `entry`: REG, STACK, SHARED, CONSTANT[0], ..."""
    tool = find_tool("cuobjdump")
    if tool is None:
        pytest.skip("cuobjdump is not installed")
    path = folder / "kernel.cubin"
    path.write_bytes(image)
    done = subprocess.run([str(tool), "-res-usage", str(path)], capture_output=True, text=True, check=True)
    _, _, rest = (done.stdout + done.stderr).partition(f"Function {entry}:")
    return {name: int(value) for name, value in re.findall(r"(\S+):(\d+)", rest.split("Function")[0])}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a", "sm_120"])
@pytest.mark.parametrize(("values", "body"), [(2, ""), (20, SHARED), (40, LOCAL), (90, SHARED)])
def test_resources_are_those_that_cuobjdump_reads(target: str, values: int, body: str, tmp_path: Path) -> None:
    image, report = assemble(HEAD.format(target) + _kernel("k", values, body), TARGETS[target])
    found, facts = read_resources(image, "k", report), _tool_facts(image, "k", tmp_path)
    assert found.registers == facts["REG"]
    assert found.stack_bytes == facts["STACK"]
    assert found.shared_bytes == facts["SHARED"]
    assert found.constant_bytes == facts["CONSTANT[0]"]
    assert found.code_bytes > 0


def test_spills_are_those_of_ptxas_report() -> None:
    image, report = assemble(HEAD.format("sm_90a") + _kernel("k", 90), TARGETS["sm_90a"])
    found = read_resources(image, "k", report)  # 1024 threads leave 64 registers each: 90 values do not fit
    assert found.spill_store_bytes > 0
    assert found.spill_load_bytes > 0
    assert found.spill_bytes == found.spill_store_bytes + found.spill_load_bytes


def test_the_kernel_is_found_by_name_among_several() -> None:
    text = HEAD.format("sm_90a") + _kernel("small", 2) + _kernel("big", 50)
    image, report = assemble(text, TARGETS["sm_90a"])
    assert read_resources(image, "small", report).registers < read_resources(image, "big", report).registers
    with pytest.raises(ToolError, match="small"):
        read_resources(image)


def test_a_function_beside_the_kernel_does_not_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # a correctly rounded division calls its slow path, which nvJitLink keeps a function of its own
    monkeypatch.setattr(assemblers, "ptxas_version", lambda: None)
    body = "ld.param.u64 %rd1, [x]; .reg .f32 %a, %b; ld.global.f32 %a, [%rd1]; div.rn.f32 %b, %a, %a;"
    image, report = assemble(
        HEAD.format("sm_90a") + _kernel("k", 2, body + "st.global.f32 [%rd1+64], %b;"), TARGETS["sm_90a"]
    )
    assert b".text.__cuda_sm3x_div_rn" in image
    assert read_resources(image, report=report) == read_resources(image, "k", report)


def test_what_is_no_cubin_is_refused() -> None:
    with pytest.raises(ToolError, match="not a 64-bit ELF"):
        read_resources(b"nonsense")
