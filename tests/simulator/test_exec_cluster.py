"""Clusters: registers, addresses of other blocks' shared memory, remote arrives, multicast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.simulator import load
from mosaic_gpu.simulator.tensor_map import TensorMap
from tests.simulator.harness import HEADER, launch

Array = np.ndarray[Any, np.dtype[Any]]
SHARED = ".shared .align 1024 .b8 s[4096];"
SYNC = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n"
START = """.reg .b32 %r<40>; .reg .b64 %a<20>; .reg .pred %p<9>; .reg .b16 %h<4>; mov.u32 %r0, %tid.x; mov.u32 %r1, s;
    ld.param.u64 %a0, [p0]; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r0;
    mad.wide.u32 %a1, %r4, 4, %a0; mov.u32 %r5, %cluster_ctarank; mov.u32 %r6, %cluster_nctarank;
    setp.eq.u32 %p0, %r0, 0; mad.lo.u32 %r7, %r0, 4, %r1;
"""


def run(body: str, *, blocks: int = 8, cluster: Any = 4, block: int = 32, **options: Any) -> Array:
    out = np.zeros(blocks * block, np.uint32)
    launch(START + body + "\nst.global.u32 [%a1], %r9;", [out], block=block, grid=blocks, cluster=cluster,
           declarations=SHARED, **options)  # fmt: skip
    return out.reshape(blocks, block)


@pytest.mark.parametrize(("grid", "cluster"), [((4, 6, 2), (2, 3, 1)), ((4, 4, 4), (1, 2, 4)), ((6, 1, 1), (3, 1, 1))])
def test_special_registers(grid: Any, cluster: Any) -> None:
    names = [
        f"%{n}.{c}" for n in ("ctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid") for c in "xyz"
    ]
    names += ["%cluster_ctarank", "%cluster_nctarank", "%is_explicit_cluster"]
    body = """.reg .b32 %r<9>; .reg .b64 %a<4>; .reg .pred %p; ld.param.u64 %a0, [p0]; mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ctaid.z; mov.u32 %r3, %nctaid.x; mov.u32 %r4, %nctaid.y;
    mad.lo.u32 %r1, %r2, %r4, %r1; mad.lo.u32 %r0, %r1, %r3, %r0; mul.lo.u32 %r0, %r0, 72; cvt.u64.u32 %a1, %r0;
    add.u64 %a0, %a0, %a1;"""
    for i, name in enumerate(names):
        read = f"mov.pred %p, {name}; selp.u32 %r5, 1, 0, %p;" if "explicit" in name else f"mov.u32 %r5, {name};"
        body += f"\n{read} st.global.u32 [%a0+{4 * i}], %r5;"
    out = np.zeros((int(np.prod(grid)), 18), np.uint32)
    launch(body, [out], grid=grid, block=1, cluster=cluster)
    for row in out:
        block = row[:3]
        np.testing.assert_array_equal(row[3:6], block // cluster)
        np.testing.assert_array_equal(row[6:9], np.array(grid) // cluster)
        np.testing.assert_array_equal(row[9:12], block % cluster)
        np.testing.assert_array_equal(row[12:15], cluster)
        x, y, z = row[9:12]
        np.testing.assert_array_equal(row[15:], [x + cluster[0] * (y + cluster[1] * z), np.prod(cluster), 1])


@pytest.mark.parametrize("generic", [False, True])
def test_a_block_reads_and_writes_its_neighbours_memory(generic: bool) -> None:
    reach = (
        """cvt.u64.u32 %a2, %r7; cvta.shared.u64 %a2, %a2; mapa.u64 %a3, %a2, %r8; st.u32 [%a3+512], %r4;
    getctarank.u64 %r12, %a3;"""
        if generic
        else """mapa.shared::cluster.u32 %r10, %r7, %r8; st.shared::cluster.u32 [%r10+512], %r4;
    getctarank.shared::cluster.u32 %r12, %r10;"""
    )
    read = "ld.u32 %r11, [%a3];" if generic else "ld.shared::cluster.u32 %r11, [%r10];"
    body = f"""st.shared.u32 [%r7], %r4; add.u32 %r8, %r5, 1; rem.u32 %r8, %r8, %r6; {reach} {SYNC}
    {read} ld.shared.u32 %r9, [%r7+512]; mul.lo.u32 %r9, %r9, 1000; add.u32 %r9, %r9, %r11; shl.b32 %r12, %r12, 28;
    add.u32 %r9, %r9, %r12; {SYNC}"""
    out = run(body)
    lane, block = np.arange(32), np.arange(8)[:, None]
    left, right = block // 4 * 4 + (block - 1) % 4, block // 4 * 4 + (block + 1) % 4
    np.testing.assert_array_equal(out, (left * 32 + lane) * 1000 + right * 32 + lane + (right % 4 << 28))


def test_atomics_on_the_memory_of_the_first_block() -> None:
    body = f"""@%p0 st.shared.u32 [%r1], 0; @%p0 st.shared.u32 [%r1+4], 0; {SYNC} mapa.shared::cluster.u32 %r10, %r1, 0;
    red.shared::cluster.add.u32 [%r10], %r4; @%p0 atom.shared::cluster.add.u32 %r11, [%r10+4], 1; {SYNC}
    ld.shared.u32 %r9, [%r1]; ld.shared.u32 %r12, [%r1+4]; mad.lo.u32 %r9, %r12, 1000000, %r9;"""
    out = run(body)
    sums = np.arange(256).reshape(2, 4 * 32).sum(axis=1)
    np.testing.assert_array_equal(out[::4], np.repeat(sums + 4000000, 32).reshape(2, 32))
    assert not out[1:4].any()


def test_the_own_address_belongs_to_the_own_rank() -> None:
    body = """getctarank.shared::cluster.u32 %r9, %r1; cvt.u64.u32 %a2, %r1; cvta.shared.u64 %a2, %a2;
    add.u32 %r8, %r5, 1; rem.u32 %r8, %r8, %r6; mapa.u64 %a3, %a2, %r8; isspacep.shared::cta %p1, %a2;
    isspacep.shared::cta %p2, %a3;
    isspacep.shared::cluster %p3, %a3; @%p1 add.u32 %r9, %r9, 16; @%p2 add.u32 %r9, %r9, 32;
    @%p3 add.u32 %r9, %r9, 64;"""
    np.testing.assert_array_equal(run(body), np.repeat(np.arange(8) % 4 + 80, 32).reshape(8, 32))


def test_a_remote_arrive_completes_the_phase_of_another_block() -> None:
    body = f"""@%p0 mbarrier.init.shared.b64 [%r1], 4; @%p0 st.shared.u32 [%r1+64], 0; {SYNC}
    mapa.shared::cluster.u32 %r10, %r1, 0; @%p0 red.shared::cluster.add.u32 [%r10+64], 5;
    @%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r10]; mov.u32 %r9, 0; setp.ne.u32 %p1, %r5, 0;
    @%p1 bra DONE; W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra W;
    ld.shared.u32 %r9, [%r1+64]; DONE: {SYNC}"""
    np.testing.assert_array_equal(run(body)[:, 0], [20, 0, 0, 0, 20, 0, 0, 0])


@pytest.mark.parametrize("seed", [0, 1])
def test_asynchronous_stores_are_counted_where_they_land(seed: int) -> None:
    body = f"""@%p0 mbarrier.init.shared.b64 [%r1], 1; @%p0 st.shared.u32 [%r1+16], 3;
    @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 20; {SYNC} add.u32 %r8, %r5, 1; rem.u32 %r8, %r8, %r6;
    mapa.shared::cluster.u32 %r10, %r1, %r8;
    @%p0 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%r10+32], {{%r2, %r2, %r2, %r8}}, [%r10];
    @%p0 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r10+16], %r2, [%r10];
    W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra W; ld.shared.u32 %r9, [%r1+36];
    ld.shared.u32 %r11, [%r1+44]; ld.shared.u32 %r12, [%r1+16]; mad.lo.u32 %r9, %r11, 100, %r9;
    mad.lo.u32 %r9, %r12, 1000, %r9; {SYNC}"""
    block = np.arange(8)
    left = block // 4 * 4 + (block - 1) % 4
    np.testing.assert_array_equal(run(body, seed=seed, races=False)[:, 0], left + 100 * (block % 4) + 1000 * (left + 3))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("reduction", [False, True])
def test_bulk_copies_go_to_another_block(reduction: bool, seed: int) -> None:
    name, word = ("cp.reduce.async.bulk", ".add.u32") if reduction else ("cp.async.bulk", "")
    body = f"""@%p0 mbarrier.init.shared.b64 [%r1], 1; st.shared.u32 [%r7+1024], %r4; st.shared.u32 [%r7+2048], 5;
    @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 128; fence.proxy.async; {SYNC} add.u32 %r8, %r5, 1;
    rem.u32 %r8, %r8, %r6; mapa.shared::cluster.u32 %r10, %r1, %r8;
    @%p0 {name}.shared::cluster.shared::cta.mbarrier::complete_tx::bytes{word} [%r10+2048], [%r1+1024], 128, [%r10];
    W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra W; ld.shared.u32 %r9, [%r7+2048]; {SYNC}"""
    block = np.arange(8)
    left = block // 4 * 4 + (block - 1) % 4
    want = left[:, None] * 32 + np.arange(32) + (5 if reduction else 0)
    np.testing.assert_array_equal(run(body, seed=seed), want)


@pytest.mark.parametrize("tensor", [True, False])
def test_multicast_puts_the_same_bytes_into_several_blocks(tensor: bool) -> None:
    words = "tensor.1d." if tensor else ""
    source = "[%m, {%r13}], [%r1], %h0" if tensor else "[%a4], 128, [%r1], %h0"
    body = f"""{START} @%p0 mbarrier.init.shared.b64 [%r1], 1; @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 256;
    {SYNC} .reg .b64 %m; mov.b64 %m, p1; cvta.param.u64 %m, %m; ld.param.u64 %a4, [p2]; mad.wide.u32 %a4, %r5, 128, %a4;
    mul.lo.u32 %r13, %r5, 32; mad.lo.u32 %r8, %r5, 128, %r1; and.b32 %r14, %r5, 1; add.u32 %r15, %r14, 1;
    mov.u32 %r16, 5; shl.b32 %r16, %r16, %r14; cvt.u16.u32 %h0, %r16;
    @%p0 cp.async.bulk.{words}shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
    [%r8+1024], {source};
    W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra W;
    mad.lo.u32 %r17, %r14, 128, %r7; ld.shared.u32 %r9, [%r17+1024]; ld.shared.u32 %r18, [%r17+1280];
    mad.lo.u32 %r9, %r18, 1000, %r9; st.global.u32 [%a1], %r9; {SYNC}"""
    data, out = np.arange(128, dtype=np.uint32), np.zeros((8, 32), np.uint32)
    tensor_map = TensorMap(data, 4, (128,), (), (32,), 0)
    params = ".param .u64 p0, .param .align 64 .b8 p1[128], .param .u64 p2"
    text = f"{HEADER}{SHARED}.visible .entry k({params}) {{\n{body}\nret;\n}}"
    load(text).launch("k", 8, 32, [out, tensor_map, data], cluster=4)
    rank, lane = np.arange(8)[:, None] % 4 % 2, np.arange(32)
    np.testing.assert_array_equal(out, rank * 32 + lane + 1000 * (rank * 32 + 64 + lane))


def test_the_kernel_may_declare_its_cluster() -> None:
    text = f"""{HEADER}.visible .entry k(.param .u64 p0) .reqnctapercluster 2, 1, 1 {{ .reg .b32 %r<4>; .reg .b64 %a<3>;
    ld.param.u64 %a0, [p0]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %cluster_ctarank; mad.wide.u32 %a0, %r0, 4, %a0;
    st.global.u32 [%a0], %r1; ret; }}"""
    out = np.zeros(4, np.uint32)
    load(text).launch("k", 4, 1, [out])
    np.testing.assert_array_equal(out, [0, 1, 0, 1])
    with pytest.raises(SimulationError, match=r"declared with \.reqnctapercluster"):
        load(text).launch("k", 4, 1, [out], cluster=4)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("mapa.shared::cluster.u32 %r9, %r1, 4;", "rank 4 in a cluster of 4"),
        ("mapa.u64 %a2, %a0, 0;", "not one of shared memory"),
        ("mov.u32 %r10, 0x9000000; ld.shared::cluster.u32 %r9, [%r10];", "of the block of rank 8 in a cluster of 4"),
        (
            "mapa.shared::cluster.u32 %r10, %r1, 1; ld.shared::cluster.u32 %r9, [%r10+4096];",
            "out-of-bounds shared::cluster load: 4 bytes at byte 4096",
        ),
        ("mapa.shared::cluster.u32 %r10, %r1, 1; ld.shared.u32 %r9, [%r10];", "out-of-bounds shared load"),
    ],
)  # fmt: skip
def test_faults_are_named(body: str, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        run(body)


def test_a_cluster_of_many_waves_stays_together() -> None:
    body = f"""st.shared.u32 [%r7], %r4; {SYNC} xor.b32 %r8, %r5, 1; mapa.shared::cluster.u32 %r10, %r7, %r8;
    ld.shared::cluster.u32 %r9, [%r10]; {SYNC}"""
    out = run(body, blocks=1200, cluster=2, block=64)
    np.testing.assert_array_equal(out, (np.arange(1200)[:, None] ^ 1) * 64 + np.arange(64))
