"""Importing the package is cheap, and its names come when they are used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import mosaic_gpu


def _modules_after(script: str) -> set[str]:
    code = f"import json, sys\n{script}\nprint(json.dumps(sorted(m.split('.')[0] for m in sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_imports_neither_jax_nor_the_bindings() -> None:
    loaded = _modules_after("import mosaic_gpu")
    assert not loaded & {"jax", "numpy", "torch_mlir", "llvmlite"}


def test_the_parameters_and_the_api_do_without_the_bindings() -> None:
    loaded = _modules_after(
        "import mosaic_gpu; mosaic_gpu.CompilerParams(); mosaic_gpu.compile; mosaic_gpu.pallas_call"
    )
    assert "jax" in loaded
    assert not loaded & {"torch_mlir", "llvmlite"}


def test_importing_reads_no_environment() -> None:
    script = """
import os, jax
from jax.experimental import pallas
class Deaf(dict):
    def __getitem__(self, key): raise AssertionError(f"read {key}")
    get = __getitem__
os.environ, os.getenv = Deaf(), Deaf().get
import mosaic_gpu, mosaic_gpu.api, mosaic_gpu.options, mosaic_gpu.kernel, mosaic_gpu.registration
"""
    _modules_after(script)


@pytest.mark.parametrize("name", mosaic_gpu.__all__)
def test_every_public_name_exists_and_is_listed(name: str) -> None:
    assert getattr(mosaic_gpu, name).__name__ == name
    assert name in dir(mosaic_gpu)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        mosaic_gpu.nonsense  # noqa: B018
