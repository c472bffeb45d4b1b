"""A text carries its launch in its first line."""

from __future__ import annotations

import pytest

from mosaic_gpu.lowering.artifacts import launch_of, with_launch
from mosaic_gpu.lowering.launch import LaunchFacts

LAUNCH = LaunchFacts(entry="softmax", grid=(7, 2, 1), block=(128, 1, 1), shared_bytes=2048)


@pytest.mark.parametrize("comment", ["//", ";"])
def test_the_launch_is_read_back_from_the_first_line(comment: str) -> None:
    text = with_launch("the code\n", LAUNCH, comment)
    assert text.startswith(comment)
    assert text.endswith("\nthe code\n")
    assert launch_of(text) == LAUNCH


def test_a_text_without_a_launch_stays_as_it_is() -> None:
    assert with_launch("the code\n", None, "//") == "the code\n"
    assert launch_of("the code\n") is None
