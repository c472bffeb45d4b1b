"""Bulk and tensor copies against a plain model, element by element."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError, UnsupportedError
from mosaic_gpu.simulator import load
from mosaic_gpu.simulator.tensor_map import TensorMap
from tests.simulator import models
from tests.simulator.harness import HEADER

Array = np.ndarray[Any, np.dtype[Any]]
SHARED_BYTES = 32768
START = """.reg .b32 %r<30>; .reg .b64 %a<9>, %m; .reg .pred %p<9>; .reg .b16 %h<4>; mov.u32 %r0, %tid.x;
    mov.u32 %r1, s; setp.eq.u32 %p0, %r0, 0; add.u32 %r2, %r1, 32768;
    @%p0 mbarrier.init.shared::cta.b64 [%r2], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
"""
WAIT = "{ .reg .pred q; W: mbarrier.try_wait.parity.shared::cta.b64 q, [%r2], 0; @!q bra W; }\n"
#: Copies the shared memory to p1, 16 bytes a thread and round.
DUMP = """ld.param.u64 %a1, [p1]; mad.wide.u32 %a1, %r0, 16, %a1; mad.lo.u32 %r3, %r0, 16, %r1; mov.u32 %r4, 0;
    D: ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r3]; st.global.v4.u32 [%a1], {%r10, %r11, %r12, %r13};
    add.u32 %r3, %r3, 512; add.u64 %a1, %a1, 512; add.u32 %r4, %r4, 512; setp.lt.u32 %p1, %r4, 32768; @%p1 bra D;
"""
#: Fills the shared memory with a byte pattern of its own, so that what a copy leaves alone shows.
FILL = """mad.lo.u32 %r3, %r0, 4, %r1; mov.u32 %r4, 0; F: st.shared.u32 [%r3], 0xabababab; add.u32 %r3, %r3, 128;
    add.u32 %r4, %r4, 128; setp.lt.u32 %p1, %r4, 32768; @%p1 bra F; fence.proxy.async; bar.sync 0;
"""
#: Fills the shared memory from p1.
LOAD = """ld.param.u64 %a1, [p1]; mad.wide.u32 %a1, %r0, 16, %a1; mad.lo.u32 %r3, %r0, 16, %r1; mov.u32 %r4, 0;
    F: ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%a1]; st.shared.v4.u32 [%r3], {%r10, %r11, %r12, %r13};
    add.u32 %r3, %r3, 512; add.u64 %a1, %a1, 512; add.u32 %r4, %r4, 512; setp.lt.u32 %p1, %r4, 32768; @%p1 bra F;
    fence.proxy.async.shared::cta; bar.sync 0;
"""
DECLARED = ".shared .align 1024 .b8 s[32784];"


def run(body: str, params: str, args: list[Any], **options: Any) -> None:
    text = f"{HEADER}{DECLARED}\n.visible .entry k({params})\n{{\n{body}\nret;\n}}\n"
    load(text).launch("k", options.pop("grid", 1), 32, args, **options)


def run_tensor(body: str, tensor: TensorMap, memory: Array, **options: Any) -> None:
    """p0 is the map, p1 an image of shared memory."""
    start = START + "mov.b64 %m, p0; cvta.param.u64 %m, %m;\n"
    run(start + body, ".param .align 64 .b8 p0[128], .param .u64 p1", [tensor, memory], **options)


def map_of(array: Array, box: tuple[int, ...], swizzle: int = 0, **fields: Any) -> TensorMap:
    """The map of a whole array; `box` outermost first, as NumPy's shapes."""
    return TensorMap(array, array.itemsize, array.shape[::-1], array.strides[-2::-1], box[::-1], swizzle, **fields)


