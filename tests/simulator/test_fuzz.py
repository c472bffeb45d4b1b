"""PTX texts that are cut short or damaged: an error that names a line, or a kernel; never a hang or an inside error."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError, UnsupportedError
from mosaic_gpu.simulator.module import Module

DATA = Path(__file__).parent / "data"
TEXTS = {name: (DATA / f"{name}.ptx").read_text() for name in ("nvcc_kernels", "triton_matmul", "triton_softmax")}
#: A kernel with most kinds of statements, small enough for many trials.
SMALL = """.version 8.7
.target sm_90a
.address_size 64
.file 1 "kernel.py"
.global .align 4 .u32 table[4] = {1, 2, 3, 4};
.shared .align 16 .b8 s[256];
.func (.param .b32 out) twice (.param .b32 in) { .reg .b32 %r<3>; ld.param.b32 %r0, [in]; add.s32 %r1, %r0, %r0;
  st.param.b32 [out], %r1; ret; }
.visible .entry k(.param .u64 p0, .param .f32 p1)
.reqntid 32, 1, 1
{
  .reg .b32 %r<9>; .reg .b64 %a<4>; .reg .pred %p<3>; .reg .f32 %f<4>;
  .loc 1 7 3
  mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 16;
  @!%p0 bra SKIP;
  ld.param.u64 %a0, [p0]; ld.global.v2.f32 {%f0, %f1}, [%a0+8];
  fma.rn.f32 %f2, %f0, 0f3F800000, %f1;
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r0; call.uni (b), twice, (a); ld.param.b32 %r4, [b]; }
  brx.idx %r0, targets;
  targets: .branchtargets SKIP, DONE;
SKIP: bar.sync 0;
  shfl.sync.bfly.b32 %r1|%p1, %r0, 1, 31, -1;
  selp.b32 %r2, %r1, %r0, %p1; prmt.b32 %r3, %r2, %r1, 0x5410; mov.b64 {%r1, %r2}, %a0;
DONE: ret;
}
"""
_TOKENS = [";", "{", "}", "[", "]", "(", ")", ",", ".", ":", "%r0", "%p0", "@", "0x", "0f", "add", ".b32", ".reg",
           ".v4", "\n", "<", ">", "|", "!", "-", "+", '"', "/*", "//", "99999999999999999999", "\0", "é",
           "wgmma.fence.sync.aligned;", "bra NOWHERE;", "call (x), y, (z);", "ret"]  # fmt: skip


def prepare(text: str) -> None:
    """Loads a text; any error must be ours and name a line of it."""
    start = time.perf_counter()
    try:
        module = Module(text)
    except (SimulationError, UnsupportedError) as error:
        check_line(error, text)
        return
    for error in module.refused.values():
        check_line(error, text)
    if "k" in module.entries:
        run(module)
    assert time.perf_counter() - start < 10


def run(module: Module) -> None:
    """A launch ends, well or with an error of ours."""
    arguments = [np.ones(8, np.float32) if p.size == 8 else 1.5 for p in module.program.functions["k"].params]
    with suppress(SimulationError, UnsupportedError):
        module.launch("k", 1, 32, arguments, instruction_limit=20000)


def check_line(error: Exception, text: str) -> None:
    found = re.search(r"PTX line (\d+)", str(error))
    assert found, f"no line in: {error}"
    assert 1 <= int(found[1]) <= text.count("\n") + 1


@pytest.mark.parametrize("seed", range(4))
def test_a_small_text_cut_anywhere(seed: int) -> None:
    for end in range(seed, len(SMALL), 4):
        prepare(SMALL[:end])


@pytest.mark.parametrize("name", TEXTS)
def test_a_real_text_cut_somewhere(name: str) -> None:
    text = TEXTS[name]
    for end in np.random.default_rng(1).integers(0, len(text), 12).tolist():
        prepare(text[:end])


@pytest.mark.parametrize("seed", range(8))
def test_a_text_with_tokens_put_in_taken_out_or_swapped(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(150):
        text = SMALL
        for _ in range(int(rng.integers(1, 4))):
            at, size = int(rng.integers(0, len(text))), int(rng.integers(0, 12))
            piece = _TOKENS[int(rng.integers(len(_TOKENS)))] if rng.random() < 0.7 else ""
            text = text[:at] + piece + text[at + size :]
        prepare(text)


@pytest.mark.parametrize("seed", range(4))
def test_a_text_with_words_exchanged(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    words = re.split(r"([\w.%$]+)", SMALL)
    for _ in range(150):
        some = list(words)
        i, j = (2 * rng.integers(0, len(words) // 2, 2) + 1).tolist()
        some[i], some[j] = some[j], some[i]
        prepare("".join(some))


@pytest.mark.parametrize("text", ["", "\n\n", "hello", "\0" * 100, "{" * 5000, "." * 1000, "(" * 3000 + ";", "/*", '"'])
def test_a_text_that_is_no_ptx(text: str) -> None:
    with pytest.raises(SimulationError, match=r"PTX line \d+"):
        Module(text)
