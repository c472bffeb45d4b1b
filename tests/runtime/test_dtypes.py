"""Names of dtypes, with ml_dtypes and without."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from mosaic_gpu.runtime.dtypes import initial_value, name_of, named

_FLOATS = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz")
_FOREIGN = (*_FLOATS, "int4", "uint4")


@pytest.mark.parametrize("name", _FOREIGN)
def test_a_name_is_the_dtype_of_ml_dtypes_and_back(name: str) -> None:
    assert named(name) == np.dtype(getattr(ml_dtypes, name))
    assert name_of(named(name)) == name


@pytest.mark.parametrize("name", ["float32", "float16", "int8", "bool", "uint64"])
def test_numpys_own_names_stay_numpys(name: str) -> None:
    assert named(name) == np.dtype(name)
    assert name_of(np.dtype(name)) == name


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="float7"):
        named("float7")


# How a bit pattern reads as a number, by ml_dtypes in this process; the process without it prints the patterns.
_WITHOUT = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np
from mosaic_gpu.runtime.buffers import uninitialised
from mosaic_gpu.runtime.device_array import DeviceArray
from mosaic_gpu.runtime.dtypes import name_of, named
from mosaic_gpu.runtime.gpu_kernel import GpuKernel
from mosaic_gpu.runtime.interface import ArrayType

for name in sys.argv[1:]:
    dtype = named(name)
    assert name_of(dtype) == name and dtype != np.dtype(f"u{dtype.itemsize}") and hash(dtype)
    array = ArrayType((2, 3), dtype)
    fields = dict(grid=(1, 1, 1), block=(32, 1, 1), shared_bytes=0, operands=(array,), results=())
    kernel = GpuKernel("k", "k", "sm_90a", b"", **fields)
    assert GpuKernel.of(kernel.facts(), b"") == kernel
    print(name, uninitialised(array).tobytes().hex())
"""


def test_without_ml_dtypes_arrays_are_the_same_bytes() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT, *_FOREIGN], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = dict(line.split() for line in done.stdout.splitlines())
    assert set(found) == set(_FOREIGN)
    for name, text in found.items():
        memory = {"int4": np.int8, "uint4": np.uint8}.get(name, np.dtype(getattr(ml_dtypes, name)))
        values = np.frombuffer(bytes.fromhex(text), memory).astype(np.float32)
        expected = {"int4": -8, "uint4": 0}.get(name, np.nan)
        np.testing.assert_array_equal(values, np.full(6, expected, np.float32))


def test_an_element_starts_as_pallas_interpreter_starts_it() -> None:
    assert [initial_value(np.dtype(n)) for n in ("int16", "bool", "int32", "uint8")] == [0, 0, -(2**31), 0]
    assert np.isnan(initial_value(np.dtype(np.float32)))
