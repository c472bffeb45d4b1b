"""Small faulty kernels, one a hazard, each with its repaired twin.

In a body `<<bad||good>>` is what the two differ in.  Every body starts with START: the thread in %r0, the address of 4 KiB
of shared memory in %r1, the thread's place in the buffer p0 (32-bit elements) in %a1, an mbarrier at [%r2].
"""

# The twins are compared more easily where a body stays on its line.
# ruff: noqa: E501

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

START = """.reg .b32 %r<40>; .reg .b64 %a<9>, %d<3>; .reg .pred %p<9>; .reg .f32 %f<9>; .reg .b16 %h<3>;
    mov.u32 %r0, %tid.x; mov.u32 %r1, s; add.u32 %r2, %r1, 8192; ld.param.u64 %a0, [p0]; mad.wide.u32 %a1, %r0, 4, %a0;
    shl.b32 %r3, %r0, 2; add.u32 %r3, %r1, %r3; setp.eq.u32 %p0, %r0, 0;
"""
#: An mbarrier that one arrival and its bytes complete; and the wait for its first phase.
INIT = "@%p0 mbarrier.init.shared.b64 [%r2], 1; bar.sync 0;\n"
WAIT = "{{ .reg .pred q; W{0}: mbarrier.try_wait.parity.shared.b64 q, [%r2], {1}; @!q bra W{0}; }}\n"
LOAD = """@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 256;
    @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%a0], 256, [%r2];\n"""
STORE = "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r1], 128; @%p0 cp.async.bulk.commit_group;\n"
STORED = "@%p0 cp.async.bulk.wait_group.read 0;\n"
#: Zeros in the shared memory that the wgmma below reads (4 KiB), and descriptors of A and B there.
TILES = """mov.u32 %r4, 0; mov.u32 %r5, %r3; Z: st.shared.u32 [%r5], 0; add.u32 %r5, %r5, 512; add.u32 %r4, %r4, 1;
    setp.lt.u32 %p1, %r4, 8; @%p1 bra Z; fence.proxy.async; bar.sync 0;
    shr.u32 %r6, %r1, 4; cvt.u64.u32 %d0, %r6; or.b64 %d0, %d0, 0x0000001000080000; mov.u64 %d1, %d0; setp.ne.u32 %p2, %r0, %r0;
"""
ACCUMULATORS = "{%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}"
MMA = f"wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {ACCUMULATORS}, %d0, %d1, %p2, 1, 1, 0, 0;\n"
MMA_REGISTERS = MMA.replace("%d0,", "{%r20, %r21, %r22, %r23},").replace("1, 1, 0, 0", "1, 1, 0")
A_REGISTERS = "mov.u32 %r20, 0; mov.u32 %r21, 0; mov.u32 %r22, 0; mov.u32 %r23, 0;\n"
WGMMA_FENCE, COMMIT = "wgmma.fence.sync.aligned;\n", "wgmma.commit_group.sync.aligned;\n"
DONE = "wgmma.wait_group.sync.aligned 0;\n"


@dataclass(frozen=True)
class Hazard:
    """`says` is a regular expression for the report of the faulty kernel."""

    name: str
    body: str
    says: str
    block: int = 64
    grid: int = 1
    elements: int = 64
    options: dict[str, Any] = field(default_factory=dict)

    def text(self, *, good: bool) -> str:
        """The faulty body, or the repaired one."""
        return START + re.sub(r"<<(.*?)\|\|(.*?)>>", lambda m: m[2] if good else m[1], self.body, flags=re.DOTALL)


