"""wgmma against a plain model of descriptors, swizzles and fragments written from the PTX ISA's tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError, UnsupportedError
from mosaic_gpu.simulator import load
from tests.simulator import models
from tests.simulator.harness import kernel_text, launch

Array = np.ndarray[Any, np.dtype[Any]]
DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}
A_START, B_START, SHARED_BYTES = 0, 32768, 98304
KINDS = [("f16", "f16", "f32"), ("bf16", "bf16", "f32"), ("tf32", "tf32", "f32"), ("e4m3", "e5m2", "f32"),
         ("s8", "u8", "s32"), ("f16", "f16", "f16"), ("e5m2", "e5m2", "f16")]  # fmt: skip
FENCE = "wgmma.fence.sync.aligned;"
DONE = "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"


def offsets(size: int, width: int, k_major: bool) -> tuple[int, int]:
    """(leading, stride) byte offsets, with gaps, of an operand with `size` rows along M or N."""
    if k_major:
        return (128 * (size // 8) + 256, 128) if width == 0 else (0, 8 * width + (1024 if width == 128 else 0))
    return (128 * (size // 8), 128) if width == 0 else (16 * width, 8 * width)


def registers(prefix: str, count: int) -> list[str]:
    return [f"%{prefix}{i}" for i in range(count)]


def braces(names: list[str]) -> str:
    return "{" + ", ".join(names) + "}"


class Case:
    """One kernel: fills shared memory from p0, the accumulators from p1 and A's registers from p2; runs `body`, in
    which {d}, {a}, {da} and {db} stand for registers and descriptors; stores the accumulators to p5."""

    def __init__(self, count: int, accumulators: int) -> None:
        self.count, self.accumulators = count, accumulators
        self.image = np.zeros(SHARED_BYTES, np.uint8)

    def put(self, start: int, image: dict[int, bytes]) -> None:
        for offset, raw in image.items():
            self.image[start + offset : start + offset + len(raw)] = np.frombuffer(raw, np.uint8)

    def run(self, body: str, da: int, db: int, c: Array, a: Array, **options: Any) -> Array:
        d_names, a_names = registers("d", self.accumulators), registers("a", 4)
        lines = [f".reg .b32 {', '.join(d_names + a_names)}; .reg .b64 %p<9>, %da, %db; .reg .pred %s;",
                 ".reg .b32 %t, %q, %x<5>; mov.u32 %t, %tid.x; setp.eq.u32 %s, %t, %t; ld.param.u64 %da, [p3];",
                 "ld.param.u64 %db, [p4]; ld.param.u64 %p0, [p0]; mad.wide.u32 %p0, %t, 16, %p0; mov.u32 %q, s;",
                 "mad.lo.u32 %q, %t, 16, %q;"]  # fmt: skip
        for start in range(0, SHARED_BYTES, 2048):
            lines.append(f"ld.global.v4.b32 {{%x0, %x1, %x2, %x3}}, [%p0+{start}];")
            lines.append(f"st.shared.v4.b32 [%q+{start}], {{%x0, %x1, %x2, %x3}};")
        for i, names in ((1, d_names), (2, a_names)):
            lines.append(f"ld.param.u64 %p{i}, [p{i}]; mad.wide.u32 %p{i}, %t, {4 * len(names)}, %p{i};")
            lines += [f"ld.global.b32 {name}, [%p{i}+{4 * j}];" for j, name in enumerate(names)]
        lines += ["fence.proxy.async;", "bar.sync 0;"]
        lines.append(body.format(d=braces(d_names), a=braces(a_names), da="%da", db="%db"))
        lines.append(f"ld.param.u64 %p5, [p5]; mad.wide.u32 %p5, %t, {4 * len(d_names)}, %p5;")
        lines += [f"st.global.b32 [%p5+{4 * j}], {name};" for j, name in enumerate(d_names)]
        out = np.full((128, self.accumulators), 0xA5, np.uint32)
        arrays = [self.image, np.ascontiguousarray(c), np.ascontiguousarray(a), np.uint64(da), np.uint64(db), out]
        launch_with("\n".join(lines), arrays, **options)
        return out


def launch_with(text: str, arguments: list[Any], **options: Any) -> None:
    module = load(kernel_text(text, ["u64"] * 6, ".extern .shared .align 1024 .b8 s[];"))
    module.launch("k", 1, 128, arguments, shared_bytes=SHARED_BYTES, **options)


def problem(ka: str, kb: str, kd: str, n: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """A (64, K), B's transpose (N, K) and C (64, N)."""
    rng = np.random.default_rng(seed)
    a, b = models.random_matrix(rng, (64, DEPTH[ka]), ka), models.random_matrix(rng, (n, DEPTH[ka]), kb)
    return a, b, rng.integers(-50, 50, (64, n)).astype(models.DTYPES[kd])


