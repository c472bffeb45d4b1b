"""The largest extents with which something holds."""

from __future__ import annotations

import pytest

from mosaic_gpu.lowering.jaxpr.grid_limits import MAX_EXTENT, largest_extents


@pytest.mark.parametrize(
    ("extents", "product", "most", "expected"),
    [
        ((None,), 100, MAX_EXTENT, (100,)),
        ((None,), 10**12, MAX_EXTENT, (MAX_EXTENT,)),
        ((None,), 1, MAX_EXTENT, None),
        ((5, None), 100, MAX_EXTENT, (5, 20)),
        ((None, 3, None), 300, 10, (10, 3, 10)),
        ((None, None), 100, MAX_EXTENT, (10, 10)),
    ],
)
def test_extents_are_as_large_as_their_product_allows(
    extents: tuple[int | None, ...], product: int, most: int, expected: tuple[int, ...] | None
) -> None:
    def holds(tried: tuple[int, ...]) -> bool:
        total = 1
        for extent in tried:
            total *= extent
        return total <= product and max(tried) <= most

    assert largest_extents(extents, holds) == expected
