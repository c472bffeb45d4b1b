"""Rules on a kernel are checked before any IR: class, message and line of each error, and when it comes."""

from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path

import jax
import pytest

import mosaic_gpu
from tests.support import faults
from tests.support.faults import FAULTS, Fault

_names = pytest.mark.parametrize("name", FAULTS)


def _line(fault: Fault) -> int:
    return int(fault.kernel.__code__.co_firstlineno) + fault.line


@_names
def test_a_fault_is_an_error_of_its_class_with_its_message(name: str) -> None:
    fault = FAULTS[name]
    with pytest.raises(fault.error, match=fault.message) as caught:
        jax.jit(fault.call)(faults.X)
    assert type(caught.value) is fault.error


@_names
def test_the_message_ends_with_the_kernels_line_and_so_does_the_traceback(name: str) -> None:
    fault = FAULTS[name]
    with pytest.raises(fault.error) as caught:
        jax.jit(fault.call)(faults.X)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.lineno) == (faults.__file__, _line(fault))
    message = str(caught.value)
    assert message.splitlines()[-1].startswith(f"  at {faults.__file__}:{_line(fault)}")


@_names
def test_compile_finds_the_same_fault(name: str) -> None:
    fault = FAULTS[name]
    with pytest.raises(fault.error, match=fault.message) as caught:
        mosaic_gpu.compile(fault.call, faults.X)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].lineno == _line(fault)


def test_no_fault_needs_the_mlir_bindings() -> None:
    script = """
import sys, jax
from tests.support.faults import FAULTS, X
for name, fault in FAULTS.items():
    try:
        jax.jit(fault.call)(X)
    except fault.error:
        assert not [m for m in sys.modules if m.startswith("torch_mlir")], name
    else:
        raise AssertionError(f"{name}: no error")
"""
    root = Path(faults.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_unsupported_is_a_not_implemented_error_and_wrong_is_a_value_error() -> None:
    with pytest.raises(NotImplementedError):
        jax.jit(FAULTS["refused traced bound"].call)(faults.X)
    with pytest.raises(ValueError, match="num_warps"):
        jax.jit(FAULTS["three warps"].call)(faults.X)


def test_the_users_frames_before_the_kernels_line_are_kept() -> None:
    with pytest.raises(mosaic_gpu.KernelError) as caught:
        jax.jit(FAULTS["three warps"].call)(faults.X)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[0].filename == __file__
    assert not [f for f in frames if "site-packages/jax" in f.filename]
