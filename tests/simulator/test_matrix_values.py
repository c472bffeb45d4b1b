"""The elements and the arithmetic of matrix instructions, and the tables of their fragments."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mosaic_gpu.simulator.descriptors import chunk_addresses, parse_descriptor
from mosaic_gpu.simulator.fragments import a_table, b_table, c_table, invert, registers_of
from mosaic_gpu.simulator.matrix_values import accumulate, chain64, decode, multiply
from tests.simulator import models, reference

DTYPES: dict[str, Any] = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "bf16": ml_dtypes.bfloat16,
                          "f16": np.float16, "s8": np.int8, "u8": np.uint8}  # fmt: skip


@pytest.mark.parametrize("kind", DTYPES)
@np.errstate(all="ignore")
def test_every_bit_pattern_is_decoded(kind: str) -> None:
    dtype = np.dtype(DTYPES[kind])
    bits = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}")
    got = decode(bits.view(np.uint32), kind)
    np.testing.assert_array_equal(got.astype(np.float64), bits.view(dtype).astype(np.float64))


def test_small_integers_and_bits_are_decoded_lowest_first() -> None:
    word = np.array([0xFEDCBA98], np.uint32)
    np.testing.assert_array_equal(decode(word, "u4"), np.arange(8, 16))
    np.testing.assert_array_equal(decode(word, "s4"), np.arange(-8, 0))
    np.testing.assert_array_equal(decode(word, "b1"), [0xFEDCBA98 >> i & 1 for i in range(32)])


@np.errstate(all="ignore")
def test_a_sum_is_rounded_once() -> None:
    a, b = np.array([[1.0, 2.0**-24, 2.0**-24]]), np.ones((1, 3))
    zero = np.zeros((1, 1), np.uint32)
    assert accumulate(multiply(a, b), zero, "f32").view(np.float32)[0, 0] == np.float32(1 + 2.0**-23)
    assert accumulate(np.array([[65519.0]]), None, "f16").view(np.float16)[0, 0] == np.float16(65504)
    assert accumulate(np.array([[65520.0]]), None, "f16").view(np.float16)[0, 0] == np.inf


def test_double_precision_is_a_chain_of_fused_multiply_adds() -> None:
    rng = np.random.default_rng(0)
    a, b, c = rng.standard_normal((2, 4)), rng.standard_normal((3, 4)), rng.standard_normal((2, 3))
    want = c.copy()
    for k in range(4):
        for i in range(2):
            for j in range(3):
                want[i, j] = reference.fma(a[i, k], b[j, k], want[i, j], "f64")
    np.testing.assert_array_equal(chain64(a, b, c), want)


@pytest.mark.parametrize("kind", ["f16", "tf32", "e4m3", "s4", "b1", "f64"])
def test_a_fragment_holds_each_element_once(kind: str) -> None:
    depth = {"f16": 16, "tf32": 8, "e4m3": 32, "s4": 64, "b1": 256, "f64": 16}[kind]
    for table in (a_table(16, depth, kind), b_table(8, depth, kind), c_table(16, 8, "f32"), c_table(16, 32, "f16")):
        np.testing.assert_array_equal(np.sort(table.reshape(-1)), np.arange(table.size))
        np.testing.assert_array_equal(table.reshape(-1)[invert(table)], np.arange(table.size))
    assert registers_of(16, depth, kind) == (8 if kind == "f64" else 4)


def test_the_example_of_the_descriptors() -> None:
    bits = models.descriptor(0, 0, 1024, 128)
    assert chunk_addresses(bits, 64, True)[3].tolist() == [384 + 48, 384 + 32]
    parsed = parse_descriptor(models.descriptor(0x3FFF0, 0x120, 0x3400, 32, 5))
    assert parsed == (0x3FFF0, 0x120, 0x3400, 5, 1, 32)
