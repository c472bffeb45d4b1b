"""Cases: how they are read and chosen, what each costs, and that those of benchmarks/shapes.toml compile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.suite import portable
from benchmarks.suite.cases import OPERATIONS, Case, choose, read_cases
from mosaic_gpu.errors import KernelError

SHAPES = read_cases(Path(__file__).parents[2] / "benchmarks" / "shapes.toml")


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "cases.toml"
    file.write_text(text)
    return file


def case(operation: str, dtype: str = "bfloat16", block: tuple[int, ...] = (), **sizes: int) -> Case:
    return Case("it", operation, dtype, sizes, block)


def test_a_line_is_a_case_with_a_name_of_its_sizes(tmp_path: Path) -> None:
    sizes = "batch = 1, heads = 4, kv_heads = 2, queries = 8, keys = 9, d = 64, causal = true"
    text = f'attention = [{{ dtype = "float16", {sizes}, block = [16, 32] }}]'
    (found,) = read_cases(written(tmp_path, text))
    assert found.name == "attention_f16_1x4x2x8x9x64_causal"
    assert (found.queries, found.causal, found.block) == (8, True, (16, 32))
    with pytest.raises(AttributeError, match="no vocabulary"):
        _ = found.vocabulary


def test_cases_that_are_written_are_read_back() -> None:
    assert {c.operation for c in SHAPES} == set(OPERATIONS)


def test_a_bundles_cases_are_those_it_was_made_of(tmp_path: Path) -> None:
    again = read_cases(written(tmp_path, portable.toml(SHAPES)))
    assert [(c.name, c.dtype, dict(c.sizes), c.block) for c in again] == [
        (c.name, c.dtype, dict(c.sizes), c.block) for c in SHAPES
    ]


ATTENTION = 'attention = [{{ dtype = "float16", batch = 1, kv_heads = 2, keys = 8, d = 64, block = [8, 8], {} }}]'
SOFTMAX = 'softmax = [{{ dtype = "float32", m = 4, {} }}]'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("softmax = [", "is no TOML"),
        ("", "holds no cases"),
        ("soft = []", "no operation 'soft'\n  expected: matmul, "),
        ("softmax = 3", "is a list of cases\n  got: 3"),
        ("softmax = [3]", r"is a table\n  got: 3\n  expected: \{ dtype, m, n, block of 1 \}"),
        (SOFTMAX.format("block = [1]"), "other sizes than it should\n  got: m\n  expected: dtype, m, n, "),
        (SOFTMAX.format("n = 4, k = 4, block = [1]"), "other sizes than it should\n  got: m, n, k"),
        (SOFTMAX.format("n = 0, block = [1]"), "n is out of range\n  got: 0"),
        (SOFTMAX.format("n = true, block = [1]"), "n is out of range\n  got: True"),
        (SOFTMAX.format("n = 4.5, block = [1]"), "n is out of range\n  got: 4.5"),
        (SOFTMAX.format("n = 4, block = [1, 2]"), r"wrong block\n  got: \[1, 2\]\n  expected: \[rows\]"),
        (SOFTMAX.format('n = 4, block = [1], name = "a b"'), "no identifier\n  got: 'a b'"),
        ('softmax = [{ dtype = "int8", m = 4, n = 4 }]', "wrong dtype\n  got: int8\n  expected: float32 or "),
        (SOFTMAX.format('n = 4, block = [1] }, { dtype = "float32", m = 4, n = 4, block = [2]'),
         "two cases are named softmax_f32_4x4"),
        (ATTENTION.format("heads = 3, queries = 8"), "3 heads are no multiple of the 2 heads of keys"),
        (ATTENTION.format("heads = 4, queries = 9, causal = true"), "9 causal queries, but 8 keys"),
        (ATTENTION.format("heads = 4, queries = 8, causal = 1"), "causal is out of range\n  got: 1\n  .*: a flag"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        read_cases(written(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"cannot be read: .*nothing\.toml"):
        read_cases(tmp_path / "nothing.toml")


def test_cases_are_chosen_by_operation_and_by_name() -> None:
    name = next(c.name for c in SHAPES if c.operation == "rms_norm")
    chosen = choose(SHAPES, ["softmax", name], quick=False)
    assert {c.operation for c in chosen} == {"softmax", "rms_norm"}
    assert [c.name for c in chosen if c.operation == "rms_norm"] == [name]


def test_quick_takes_the_first_of_each_operation_and_what_is_named() -> None:
    first = [c.operation for c in choose(SHAPES, [], quick=True)]
    assert first == list(dict.fromkeys(c.operation for c in SHAPES))
    last = [c for c in SHAPES if c.operation == "softmax"][-1]
    assert choose(SHAPES, [last.name], quick=True) == [last]


def test_a_name_that_nothing_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(KernelError, match=f"no operation or case 'sofmax'\n  expected: matmul, .*\n.*{SHAPES[0].name}"):
        choose(SHAPES, ["sofmax"], quick=False)


# Counted by hand: flops, and bytes of the inputs and results.
@pytest.mark.parametrize(
    ("one", "flops", "size"),
    [
        (case("matmul", m=2, n=3, k=5), 60, 2 * (10 + 15 + 6)),
        (case("matmul", "float8_e4m3fn", m=2, n=3, k=5), 60, 10 + 15 + 2 * 6),
        (case("softmax", "float32", m=2, n=3), 30, 4 * 12),
        (case("rms_norm", m=2, n=3), 24, 2 * (6 + 6 + 3)),
        (case("cross_entropy", m=2, n=3), 24, 2 * 6 + 4 * 2 + 2 * 4 * 2),
        (case("attention", batch=1, heads=4, kv_heads=2, queries=3, keys=5, d=8, causal=0), 4 * 4 * 8 * 15, 2 * 8 * 44),
        # Of three queries the last sees five keys, those before it four and three.
        (case("attention", batch=1, heads=1, kv_heads=1, queries=3, keys=5, d=8, causal=1), 4 * 8 * 12, 2 * 8 * 2 * 8),
        (case("grouped_matmul", groups=1, m=2, n=3, k=5), 60, 2 * (10 + 15 + 6)),
    ],
)  # fmt: skip
def test_what_a_case_costs(one: Case, flops: float, size: float) -> None:
    assert one.how.flops(one) == flops
    assert one.how.bytes(one) == size


def test_inputs_are_the_same_each_time_and_no_two_tiles_are_alike() -> None:
    one = case("softmax", "float32", m=64, n=4096)
    (x,), (again,) = one.how.inputs(one), one.how.inputs(one)
    np.testing.assert_array_equal(x, again)
    assert len(np.unique(x[:, :4], axis=0)) == 64
    assert abs(x.mean()) < 0.01
    assert abs(x.std() - 1) < 0.01


@pytest.mark.parametrize("one", SHAPES, ids=lambda c: c.name)
def test_the_cases_of_the_suite_compile_and_spill_nothing(one: Case) -> None:
    import mosaic_gpu
    from benchmarks.suite.kernels import call_of

    function, arguments = call_of(one)
    used = mosaic_gpu.compile(function, *arguments, target="sm_90a").resources
    assert used.spill_bytes == 0
