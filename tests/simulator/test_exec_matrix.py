"""ldmatrix and stmatrix, against plain loops over the PTX ISA's figure of the fragments."""

from __future__ import annotations

import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError
from tests.simulator.harness import launch

START = """.reg .b32 %r<20>; .reg .b64 %a<9>; .reg .pred %p; ld.param.u64 %a0, [p0]; ld.param.u64 %a1, [p1];
    mov.u32 %r0, %tid.x; mov.u32 %r1, s;
mad.wide.u32 %a2, %r0, 16, %a0; mad.lo.u32 %r2, %r0, 16, %r1; mad.wide.u32 %a3, %r0, 16, %a1; mov.u32 %r10, 0;
    mov.u32 %r11, 0;
mov.u32 %r12, 0; mov.u32 %r13, 0;"""
REGISTERS = {1: "{%r10}", 2: "{%r10, %r11}", 4: "{%r10, %r11, %r12, %r13}"}


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("load", [True, False])
def test_fragments(load: bool, transposed: bool, count: int) -> None:
    x = np.random.default_rng(0).integers(0, 1 << 16, (64, 8)).astype(np.uint16)
    out = np.zeros((64, 8), np.uint16)
    name = f"x{count}{'.trans' if transposed else ''}.shared.b16"
    if load:
        body = f"""ld.global.v4.b32 {REGISTERS[4]}, [%a2]; st.shared.v4.b32 [%r2], {REGISTERS[4]}; bar.sync 0;
    mov.u32 %r11, 0; mov.u32 %r12, 0;
        mov.u32 %r13, 0; ldmatrix.sync.aligned.m8n8.{name} {REGISTERS[count]}, [%r2];
    st.global.v4.b32 [%a3], {REGISTERS[4]};"""
    else:
        body = f"""ld.global.v4.b32 {REGISTERS[4]}, [%a2];
    stmatrix.sync.aligned.m8n8.{name} [%r2], {REGISTERS[count]}; bar.sync 0;
        and.b32 %r3, %r0, 31; setp.lt.u32 %p, %r3, {8 * count}; @%p ld.shared.v4.b32 {REGISTERS[4]}, [%r2];
    @%p st.global.v4.b32 [%a3], {REGISTERS[4]};"""
    launch(START + body, [x, out], block=64, declarations=".shared .align 16 .b8 s[1024];")
    for warp in range(2):
        source, target = x[32 * warp : 32 * warp + 32], out[32 * warp : 32 * warp + 32]
        for i in range(count):
            for lane in range(32):
                for part in range(2):
                    row, column = lane // 4, 2 * (lane % 4) + part
                    row, column = (column, row) if transposed else (row, column)
                    in_memory, in_register = (8 * i + row, column), (lane, 2 * i + part)
                    if load:
                        assert target[in_register] == source[in_memory]
                    else:
                        assert target[in_memory] == source[in_register]


def test_a_row_must_be_aligned_to_sixteen_bytes() -> None:
    body = START + "add.u32 %r2, %r2, 8; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r2];"
    with pytest.raises(SimulationError, match="misaligned shared matrix load"):
        launch(body, [np.zeros(1), np.zeros(1)], declarations=".shared .align 16 .b8 s[1024];")
