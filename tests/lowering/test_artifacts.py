"""A text carries its launch in its first line."""

from __future__ import annotations

import pytest

from mosaic_gpu.lowering.artifacts import launch_of, with_launch
from mosaic_gpu.lowering.launch import LaunchFacts
from mosaic_gpu.lowering.tensor_maps import TensorMapFacts

MAP = TensorMapFacts(argument=0, element_bytes=4, dims=(32, 16), strides_bytes=(128,), box=(8, 8), swizzle=0)
LAUNCH = LaunchFacts("softmax", (7, 2, 1), (128, 1, 1), 2048, (MAP,), cluster=(2, 1, 1), programmatic=True)


@pytest.mark.parametrize("comment", ["//", ";"])
def test_the_launch_is_read_back_from_the_first_line(comment: str) -> None:
    text = with_launch("the code\n", LAUNCH, comment)
    assert text.startswith(comment)
    assert text.endswith("\nthe code\n")
    assert launch_of(text) == LAUNCH


def test_a_text_without_a_launch_stays_as_it_is() -> None:
    assert with_launch("the code\n", None, "//") == "the code\n"
    assert launch_of("the code\n") is None