def accumulators(n: int, kd: str) -> int:
    return n // 4 if kd == "f16" else n // 2


def name_of(ka: str, kb: str, kd: str, n: int) -> str:
    return f"wgmma.mma_async.sync.aligned.m64n{n}k{DEPTH[ka]}.{kd}.{ka}.{kb}"


def constants(ka: str, *, trans: str = "0, 0", signs: str = "1, 1") -> str:
    if ka in ("s8", "u8"):
        return ""
    return f", {signs}, {trans}" if ka in ("f16", "bf16") else f", {signs}"


@pytest.mark.parametrize("width", [0, 32, 64, 128])
@pytest.mark.parametrize(("ka", "kb", "kd"), KINDS)
@pytest.mark.parametrize("n", [8, 64])
def test_operands_with_k_contiguous(ka: str, kb: str, kd: str, n: int, width: int) -> None:
    a, b, c = problem(ka, kb, kd, n)
    case = Case(n, accumulators(n, kd))
    la, lb = offsets(64, width, True), offsets(n, width, True)
    case.put(A_START, models.operand_image(a, ka, True, width, *la))
    case.put(B_START, models.operand_image(b, kb, True, width, *lb))
    body = f"{FENCE} {name_of(ka, kb, kd, n)} {{d}}, {{da}}, {{db}}, %s{constants(ka)}; {DONE}"
    da, db = models.descriptor(A_START, *la, width), models.descriptor(B_START, *lb, width)
    out = case.run(body, da, db, models.scatter_warpgroup(c, kd), np.zeros((128, 4), np.uint32))
    want = models.product(a, b.T, c).astype(models.DTYPES[kd])
    np.testing.assert_array_equal(models.gather_warpgroup(out, kd, n), want)


@pytest.mark.parametrize("width", [0, 32, 64, 128])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize(("a_major", "b_major"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("n", [16, 256])
def test_operands_with_m_or_n_contiguous(n: int, a_major: bool, b_major: bool, kind: str, width: int) -> None:
    a, b, c = problem(kind, kind, "f32", n)
    case = Case(n, accumulators(n, "f32"))
    la, lb = offsets(64, width, a_major), offsets(n, width, b_major)
    case.put(A_START, models.operand_image(a, kind, a_major, width, *la))
    case.put(B_START, models.operand_image(b, kind, b_major, width, *lb))
    trans = f"{int(not a_major)}, {int(not b_major)}"
    body = f"{FENCE} {name_of(kind, kind, 'f32', n)} {{d}}, {{da}}, {{db}}, %s{constants(kind, trans=trans)}; {DONE}"
    da, db = models.descriptor(A_START, *la, width), models.descriptor(B_START, *lb, width)
    out = case.run(body, da, db, models.scatter_warpgroup(c, "f32"), np.zeros((128, 4), np.uint32))
    np.testing.assert_array_equal(models.gather_warpgroup(out, "f32", n), models.product(a, b.T, c))


def warpgroup_registers(a: Array, kind: str) -> Array:
    """A's registers, (128, 4): each warp holds 16 rows as for mma."""
    shape = (16, 8, a.shape[1])
    return np.concatenate([models.fragments(a[16 * w : 16 * w + 16], kind, "a", shape) for w in range(4)])


@pytest.mark.parametrize(("ka", "kb", "kd"), KINDS)
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_left_operand_from_registers(ka: str, kb: str, kd: str, seed: int) -> None:
    n = 32
    a, b, c = problem(ka, kb, kd, n, seed)
    case = Case(n, accumulators(n, kd))
    lb = offsets(n, 64, True)
    case.put(B_START, models.operand_image(b, kb, True, 64, *lb))
    body = f"{FENCE} {name_of(ka, kb, kd, n)} {{d}}, {{a}}, {{db}}, %s{constants(ka, trans='0')}; {DONE}"
    out = case.run(body, 0, models.descriptor(B_START, *lb, 64), models.scatter_warpgroup(c, kd),
                   warpgroup_registers(a, ka), seed=seed)  # fmt: skip
    np.testing.assert_array_equal(
        models.gather_warpgroup(out, kd, n), models.product(a, b.T, c).astype(models.DTYPES[kd])
    )


def prepared(kind: str = "f16", n: int = 16, **offset: int) -> tuple[Case, int, int, Array, Array, Array]:
    """A case with K contiguous and a swizzle of 128 bytes."""
    a, b, c = problem(kind, kind, "f32", n)
    case = Case(n, accumulators(n, "f32"))
    la, lb = offsets(64, 128, True), offsets(n, 128, True)
    case.put(A_START, models.operand_image(a, kind, True, 128, *la))
    case.put(B_START, models.operand_image(b, kind, True, 128, *lb))
    return case, models.descriptor(A_START, *la, 128), models.descriptor(B_START, *lb, 128), a, b, c


NOTHING = np.zeros((128, 4), np.uint32)
MMA = "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {d}, {da}, {db}, %s, 1, 1, 0, 0;"


@pytest.mark.parametrize("signs", ["1, -1", "-1, 1", "-1, -1"])
def test_operands_may_be_negated(signs: str) -> None:
    case, da, db, a, b, c = prepared()
    out = case.run(FENCE + MMA.replace("1, 1", signs) + DONE, da, db, models.scatter_warpgroup(c, "f32"), NOTHING)
    sign = 1 if signs.count("-") == 2 else -1
    np.testing.assert_array_equal(models.gather_warpgroup(out, "f32", 16), models.product(sign * a, b.T, c))


def test_a_false_scale_d_ignores_the_accumulator() -> None:
    case, da, db, a, b, c = prepared()
    c[:] = np.nan
    body = "setp.ne.u32 %s, %t, %t;" + FENCE + MMA + DONE
    out = case.run(body, da, db, models.scatter_warpgroup(c, "f32"), NOTHING)
    np.testing.assert_array_equal(models.gather_warpgroup(out, "f32", 16), models.product(a, b.T, 0 * b[:1, 0]))


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4])
def test_a_chain_on_the_same_accumulators_is_done_in_order(seed: int) -> None:
    case, da, db, a, b, c = prepared()
    body = FENCE + MMA + MMA + "wgmma.commit_group.sync.aligned;" + MMA + DONE
    out = case.run(body, da, db, models.scatter_warpgroup(c, "f32"), NOTHING, seed=seed)
    np.testing.assert_array_equal(
        models.gather_warpgroup(out, "f32", 16), models.product(a, b.T, c) + 2 * models.product(a, b.T, 0 * c)
    )