def _memory() -> list[Hazard]:
    return [
        Hazard("out-of-bounds", "st.global.u32 [%a1+<<4||0>>], %r0;", r"out-of-bounds global store: 4 bytes at byte 256"),
        Hazard("misaligned", "st.global.u32 [%a0+<<2||0>>], 1;", "misaligned global store", block=1),
        Hazard("out-of-bounds shared", "st.shared.u32 [%r1+<<8200||8196>>], 1;", "out-of-bounds shared store", block=1),
        Hazard(
            "uninitialised shared memory", "<<||st.shared.u32 [%r3], 1;>> ld.shared.u32 %r4, [%r3]; st.global.u32 [%a1], %r4;",
            r"uninitialised value is stored[\s\S]*ld.shared.u32, 4 bytes that were never written: byte 0 of shared",
        ),
        Hazard(
            "uninitialised byte", ".reg .b16 h; st.shared.u8 [%r3], 1; ld.shared.u8 %r4, [%r3];"
            "ld.shared.u8 %r5, [%r3+1]; prmt.b32 %r4, %r4, %r5, 0x1140; cvt.u16.u32 h, %r4; add.u16 h, h, 5; cvt.u32.u16 %r4, h; prmt.b32 %r4, %r4, 0, <<0x4441||0x4440>>; st.global.u32 [%a1], %r4;",
            "uninitialised value is stored",
        ),
        Hazard(
            "uninitialised half", ".reg .f32 a, b; .reg .b16 h; mov.f32 a, 0f3F800000; cvt.rn.f16x2.f32 %r4, <<a, b||b, a>>;"
            "mov.b32 {h, _}, %r4; cvt.u32.u16 %r4, h; st.global.u32 [%a1], %r4;",
            "uninitialised value is stored",
        ),
        Hazard(
            "uninitialised register", "setp.lt.u32 %p1, %r0, <<40||64>>; @%p1 mov.u32 %r4, 7; st.global.u32 [%a1], %r4;",
            r"uninitialised value is stored to buffer `p0`: %r4[\s\S]*nothing has written[\s\S]*thread \(40, 0, 0\)",
        ),
        Hazard(
            "uninitialised predicate", "<<||setp.eq.u32 %p1, %r0, 3;>> @%p1 bra L; st.global.u32 [%a1], 0; L:",
            "uninitialised value is its predicate: %p1",
        ),
        Hazard(
            "uninitialised address", "<<||mov.u64 %a2, %a1;>> st.global.u32 [%a2], 1;",
            "uninitialised value is part of an address: %a2|uninitialised value is part of an address or an operand: %a2",
        ),
        Hazard(
            "uninitialised buffer", "<<||st.global.u32 [%a1], 5;>> ld.global.u32 %r4, [%a1]; st.global.u32 [%a1], %r4;",
            r"uninitialised[\s\S]*never written: byte 0 of buffer `p0`", options={"uninitialised": [0]},
        ),
    ]  # fmt: skip


def _races() -> list[Hazard]:
    neighbour = "xor.b32 %r4, %r3, 128; "
    return [
        Hazard(
            "read after write", f"st.shared.u32 [%r3], %r0; <<||bar.sync 0;>> {neighbour} ld.shared.u32 %r5, [%r4];",
            r"race: shared load of 4 bytes at byte 128[\s\S]*a write of them[\s\S]*st.shared.u32[\s\S]*warp 1, lane 0",
        ),
        Hazard(
            "write after read", f"st.shared.u32 [%r3], %r0; bar.sync 0; {neighbour} ld.shared.u32 %r5, [%r4]; "
            "<<||bar.sync 0;>> st.shared.u32 [%r3], 1;",
            r"race: shared store of 4 bytes[\s\S]*a read of them[\s\S]*ld.shared.u32",
        ),
        Hazard("write after write", "<<||@%p0>> st.shared.u32 [%r1], %r0;", r"race: shared store[\s\S]*a write of them"),
        Hazard(
            "lanes of a warp", "st.shared.u32 [%r3], %r0; <<||bar.warp.sync -1;>> xor.b32 %r4, %r3, 4; ld.shared.u32 %r5, [%r4];",
            r"race: shared load[\s\S]*warp 0, lane 1",
        ),
        Hazard(
            "named barriers", "setp.lt.u32 %p1, %r0, 32; @!%p1 bra C; st.shared.u32 [%r3], 1; bar.arrive 1, 64; bra E; "
            "C: <<bar.sync 2, 32||bar.sync 1, 64>>; add.u32 %r4, %r3, -128; ld.shared.u32 %r5, [%r4]; E:",
            "race: shared load",
        ),
        Hazard(
            "a flag without fences", "setp.lt.u32 %p1, %r0, 32; @!%p1 bra C; st.shared.u32 [%r3], 1; bar.warp.sync -1; "
            "<<||membar.cta;>> @%p0 st.volatile.shared.u32 [%r1+2048], 1; bra E; C: bar.warp.sync -1; "
            "P: ld.volatile.shared.u32 %r6, [%r1+2048]; setp.ne.u32 %p2, %r6, 1; @%p2 bra P; <<||membar.cta;>> "
            "add.u32 %r4, %r3, -128; ld.shared.u32 %r5, [%r4]; E:", "race: shared load",
        ),
        Hazard(
            "blocks", "mov.u32 %r4, %ctaid.x; mad.wide.u32 %a2, %r4, <<4||256>>, %a1; st.global.u32 [%a2], %r4;",
            r"race: global store of 4 bytes[\s\S]*block \([01], 0, 0\)", grid=2, elements=192,
        ),
        Hazard(
            "atomic beside a plain load", "@%p0 st.shared.u32 [%r1], 0; bar.sync 0; ld<<||.relaxed.cta>>.shared.u32 %r5, [%r1]; "
            "atom.shared.add.u32 %r6, [%r1], 1;", "race: shared atomic",
        ),
    ]  # fmt: skip


