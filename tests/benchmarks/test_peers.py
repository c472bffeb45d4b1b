"""What the peers compute is what the cases' references say: on the host, as far as their libraries run there."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks.suite.cases import Case, read_cases
from benchmarks.suite.contender import NotApplicableError
from benchmarks.suite.measure import worst
from mosaic_gpu.runtime.dtypes import name_of

CASES = read_cases(Path(__file__).parent / "small.toml")


def bytes_of(array: Any) -> Any:
    """An array as `memory.to_gpu` passes it on."""
    return array.view("uint8") if name_of(array.dtype).startswith("float8") else array


def error(case: Case, found: Any, dtype: str) -> float:
    """Of a peer's result, in terms of what is allowed."""
    reference = case.how.reference(case, case.how.inputs(case))
    return worst(found, reference.values[0], reference, case.how.tolerance(case, dtype))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_jax_computes_what_the_reference_says(case: Case) -> None:
    import jax

    from benchmarks.suite import peers_jax

    arrays = peers_jax.as_arrays(case, tuple(jax.numpy.asarray(bytes_of(array)) for array in case.how.inputs(case)))
    heads_behind = case.operation == "attention"
    if heads_behind:
        case = Case(case.name, case.operation, case.dtype, {**case.sizes, "causal": False}, case.block)
        function = peers_jax.attention(case, implementation="xla")
    else:
        function = peers_jax.WAYS[case.operation][1](case)
    copies = [arrays, tuple(a.copy() for a in arrays)]
    prepared = peers_jax.prepare(function, copies, heads_behind)
    assert prepared.calls == 2
    ((found, dtype),) = prepared.results()
    assert error(case, found, dtype) <= 1


def test_attention_that_jax_masks_otherwise_is_not_measured() -> None:
    from benchmarks.suite import peers_jax

    (case,) = (case for case in CASES if case.operation == "attention")
    assert case.queries != case.keys
    for make in (peers_jax.WAYS["attention"][1], lambda c: list(peers_jax.MOSAIC["attention"][1](c))):
        with pytest.raises(NotApplicableError, match="its causal mask begins at the first key"):
            make(case)


def test_a_library_that_is_not_installed_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.suite import peers_jax, peers_torch, peers_triton

    for name in ("torch", "jax", "triton"):
        monkeypatch.setitem(sys.modules, name, None)
    everyone = [*peers_torch.contenders(), *peers_jax.contenders(), *peers_triton.contenders()]
    words = {contender.name: contender.missing.split(" (")[0] for contender in everyone}
    assert words == {
        "torch": "PyTorch is not installed",
        "torch-flash": "PyTorch is not installed",
        "jax": "JAX is not installed",
        "mosaic": "JAX is not installed",
        "triton": "Triton is not installed",
    }


@pytest.mark.skipif(find_spec("torch") is None, reason="no PyTorch")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_pytorch_computes_what_the_reference_says(case: Case) -> None:
    import torch

    from benchmarks.suite import peers_torch

    tensors = peers_torch.tensors(case, tuple(on_host(torch, bytes_of(array)) for array in case.how.inputs(case)))
    way = peers_torch.flash_attention if case.operation == "attention" else peers_torch.WAYS[case.operation][1]
    ((found, dtype),) = peers_torch.on_host(way(case, tensors)())
    assert error(case, found, dtype) <= 1


# Triton's interpreter is chosen before its kernels are defined: a process for all cases.  It takes bfloat16 for
# integers in products, and cuts where it should round: all cases are of float16 here.
_INTERPRETED = """
import sys
from pathlib import Path
import torch
from benchmarks.suite import peers_torch, peers_triton
from benchmarks.suite.cases import Case
from tests.benchmarks.test_peers import CASES, error, on_host

for case in CASES:
    case = Case(case.name, case.operation, "float16", case.sizes, case.block)
    tensors = tuple(on_host(torch, array) for array in case.how.inputs(case))
    for number, launch in enumerate(peers_triton.WAYS[case.operation][1](case, tensors)):
        ((found, dtype),) = peers_torch.on_host(launch())
        found = error(case, found, dtype)
        print(case.name, number, found)
        assert found <= 1, (case.name, number, found)
"""


@pytest.mark.skipif(find_spec("triton") is None or find_spec("torch") is None, reason="no Triton with PyTorch")
def test_triton_computes_what_the_reference_says() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERPRETED],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def on_host(torch: Any, array: Any) -> Any:
    """A host array as a tensor, whichever format it is in."""
    import numpy as np

    if array.dtype.names is None and array.dtype.kind != "V":
        return torch.from_numpy(array)
    bits = torch.from_numpy(array.view(np.dtype(f"i{array.dtype.itemsize}")))
    return bits.view(getattr(torch, name_of(array.dtype)))