def expected_box(
    array: Array, box: tuple[int, ...], start: tuple[int, ...], strides: Any = None, fill: Any = 0
) -> Array:
    """The box at `start`, all outermost first, element by element."""
    strides = strides or (1,) * len(box)
    extents = tuple(-(-b // s) for b, s in zip(box, strides, strict=True))
    result = np.full(extents, fill, array.dtype)
    for index in itertools.product(*map(range, extents)):
        place = tuple(c + i * s for c, i, s in zip(start, index, strides, strict=True))
        if all(0 <= p < n for p, n in zip(place, array.shape, strict=True)):
            result[index] = array[place]
    return result


def expected_memory(box: Array, offset: int, width: int) -> Array:
    """The shared memory after a load to `offset`, which is counted in the swizzle's pattern too."""
    memory = np.full(SHARED_BYTES, 0xAB, np.uint8)
    for i, byte in enumerate(np.ascontiguousarray(box).reshape(-1).view(np.uint8).tolist()):
        memory[models.swizzle(offset + i, width)] = byte
    return memory


def load_body(rank: int, start: tuple[int, ...], bytes_: int, offset: int = 0, words: str = ".tile") -> str:
    coordinates = ", ".join(str(c) for c in start[::-1])
    return f"""{FILL} @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], {bytes_}; add.u32 %r5, %r1, {offset};
    @%p0 cp.async.bulk.tensor.{rank}d.shared::cluster.global{words}.mbarrier::complete_tx::bytes
    [%r5], [%m, {{{coordinates}}}], [%r2];
    {WAIT}{DUMP}"""


SHAPES = [
    ((200,), (64,)),
    ((40, 64), (16, 32)),
    ((6, 20, 48), (4, 8, 16)),
    ((3, 4, 6, 32), (2, 3, 4, 16)),
    ((2, 3, 3, 5, 16), (2, 1, 2, 3, 16)),
]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.int64])
@pytest.mark.parametrize(("shape", "box"), SHAPES)
@pytest.mark.parametrize("corner", ["inside", "below", "beyond", "outside"])
def test_a_tensor_load_takes_a_box_and_zeros_outside(dtype: Any, shape: Any, box: Any, corner: str) -> None:
    array = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    pairs = list(zip(shape, box, strict=True))
    starts = {
        "inside": tuple(min(1, n - b) for n, b in pairs),
        "below": tuple(-(b // 2) for _, b in pairs),
        "beyond": tuple(n - b // 2 - 1 for n, b in pairs),
        "outside": shape,
    }
    start = starts[corner]
    out = np.zeros(SHARED_BYTES, np.uint8)
    want = expected_box(array, box, start)
    run_tensor(load_body(len(shape), start, want.nbytes, words=""), map_of(array, box), out)
    np.testing.assert_array_equal(out, expected_memory(want, 0, 0))


@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32])
@pytest.mark.parametrize("offset", [0, 1024, 384])
def test_a_tensor_load_swizzles(dtype: Any, width: int, offset: int) -> None:
    array = np.random.default_rng(1).integers(0, 100, (50, 256)).astype(dtype)
    box = (20, width // np.dtype(dtype).itemsize)
    out = np.zeros(SHARED_BYTES, np.uint8)
    want = expected_box(array, box, (40, 8))
    run_tensor(load_body(2, (40, 8), want.nbytes, offset), map_of(array, box, width), out)
    np.testing.assert_array_equal(out, expected_memory(want, offset, width))


def test_element_strides_thin_the_box() -> None:
    array = np.random.default_rng(2).integers(0, 100, (30, 20, 32)).astype(np.int16)
    out = np.zeros(SHARED_BYTES, np.uint8)
    want = expected_box(array, (9, 7, 16), (-1, 4, 8), (4, 2, 1))
    tensor = map_of(array, (9, 7, 16), element_strides=(1, 2, 4))
    run_tensor(load_body(3, (-1, 4, 8), want.nbytes), tensor, out)
    np.testing.assert_array_equal(out, expected_memory(want, 0, 0))


def test_the_outside_may_be_nan() -> None:
    array = np.ones((4, 8), np.float32)
    out = np.zeros(SHARED_BYTES, np.uint8)
    run_tensor(load_body(2, (2, 4), 128), map_of(array, (4, 8), element_type="f32", fill_nan=True), out)
    box = out[:128].view(np.float32).reshape(4, 8)
    np.testing.assert_array_equal(np.isnan(box), expected_box(array, (4, 8), (2, 4)) == 0)


def store_body(rank: int, start: tuple[int, ...], name: str = "cp.async.bulk", words: str = "", wait: str = "") -> str:
    coordinates = ", ".join(str(c) for c in start[::-1])
    return f"""{LOAD} @!%p0 bra E; {name}.tensor.{rank}d.global.shared::cta{words}.bulk_group
    [%m, {{{coordinates}}}], [%r1]; cp.async.bulk.commit_group; cp.async.bulk.wait_group{wait} 0; E:"""


@pytest.mark.parametrize("width", [0, 64, 128])
@pytest.mark.parametrize("start", [(3, 32), (-2, -5), (35, 230)])
@pytest.mark.parametrize("wait", ["", ".read"])
def test_a_tensor_store_writes_what_is_inside(width: int, start: tuple[int, int], wait: str) -> None:
    array, before = (
        np.zeros((40, 256), np.float16),
        np.random.default_rng(3).integers(0, 256, SHARED_BYTES).astype(np.uint8),
    )
    box = (8, width // 2 or 24)
    run_tensor(store_body(2, start, wait=wait), map_of(array, box, width), before)
    want, data = np.zeros_like(array), np.empty(box, np.float16).reshape(-1).view(np.uint8)
    for i in range(len(data)):
        data[i] = before[models.swizzle(i, width)]
    for r, c in itertools.product(range(box[0]), range(box[1])):
        if 0 <= start[0] + r < 40 and 0 <= start[1] + c < 256:
            want[start[0] + r, start[1] + c] = data.view(np.float16).reshape(box)[r, c]
    np.testing.assert_array_equal(array.view(np.uint16), want.view(np.uint16))


@pytest.mark.parametrize(
    ("word", "dtype", "kind", "function"),
    [
        ("add", np.float32, "f32", np.add),
        ("add", np.int32, "s32", np.add),
        ("min", np.int32, "s32", np.minimum),
        ("max", np.uint32, "u32", np.maximum),
        ("xor", np.uint32, "u32", np.bitwise_xor),
        ("add", np.float16, "f16", np.add),
    ],
)
def test_a_tensor_reduction_combines(word: str, dtype: Any, kind: str, function: Any) -> None:
    rng = np.random.default_rng(4)
    array, values = rng.integers(-50 if kind[0] != "u" else 0, 50, (2, 16, 32)).astype(dtype)
    before = np.zeros(SHARED_BYTES, np.uint8)
    before[: 8 * 16 * values.itemsize] = np.ascontiguousarray(values[:8, :16]).view(np.uint8).reshape(-1)
    want = array.copy()
    want[4:12, 8:24] = function(array[4:12, 8:24], values[:8, :16])
    body = store_body(2, (4, 8), "cp.reduce.async.bulk", f".{word}")
    run_tensor(body, map_of(array, (8, 16), element_type=kind), before)
    np.testing.assert_array_equal(array, want)


COPY = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"
PLAIN = ".param .u64 p0, .param .u64 p1"


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_plain_copy_to_shared_memory(seed: int) -> None:
    array, out = np.arange(400, dtype=np.uint32), np.zeros(SHARED_BYTES, np.uint8)
    body = f"""{START}{FILL} ld.param.u64 %a0, [p0]; @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 1280;
    @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+32], [%a0+64], 1024, [%r2];
    mov.u64 %a3, 0; mov.u32 %r6, 256;
    @%p0 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint
    [%r1+2048], [%a0], %r6, [%r2], %a3;
    {WAIT}{DUMP}"""
    run(body, PLAIN, [array, out], seed=seed)
    want = np.full(SHARED_BYTES, 0xAB, np.uint8)
    want[32:1056], want[2048:2304] = array.view(np.uint8)[64:1088], array.view(np.uint8)[:256]
    np.testing.assert_array_equal(out, want)


def test_a_copy_that_nobody_waits_for_has_not_landed() -> None:
    body = load_body(2, (0, 0), 512).replace(WAIT, "")
    with pytest.raises(SimulationError, match="an asynchronous copy has yet to write"):
        run_tensor(body, map_of(np.ones((8, 32), np.uint16), (8, 32)), np.zeros(SHARED_BYTES, np.uint8))


def test_a_kernel_that_ends_with_a_copy_in_flight_is_at_fault() -> None:
    body = load_body(2, (0, 0), 512).replace(WAIT, "").replace(DUMP, "")
    with pytest.raises(SimulationError, match="in flight when the kernel ends"):
        run_tensor(body, map_of(np.ones((8, 32), np.uint16), (8, 32)), np.zeros(SHARED_BYTES, np.uint8))
    body = store_body(2, (0, 0)).replace("cp.async.bulk.wait_group 0;", "")
    with pytest.raises(SimulationError, match="has yet to read its shared memory when the kernel ends"):
        run_tensor(body, map_of(np.ones((8, 32), np.uint16), (8, 32)), np.zeros(SHARED_BYTES, np.uint8))


def test_plain_stores_by_groups_read_late_and_write_later() -> None:
    array, before = np.zeros(64, np.uint32), np.zeros(SHARED_BYTES, np.uint8)
    before[:256] = np.arange(64, dtype=np.uint32).view(np.uint8)
    body = f"""{START}{LOAD} ld.param.u64 %a0, [p0]; @!%p0 bra E;
    cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r1], 64; cp.async.bulk.commit_group;
    cp.async.bulk.global.shared::cta.bulk_group [%a0+64], [%r1+64], 64; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 1; st.shared.u32 [%r1], 99; ld.global.u32 %r6, [%a0+4]; st.shared.u32 [%r1+64], 98;
    cp.async.bulk.wait_group 0; ld.global.u32 %r7, [%a0+4]; st.global.u32 [%a0+128], %r6;
    st.global.u32 [%a0+132], %r7; E:"""
    run(body, PLAIN, [array, before], races=False)
    want = np.zeros(64, np.uint32)
    want[:32] = np.arange(32)
    want[16], want[33] = 98, 1
    want[32] = 0
    np.testing.assert_array_equal(array, want)


@pytest.mark.parametrize(
    ("word", "kind", "want"), [("add", "u32", 12), ("inc", "u32", 0), ("max", "s32", 9), ("and", "b32", 1)]
)
def test_plain_reductions_to_global_memory(word: str, kind: str, want: int) -> None:
    array, before = np.full(8, 9, np.uint32), np.zeros(SHARED_BYTES, np.uint8)
    before.view(np.uint32)[:4] = 3
    body = f"""{START}{LOAD} ld.param.u64 %a0, [p0]; @!%p0 bra E;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.{word}.{kind} [%a0], [%r1], 16; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0; E:"""
    run(body, PLAIN, [array, before])
    np.testing.assert_array_equal(array, [want] * 4 + [9] * 4)


@pytest.mark.parametrize("noinc", [False, True])
def test_an_mbarrier_counts_earlier_cp_async(noinc: bool) -> None:
    array, out = np.arange(128, dtype=np.uint32), np.zeros(SHARED_BYTES, np.uint8)
    arrive = (
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r2];"
        if noinc
        else "cp.async.mbarrier.arrive.shared.b64 [%r2];"
    )
    extra = "" if noinc else "mbarrier.arrive.shared.b64 _, [%r2];"
    start = START.replace("[%r2], 1;", "[%r2], 32;")
    body = f"""{start}{FILL} ld.param.u64 %a0, [p0]; mad.wide.u32 %a0, %r0, 16, %a0; mad.lo.u32 %r6, %r0, 16, %r1;
    cp.async.cg.shared.global [%r6], [%a0], 16; {arrive} {extra} {WAIT}{DUMP}"""
    run(body, PLAIN, [array, out])
    np.testing.assert_array_equal(out[:512].view(np.uint32), array)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"{COPY} [%r1+8], [%a0], 16, [%r2];", "misaligned bulk copy to shared"),
        (f"{COPY} [%r1], [%a0], 24, [%r2];", "not a multiple of 16"),
        (f"{COPY} [%r1], [%a0+16], 64, [%r2];", r"64 bytes at byte 16 of buffer `p0` \(64 bytes\)"),
        (f"{COPY} [%r1+32768], [%a0], 64, [%r2];", "out-of-bounds bulk copy to shared memory"),
        (f"{COPY} [%r1], [%a0], 16, [%r1];", "no mbarrier"),
        (
            f"{COPY.replace('bulk', 'bulk.tensor.1d')} [%r1], [%a0, {{0}}], [%r2];",
            "the tensor map that a copy names is",
        ),
    ],
)
def test_faults_are_named(body: str, message: str) -> None:
    text = f"{START} ld.param.u64 %a0, [p0]; @%p0 st.shared.u64 [%r1], 0; @!%p0 bra E; {body} {WAIT} E:"
    with pytest.raises(SimulationError, match=message):
        run(text, PLAIN, [np.zeros(16, np.uint32), np.zeros(1, np.uint8)], races=False)


