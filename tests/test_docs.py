"""The documentation agrees with the code: generated pages are current, links lead somewhere, examples run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A fresh Python process in the checkout; fails the test where it fails."""
    result = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=280
    )
    assert result.returncode == 0, result.stderr
    return result


def anchors(page: Path) -> set[str]:
    """What `#...` may follow the page's name in a link."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_generated_pages_are_what_the_generator_makes_of_the_code() -> None:
    run_python("docs/generate.py", "--check")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_inside_the_project_leads_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", prose):
        if not target.startswith("https://"):
            file, _, anchor = target.partition("#")
            linked = page.parent / file if file else page
            assert linked.exists(), target
            assert not anchor or anchor in anchors(linked), target


def test_every_op_says_what_it_means() -> None:
    sections = re.split(r"^### `(mgpu\.\w+)`$", (ROOT / "docs/dialect.md").read_text(), flags=re.MULTILINE)
    texts = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert len(texts) > 20
    assert not [name for name, text in texts.items() if not re.match(r"\s*[A-Z`]", text)]


def test_the_kernel_in_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    file = tmp_path / "readme.py"
    file.write_text(code)
    output = run_python(str(file)).stdout
    assert "mgpu.kernel" in output
    assert ".entry softmax" in output
    assert "registers=" in output


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "mean_pool"])
def test_the_small_examples_agree_with_plain_jax(name: str) -> None:
    output = run_python(f"examples/{name}.py").stdout
    difference = re.search(r"largest difference from .*: (\S+)", output)
    assert difference is not None
    assert float(difference[1]) < 1e-5


def test_the_demo_reads_digits_and_agrees_with_plain_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    output = run_python("examples/digits.py").stdout
    accuracies = re.findall(r"accuracy with [^:]*: +([\d.]+)%", output)
    assert len(accuracies) == 2
    assert all(float(accuracy) > 95 for accuracy in accuracies)
    assert "same digit from both: 360 of 360" in output
    assert all(f"│ {kernel}" in output for kernel in ("standardise", "bias_activation", "layer_norm", "softmax"))
