"""Encoding and decoding of tensor maps, and the rules of the driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError, UnsupportedError
from mosaic_gpu.simulator.tensor_map import FIELDS, MAP_BYTES, TensorMap, decode, encode

MAP = TensorMap(np.zeros((6, 5, 32), np.float32), 4, (32, 5, 6), (128, 640), (16, 2, 3), 64, "f32", (1, 2, 1), True)


def test_what_is_encoded_is_decoded() -> None:
    data = encode(MAP, 1 << 40)
    assert len(data) == MAP_BYTES
    got = decode(data)
    assert (got.address, got.element_bytes, got.dims, got.strides_bytes) == (1 << 40, 4, (32, 5, 6), (128, 640))
    assert (got.box, got.swizzle, got.element_type, got.fill_nan) == ((16, 2, 3), 64, "f32", True)
    assert got.extents() == (16, 1, 3)


def test_the_innermost_element_stride_is_ignored() -> None:
    assert decode(encode(replace(MAP, element_strides=(4, 2, 1)), 0)).extents() == (16, 1, 3)


def test_a_field_stands_where_the_table_says() -> None:
    data = bytearray(encode(MAP, 0))
    offset, width, step = FIELDS["global_dim"]
    data[offset + 2 * step : offset + 2 * step + width] = (7).to_bytes(width, "little")
    assert decode(bytes(data)).dims == (32, 5, 7)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"dims": (32, 5), "box": (16, 2)}, "1 to 5 dimensions"),
        ({"strides_bytes": (128, 648)}, "strides below"),
        ({"box": (16, 2, 257)}, "a box of 1 to 256 elements"),
        ({"box": (3, 2, 3)}, "multiple of 16 bytes"),
        ({"box": (32, 2, 3)}, "the swizzle holds"),
        ({"dims": (32, 0, 6)}, r"dims of 1 to 2\*\*32"),
        ({"element_strides": (1, 9, 1)}, "element strides of 1 to 8"),
        ({"swizzle": 16}, "a swizzle of 0, 32, 64 or 128"),
        ({"element_type": "s32"}, "floating-point type to fill with NaN"),
    ],
)
def test_a_map_that_the_driver_refuses_is_refused(fields: dict[str, Any], rule: str) -> None:
    with pytest.raises(SimulationError, match=rule):
        encode(replace(MAP, **fields), 0)


def test_an_address_must_be_a_multiple_of_sixteen() -> None:
    with pytest.raises(SimulationError, match="an address that 16 divides"):
        encode(MAP, 8)


def test_bytes_that_are_no_map_are_refused() -> None:
    with pytest.raises(SimulationError, match="is none"):
        decode(bytes(128))
    data = bytearray(encode(MAP, 0))
    data[FIELDS["rank"][0]] = 6
    with pytest.raises(SimulationError, match="a field out of range"):
        decode(bytes(data))
    data[FIELDS["rank"][0]], data[FIELDS["interleave_layout"][0]] = 3, 1
    with pytest.raises(UnsupportedError, match="interleaved"):
        decode(bytes(data))