def test_accumulators_hold_their_old_values_until_they_are_waited_for() -> None:
    case, da, db, _, _, c = prepared()
    old = models.scatter_warpgroup(c, "f32")
    for body in (FENCE + MMA, FENCE + MMA + "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1;",
                 FENCE + MMA + "wgmma.wait_group.sync.aligned 0;"):  # fmt: skip
        np.testing.assert_array_equal(case.run(body, da, db, old, NOTHING, races=False), old)


def test_an_older_group_is_done_while_the_younger_is_not() -> None:
    case, da, db, a, b, c = prepared()
    commit = "wgmma.commit_group.sync.aligned;"
    body = FENCE + MMA + commit + MMA + commit + "wgmma.wait_group.sync.aligned 1;"
    out = case.run(body, da, db, models.scatter_warpgroup(c, "f32"), NOTHING, races=False)
    np.testing.assert_array_equal(models.gather_warpgroup(out, "f32", 16), models.product(a, b.T, c))


def test_operands_overwritten_before_the_wait_give_what_was_written() -> None:
    case, da, db, _, _, c = prepared()
    clear = "".join(f"st.shared.v4.b32 [%q+{start}], {{{{%x4, %x4, %x4, %x4}}}};" for start in range(0, 16384, 2048))
    body = FENCE + MMA + "mov.u32 %x4, 0;" + clear + "bar.sync 0;" + DONE
    out = case.run(body, da, db, models.scatter_warpgroup(c, "f32"), NOTHING, races=False)
    np.testing.assert_array_equal(models.gather_warpgroup(out, "f32", 16), c)


def test_registers_of_the_left_operand_are_read_when_it_is_done() -> None:
    case, _, db, a, b, c = prepared()
    body = FENCE + MMA.replace("{da}", "{a}").replace("0, 0", "0") + "mov.u32 %a0, 0; mov.u32 %a1, 0;" + DONE
    out = case.run(body, 0, db, models.scatter_warpgroup(c, "f32"), warpgroup_registers(a, "f16"), races=False)
    late = a.copy()
    late[:, :8] = 0
    np.testing.assert_array_equal(models.gather_warpgroup(out, "f32", 16), models.product(late, b.T, c))


def test_a_pattern_that_starts_off_its_alignment_has_a_base_offset() -> None:
    a, b, c = problem("f16", "f16", "f32", 16)
    case = Case(16, 8)
    la, lb = offsets(64, 128, True), offsets(16, 128, True)
    case.put(A_START, models.operand_image(a, "f16", True, 128, *la))
    case.put(B_START + 384, models.operand_image(b, "f16", True, 128, *lb))
    db = models.descriptor(B_START + 384, *lb, 128, base_offset=3)
    out = case.run(
        FENCE + MMA + DONE, models.descriptor(A_START, *la, 128), db, models.scatter_warpgroup(c, "f32"), NOTHING
    )
    np.testing.assert_array_equal(models.gather_warpgroup(out, "f32", 16), models.product(a, b.T, c))