def test_a_map_that_reaches_beyond_its_buffer_is_found() -> None:
    array = np.ones((8, 32), np.uint16)
    tensor = TensorMap(array, 2, (32, 9), (64,), (32, 8), 0)
    with pytest.raises(SimulationError, match=r"reaches bytes 64 to 575 of buffer `p0` \(512 bytes\)"):
        run_tensor(load_body(2, (1, 0), 512), tensor, np.zeros(SHARED_BYTES, np.uint8))


def test_what_is_not_known_is_refused() -> None:
    body = load_body(3, (0, 0, 0), 512).replace(".tile", ".im2col")
    with pytest.raises(UnsupportedError, match="im2col"):
        run_tensor(body, map_of(np.ones((8, 8, 32), np.uint16), (1, 8, 32)), np.zeros(SHARED_BYTES, np.uint8))
    narrow = map_of(np.ones((8, 32), np.uint16), (8, 16), 128)
    with pytest.raises(UnsupportedError, match="rows of 32 bytes under a swizzle of 128"):
        run_tensor(load_body(2, (0, 0), 256), narrow, np.zeros(SHARED_BYTES, np.uint8))


def test_the_tx_count_that_is_too_large_is_a_deadlock() -> None:
    with pytest.raises(SimulationError, match=r"deadlock[\s\S]*1 of 1 arrived, tx-count 16"):
        run_tensor(
            load_body(2, (0, 0), 528), map_of(np.ones((8, 32), np.uint16), (8, 32)), np.zeros(SHARED_BYTES, np.uint8)
        )


def test_a_store_needs_only_what_lies_inside_the_array() -> None:
    array = np.zeros((5, 32), np.uint16)
    body = """@!%p0 bra E; mov.u32 %r3, {count}; mov.u32 %r4, %r1; F: st.shared.u32 [%r4], 65537; add.u32 %r4, %r4, 4;
    sub.u32 %r3, %r3, 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra F; fence.proxy.async;
    cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%m, {{0, 2}}], [%r1]; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0; E:"""
    run_tensor(body.format(count=48), map_of(array, (8, 32)), np.zeros(SHARED_BYTES, np.uint8))
    np.testing.assert_array_equal(array, [[0] * 32] * 2 + [[1] * 32] * 3)
    with pytest.raises(SimulationError, match="not all of them written: 4 were not, the first of them byte 188"):
        run_tensor(body.format(count=47), map_of(array, (8, 32)), np.zeros(SHARED_BYTES, np.uint8))