def _barriers() -> list[Hazard]:
    return [
        Hazard("lane outside its mask", "shfl.sync.idx.b32 %r4, %r0, 0, 31, <<0xffff||0xffffffff>>;", "not in the member mask"),
        Hazard(
            "divergent aligned barrier", "and.b32 %r4, %r0, <<16||32>>; setp.eq.u32 %p1, %r4, 0; @%p1 bra L; bar.sync 0; bra E; "
            "L: bar.sync 0; E:", "different aligned barriers",
        ),
        Hazard(
            "missing at a barrier", "setp.lt.u32 %p1, %r0, 32; @%p1 bra L; bar.sync 1, <<96||32>>; L:",
            r"deadlock[\s\S]*block 0: 32 threads wait on barrier 1 \(32 of 96 arrived\)",
        ),
        Hazard(
            "mbarrier that never completes", INIT + "<<||@%p0 mbarrier.arrive.shared.b64 _, [%r2];>>" + WAIT.format(0, 0),
            r"deadlock[\s\S]*wait for phase parity 0 of the mbarrier[\s\S]*0 of 1 arrived, tx-count 0",
        ),
        Hazard(
            "over-arrival", "@%p0 mbarrier.init.shared.b64 [%r2], 3; bar.sync 0; @%p0 mbarrier.arrive.shared.b64 _, [%r2], 2; "
            "@%p0 mbarrier.arrive.shared.b64 _, [%r2], <<2||1>>;", "over-arrival",
        ),
        Hazard(
            "tx-count overflow", INIT + "@%p0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 1048575; "
            "<<@%p0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 16;||>>", "tx-count",
        ),
        Hazard(
            "initialised while in use", "@%p0 mbarrier.init.shared.b64 [%r2], 2; bar.sync 0; "
            "@%p0 mbarrier.arrive.shared.b64 _, [%r2]; <<||@%p0 mbarrier.arrive.shared.b64 _, [%r2];>> bar.sync 0; "
            "@%p0 mbarrier.init.shared.b64 [%r2], 1;", "initialised again while it is in use",
        ),
    ]  # fmt: skip