@pytest.mark.parametrize("word", ["", ".satfinite"])
def test_integer_accumulators_wrap_or_saturate(word: str) -> None:
    a, b, c = np.ones((64, 32), np.int8), np.ones((16, 32), np.int8), np.full((64, 16), 2**31 - 5, np.int32)
    case = Case(16, 8)
    la, lb = offsets(64, 128, True), offsets(16, 128, True)
    case.put(A_START, models.operand_image(a, "s8", True, 128, *la))
    case.put(B_START, models.operand_image(b, "s8", True, 128, *lb))
    body = f"{FENCE} wgmma.mma_async.sync.aligned.m64n16k32{word}.s32.s8.s8 {{d}}, {{da}}, {{db}}, %s; {DONE}"
    out = case.run(
        body,
        models.descriptor(0, *la, 128),
        models.descriptor(B_START, *lb, 128),
        c.reshape(128, 8).view(np.uint32),
        NOTHING,
    )
    assert (out.view(np.int32) == (2**31 - 1 if word else -(2**31) + 27)).all()


def test_single_bits_are_counted() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 2, (64, 256)).astype(np.uint8), rng.integers(0, 2, (16, 256)).astype(np.uint8)
    c = rng.integers(-50, 50, (64, 16)).astype(np.int32)
    case = Case(16, 8)
    la, lb = offsets(64, 128, True), offsets(16, 128, True)
    for start, bits, where in ((A_START, a, la), (B_START, b, lb)):
        packed = np.packbits(bits, axis=1, bitorder="little")
        case.put(start, models.operand_image(packed, "u8", True, 128, *where))
    body = f"{FENCE} wgmma.mma_async.sync.aligned.m64n16k256.s32.b1.b1.and.popc {{d}}, {{da}}, {{db}}, %s; {DONE}"
    da, db = models.descriptor(A_START, *la, 128), models.descriptor(B_START, *lb, 128)
    out = case.run(body, da, db, models.scatter_warpgroup(c, "s32"), NOTHING)
    np.testing.assert_array_equal(models.gather_warpgroup(out, "s32", 16), models.product(a, b.T, c))


def test_an_operand_outside_shared_memory_is_an_error() -> None:
    case, da, _, _, _, c = prepared()
    with pytest.raises(SimulationError, match=r"wgmma reads 16 bytes of shared memory at byte 98304 outside"):
        case.run(FENCE + MMA + DONE, da, models.descriptor(SHARED_BYTES, 0, 1024, 128), c, NOTHING)


def test_shared_memory_that_was_never_written_is_an_error() -> None:
    body = """.reg .b32 %d<8>; .reg .b64 %x; .reg .pred %s; setp.eq.u32 %s, 0, 0; mov.b64 %x, 4611686293305294848;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7},
    %x, %x, %s, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"""
    with pytest.raises(SimulationError, match=r"at byte 0 that was never written[\s\S]*wgmma.mma_async"):
        launch(body, [], block=128, declarations=".shared .align 1024 .b8 s[16384];")


def test_threads_of_a_warpgroup_that_disagree_are_an_error() -> None:
    case, da, db, _, _, c = prepared()
    with pytest.raises(SimulationError, match="different descriptors of B"):
        case.run("@%s cvt.u64.u32 %db, %t;" + FENCE + MMA + DONE, da, db, c, NOTHING)


def test_a_warp_that_never_comes_is_a_deadlock() -> None:
    case, da, db, _, _, c = prepared()
    with pytest.raises(SimulationError, match=r"deadlock[\s\S]*96 threads[\s\S]*mma_async"):
        case.run("setp.lt.u32 %s, %t, 32; @%s bra D;" + FENCE + MMA + DONE + "D: bar.sync 0;", da, db, c, NOTHING)


@pytest.mark.parametrize("name", ["m64n12k16.f32.f16.f16", "m64n40k32.s32.s8.s8", "m64n16k16.f32.f16.bf16"])
def test_what_is_not_there_is_refused(name: str) -> None:
    case, da, db, _, _, c = prepared()
    with pytest.raises(UnsupportedError, match="wgmma"):
        case.run(f"wgmma.mma_async.sync.aligned.{name} {{d}}, {{da}}, {{db}}, %s, 1, 1, 0, 0;", da, db, c, NOTHING)
