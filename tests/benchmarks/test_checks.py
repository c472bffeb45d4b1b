"""What decides whether a result is right: the formats, the references, what is checked, and how far off is too far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from benchmarks.suite import operation
from benchmarks.suite.cases import Case, read_cases
from benchmarks.suite.floats import ROUNDOFF, SMALLEST, decode, encode
from benchmarks.suite.measure import Roofline, worst
from benchmarks.suite.operation import Reference, Tolerance, checked_rows
from benchmarks.suite.ops_matmul import group_sizes, tile_table
from tests.support.examples import example

CASES = read_cases(Path(__file__).parent / "small.toml")
FORMATS = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float16")


@pytest.mark.parametrize("name", FORMATS)
def test_every_number_of_a_format_reads_as_ml_dtypes_reads_it(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    bits = np.arange(256**dtype.itemsize).astype(f"u{dtype.itemsize}").view(dtype)
    np.testing.assert_array_equal(decode(bits), bits.astype(np.float32))


@pytest.mark.parametrize("name", FORMATS)
def test_numbers_are_rounded_to_the_nearest(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    values = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    np.testing.assert_array_equal(decode(encode(values, name)), values.astype(dtype).astype(np.float32))


@pytest.mark.parametrize("name", ROUNDOFF)
def test_the_rounding_errors_are_those_of_the_formats(name: str) -> None:
    info = ml_dtypes.finfo(getattr(ml_dtypes, name, name))
    assert ROUNDOFF[name] == float(info.eps) / 2
    assert name not in SMALLEST or SMALLEST[name] == float(info.smallest_subnormal)


def in_jax(case: Case, inputs: Any) -> Any:
    """The case's results in plain JAX and float32."""
    wide = [jnp.asarray(decode(a)) for a in inputs]
    if case.operation == "matmul":
        return wide[0] @ (wide[1].T if case.dtype.startswith("float8") else wide[1])
    if case.operation == "attention":
        return example("flash_attention").flash_attention_reference(*wide, causal=bool(case.causal)).reshape(-1, case.d)
    if case.operation == "softmax":
        return jax.nn.softmax(wide[0], axis=-1)
    if case.operation == "rms_norm":
        return example("rms_norm").rms_norm_reference(*wide)
    if case.operation == "cross_entropy":
        return example("cross_entropy").cross_entropy_reference(*wide)
    return example("grouped_matmul").grouped_matmul_reference(*wide)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_reference_says_what_plain_jax_says(case: Case) -> None:
    inputs = case.how.inputs(case)
    found = case.how.reference(case, inputs)
    assert found.rows is None
    np.testing.assert_allclose(found.values[0], in_jax(case, inputs), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_of_some_rows_the_reference_is_that_of_all(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = case.how.inputs(case)
    whole = case.how.reference(case, inputs)
    monkeypatch.setattr(operation, "_REFERENCE_FLOPS", 1.0)
    some = case.how.reference(case, inputs)
    if case.operation in ("softmax", "rms_norm"):  # never so long
        assert some.rows is None
        return
    assert some.rows is not None
    assert 0 < len(some.rows) < len(whole.values[0])
    for part, every in zip(some.values, whole.values, strict=True):
        np.testing.assert_allclose(part, every[some.rows], rtol=1e-12, atol=1e-12)


def test_the_table_of_tiles_is_the_examples() -> None:
    tile_table_of_jax = example("grouped_matmul").tile_table
    for sizes in ([100, 0, 28], [0, 0, 128], [1] * 128, [128], [64, 64]):
        given = np.array(sizes, np.int32)
        count, *table = tile_table(given, 128, 32)
        expected, *tables = (np.asarray(a) for a in tile_table_of_jax(jnp.asarray(given), 128, 32))
        assert count == expected
        for ours, theirs in zip(table, tables, strict=True):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            np.testing.assert_array_equal(ours[:count], theirs[:count])


@pytest.mark.parametrize("groups", [1, 8, 64])
def test_groups_are_uneven_and_hold_all_rows(groups: int) -> None:
    sizes = group_sizes(Case("it", "grouped_matmul", "bfloat16", {"groups": groups, "m": 1000}))
    assert sizes.sum() == 1000
    assert len(sizes) == groups
    assert sizes.min() >= 0
    assert groups == 1 or sizes.max() > 2 * 1000 / groups


def test_of_large_results_every_tile_has_rows_that_are_checked() -> None:
    assert checked_rows(4096, 1e9) is None
    rows = checked_rows(4100, 1e12)
    assert rows is not None
    assert rows[-1] < 4100
    assert set(rows // 16) == set(range(257))
    assert len(set(rows % 16)) == 16


@pytest.mark.parametrize("rows", [None, np.array([1, 3])])
def test_errors_are_told_in_terms_of_what_is_allowed(rows: Any) -> None:
    values = np.array([[1.0, -2.0], [4.0, 0.0], [1.0, 1.0], [8.0, 8.0]])
    picked = values if rows is None else values[rows]
    reference, tolerance = Reference((picked,), 2.0, rows), Tolerance(0.25, 0.125, "")
    assert worst(values.astype(np.float32), picked, reference, tolerance) == 0
    off = values.astype(np.float32)
    off[1] = [4.0 + 2.5, 0.0]  # 0.25 of 4 and 0.125 of 2 are allowed
    assert worst(off, picked, reference, tolerance) == 2
    off[2] = 5  # of a row that is not among those that are checked
    assert (worst(off, picked, reference, tolerance) > 2) == (rows is None)


def test_what_is_no_number_is_wrong_wherever_it_is() -> None:
    values = np.zeros((4, 2))
    reference, tolerance = Reference((values[:1],), 1.0, np.array([0])), Tolerance(1.0, 1.0, "")
    found = np.zeros((4, 2), np.float32)
    found[3, 1] = np.nan
    assert worst(found, reference.values[0], reference, tolerance) == np.inf


def test_a_result_of_another_shape_is_wrong() -> None:
    values = np.zeros((4, 2))
    assert worst(np.zeros((3, 2), np.float32), values, Reference((values,)), Tolerance(1.0, 1.0, "")) == np.inf


# A missing step of the loop, a tile that was swapped, a row that was left out: all must be found.
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_tolerance_lets_rounding_pass_and_no_more(case: Case) -> None:
    reference = case.how.reference(case, case.how.inputs(case))
    right = reference.values[0]
    dtype = {"cross_entropy": "float32"}.get(case.operation, "bfloat16" if "float8" in case.dtype else case.dtype)
    tolerance = case.how.tolerance(case, dtype)
    rounded = decode(encode(right.astype(np.float32), dtype)) if dtype != "float32" else right.astype(np.float32)
    assert worst(rounded, right, reference, tolerance) <= 1
    assert worst(np.roll(rounded, 1, axis=0), right, reference, tolerance) > 1
    assert worst(rounded * np.float32(1.05), right, reference, tolerance) > 1


def test_the_roofline_is_the_slower_of_arithmetic_and_memory() -> None:
    limits = Roofline(flops=2e9, bytes=1e6, flops_per_s=1e15, bytes_per_s=1e12)
    assert (limits.compute_us, limits.memory_us) == (2.0, 1.0)
    assert (limits.bound, limits.least_us) == ("compute", 2.0)
    assert Roofline(1e9, 4e6, 1e15, 1e12).bound == "memory"
    assert Roofline(1e9, 4e6, 0.0, 1e12).least_us == 4.0  # tensor cores that do not take the dtype