def _copies() -> list[Hazard]:
    read = "ld.shared.u32 %r5, [%r3]; "
    return [
        Hazard(
            "generic write before a bulk store", "st.shared.u32 [%r3], 1; <<||fence.proxy.async;>> bar.sync 0;\n" + STORE + STORED,
            r"hazard[\s\S]*async proxy, with no fence.proxy.async after a write[\s\S]*st.shared.u32",
        ),
        Hazard(
            "bulk store without a barrier", "st.shared.u32 [%r3], 1; fence.proxy.async; <<||bar.sync 0;>>\n" + STORE + STORED,
            r"race: the asynchronous copy[\s\S]*st.shared.u32", block=32,
        ),
        Hazard(
            "source of a bulk store overwritten", "st.shared.u32 [%r3], 1; fence.proxy.async; bar.sync 0;\n" + STORE +
            "<<||" + STORED + ">> bar.sync 0; st.shared.u32 [%r3], 2;\n" + STORED,
            r"hazard: shared store[\s\S]*which an asynchronous operation is still using",
        ),
        Hazard(
            "bulk load not waited for", INIT + LOAD + "<<||" + WAIT.format(0, 0) + ">>" + read + "st.global.u32 [%a1], %r5;",
            "asynchronous copy has yet to write",
        ),
        Hazard(
            "destination of a bulk load used again", INIT + LOAD + WAIT.format(0, 0) + read + "<<||bar.sync 0;>>\n" + LOAD +
            WAIT.format(1, 1), r"race: the asynchronous copy uses byte \d+ of shared memory[\s\S]*the read[\s\S]*ld.shared.u32",
        ),
        Hazard(
            "destination written while a copy is under way", INIT + LOAD + "<<||" + WAIT.format(0, 0) + "bar.sync 0;>>" +
            "st.shared.u32 [%r3], 3;\n" + WAIT.format(1, 0), r"hazard: shared store[\s\S]*still using",
        ),
        Hazard("bulk load in flight at the end", INIT + LOAD + "<<||" + WAIT.format(0, 0) + ">>", "in flight when the kernel ends"),
        Hazard(
            "bulk store in flight at the end", "st.shared.u32 [%r3], 1; fence.proxy.async; bar.sync 0;\n" + STORE +
            "<<||" + STORED + ">>", "yet to read its shared memory when the kernel ends",
        ),
        Hazard(
            "cp.async not waited for", "cp.async.ca.shared.global [%r3], [%a1], 4; <<||cp.async.wait_all;>> " + read +
            "st.global.u32 [%a1], %r5; cp.async.wait_all;", "asynchronous copy has yet to write",
        ),
        Hazard(
            "cp.async in flight at the end", "cp.async.ca.shared.global [%r3], [%a1], 4; <<||cp.async.wait_all;>>",
            "hazard: it is still under way when the kernel ends",
        ),
        Hazard(
            "cp.async without a barrier", "cp.async.ca.shared.global [%r3], [%a1], 4; cp.async.wait_all; <<||bar.sync 0;>> "
            "xor.b32 %r4, %r3, 128; ld.shared.u32 %r5, [%r4];", r"race: shared load[\s\S]*cp.async",
        ),
    ]  # fmt: skip


def _wgmma() -> list[Hazard]:
    stores = "st.global.u32 [%a1], %r10;"
    begin = TILES + WGMMA_FENCE + MMA + COMMIT
    cases = [
        ("accumulators read too soon", begin + "<<||" + DONE + ">>" + stores + DONE, "hazard: %r10 is read while a wgmma"),
        ("accumulators written too soon", begin + "<<||" + DONE + ">> mov.u32 %r11, 0;\n" + DONE, "hazard: %r11 is written while"),
        (
            "A registers written too soon",
            TILES + A_REGISTERS + WGMMA_FENCE + MMA_REGISTERS + COMMIT + "<<||" + DONE + ">> mov.u32 %r21, 1;\n" + DONE,
            "hazard: %r21 is written while",
        ),
        ("no fence", TILES + "<<||" + WGMMA_FENCE + ">>" + MMA + COMMIT + DONE, "no wgmma.fence before the first wgmma"),
        (
            "no fence after a write",
            TILES + WGMMA_FENCE + MMA + COMMIT + DONE + "mov.u32 %r12, 0;\n<<||" + WGMMA_FENCE + ">>" + MMA + COMMIT + DONE,
            "no wgmma.fence after %r12 was written",
        ),
        (
            "operand overwritten too soon", begin + "<<||" + DONE + ">> bar.sync 0; st.shared.u32 [%r3], 1;\n" + DONE,
            r"hazard: shared store[\s\S]*still using[\s\S]*wgmma.mma_async",
        ),
        (
            "operand without a proxy fence",
            TILES + "st.shared.u32 [%r3], 0; <<||fence.proxy.async;>> bar.sync 0;\n" + WGMMA_FENCE + MMA + COMMIT + DONE,
            r"hazard: the operand of wgmma[\s\S]*no fence.proxy.async",
        ),
        ("wgmma in flight at the end", begin + "<<||" + DONE + ">>", "still under way when the kernel ends"),
    ]  # fmt: skip
    return [Hazard(f"wgmma: {name}", body, says, block=128, elements=128) for name, body, says in cases]


HAZARDS = [*_memory(), *_races(), *_barriers(), *_copies(), *_wgmma()]
