"""The doctor says what is there, what is missing, and what mends it, on machines of every kind."""

from __future__ import annotations

import ctypes
import importlib.metadata
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mosaic_gpu import doctor
from mosaic_gpu.cli import main
from mosaic_gpu.doctor import Finding, diagnose, find_package, report


def _by_subject() -> dict[str, Finding]:
    return {finding.subject: finding for finding in diagnose()}


def test_an_environment_that_passes_these_tests_has_no_fault() -> None:
    assert [finding for finding in diagnose() if finding.is_fault] == []
    assert main(["doctor"]) == 0


def test_versions_are_those_of_the_installed_packages() -> None:
    assert _by_subject()["jax"].detail == importlib.metadata.version("jax")


@pytest.mark.parametrize(
    ("version", "status"),
    [("0.11.2", "ok"), ("0.12.7", "ok"), ("0.12.0.dev1", "ok"), ("0.11.1", "fault"), ("0.13", "fault")],
)
def test_a_version_outside_of_the_bounds_is_a_fault(version: str, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    assert find_package("jax", ((0, 11, 2), (0, 13)), "mend it").status == status


def test_a_package_that_is_missing_is_a_fault_with_a_command() -> None:
    finding = find_package("no-such-package", ((1,), None), "pip install no-such-package")
    assert finding.is_fault
    assert "pip install no-such-package" in report([finding])


def test_with_neither_assembler_cubins_are_a_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "nvjitlink_version", lambda: None)
    monkeypatch.setattr(doctor, "find_tool", lambda name: None)
    found = _by_subject()
    assert [found[s].status for s in ("nvJitLink", "ptxas", "assembler", "nvdisasm")] == [
        "absent", "absent", "fault", "absent"
    ]  # fmt: skip
    assert main(["doctor"]) == 1
    assert "pip install 'mosaic-gpu[cuda13]'" in capsys.readouterr().out


def test_one_assembler_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "nvjitlink_version", lambda: None)
    if doctor.find_tool("ptxas") is None:
        pytest.skip("ptxas is not installed")
    assert _by_subject()["assembler"].status == "ok"


_WITHOUT = """
import sys
for name in {names}:
    sys.modules[name] = None
from mosaic_gpu.cli import main
sys.exit(main(["doctor"]))
"""


@pytest.mark.parametrize(
    "names", [["torch_mlir"], ["llvmlite", "llvmlite.binding"], ["cuda", "cuda.bindings"], ["jax"]]
)
def test_the_doctor_itself_needs_none_of_what_it_looks_for(names: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT.format(names=names)], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert "python" in done.stdout


def test_the_doctor_never_imports_what_can_hang() -> None:
    code = "import sys; from mosaic_gpu.cli import main; main(['doctor']); sys.exit('cuda.core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


class _Driver:
    """A driver with GPUs, as far as the doctor asks: name and compute capability each."""

    def __init__(self, *gpus: tuple[str, int, int]) -> None:
        self.gpus = gpus

    def cuInit(self, flags: int) -> int:  # noqa: N802 (the driver's own names)
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802
        version._obj.value = 13020
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = len(self.gpus)
        return 0

    def cuDeviceGet(self, device: Any, index: int) -> int:  # noqa: N802
        device._obj.value = index
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: ctypes.c_int) -> int:  # noqa: N802
        name.value = self.gpus[device.value][0].encode()
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: ctypes.c_int) -> int:  # noqa: N802
        value._obj.value = self.gpus[device.value][{75: 1, 76: 2}[attribute]]
        return 0


def _library(driver: object) -> Callable[[str], object]:
    def load(name: str) -> object:
        assert name == "libcuda.so.1"
        if driver is None:
            raise OSError(name)
        return driver

    return load


def test_gpus_are_named_with_the_target_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", _library(_Driver(("NVIDIA H100", 9, 0), ("Tesla V100", 7, 0))))
    found = _by_subject()
    assert found["driver"].detail == "CUDA 13.2"
    assert found["GPU 0"].detail == "NVIDIA H100, compute capability 9.0, target sm_90"
    assert found["GPU 1"].detail == "Tesla V100, compute capability 7.0: not supported"


def test_without_a_driver_kernels_run_on_the_simulator_and_that_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", _library(None))
    found = _by_subject()
    assert (found["driver"].status, found["GPU"].status) == ("absent", "absent")
    assert "simulator" in found["driver"].detail


def test_a_driver_without_a_gpu_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", _library(_Driver()))
    assert _by_subject()["GPU"].status == "absent"
