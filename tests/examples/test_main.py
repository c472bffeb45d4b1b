"""Every example runs, agrees with plain JAX, and is on the page about the examples."""

from __future__ import annotations

import re

import pytest

from tests.support.examples import FOLDER, example

# What the others print is seen to in tests/test_docs.py, or they take long.
DIFFERENCES = {
    "matmul": 1e-4, "batched_matmul": 5e-2, "flash_attention": 2e-2, "rms_norm": 1e-5, "rotary": 1e-5,
    "cross_entropy": 1e-5, "cumulative_sum": 1e-3,
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENCES)
def test_an_example_agrees_with_plain_jax(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    example(name).main()
    output = capsys.readouterr().out
    difference = re.search(r"largest difference from plain JAX: (\S+)", output)
    assert difference is not None
    assert float(difference[1]) < DIFFERENCES[name]
    assert "spill_store_bytes=0, spill_load_bytes=0" in output


@pytest.mark.parametrize("name", ["embedding", "top_k"])
def test_an_example_gives_exactly_what_jax_gives(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    example(name).main()
    assert re.search(r"the same as .*: True", capsys.readouterr().out)


def test_all_examples_are_on_their_page() -> None:
    page = (FOLDER.parent / "docs/examples.md").read_text()
    assert sorted(f.name for f in FOLDER.glob("*.py")) == sorted(set(re.findall(r"`(\w+\.py)`", page)))
