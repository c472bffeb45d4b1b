"""The command `mosaic-gpu doctor`: what is installed, what is missing, and the command that mends it.

Each question is a small function that gives a `Finding` and never raises; none of them touches `cuda.core`,
which can hang in a process without a driver: the driver is asked through ctypes.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mosaic_gpu.errors import MosaicGpuError
from mosaic_gpu.launcher import BUILD_COMMAND, find_launcher
from mosaic_gpu.lowering.assemblers import nvjitlink_version
from mosaic_gpu.lowering.targets import parse_target
from mosaic_gpu.lowering.toolpaths import find_libdevice, find_tool

_LEAST_PYTHON = (3, 12)
_MINOR, _MAJOR = 76, 75  # CUdevice_attribute: COMPUTE_CAPABILITY_MINOR, _MAJOR


@dataclass(frozen=True)
class Finding:
    """The answer to one question.

    Attributes:
      subject: what was looked for.
      status: "ok"; "fault": kernels cannot be compiled or run; "absent": something that can be done without.
      detail: version and place, or what is wrong.
      remedy: the command that mends it; empty where there is nothing to mend.
    """

    subject: str
    status: Literal["ok", "fault", "absent"]
    detail: str
    remedy: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether the package cannot do its work like this."""
        return self.status == "fault"


def diagnose() -> list[Finding]:
    """Everything the package needs or may use, in the order in which a kernel meets it."""
    questions: tuple[Callable[[], Finding], ...] = (
        find_python,
        lambda: find_package("jax", ((0, 11, 2), (0, 13)), "pip install 'jax>=0.11.2,<0.13'"),
        lambda: find_package("numpy", ((2,), None), "pip install 'numpy>=2.0'"),
        lambda: find_package("torch-mlir", ((20261001,), None), "pip install 'torch-mlir>=20261001'"),
        lambda: find_package("llvmlite", ((0, 50), (0, 51)), "pip install 'llvmlite>=0.50,<0.51'"),
        find_mlir,
        find_nvptx,
        find_math_library,
        find_bindings,
        find_nvjitlink,
        find_ptxas,
        find_assembler,
        find_disassembler,
        find_driver,
        find_native_launcher,
        find_cache_folder,
    )
    return [question() for question in questions] + find_gpus()


def report(findings: list[Finding]) -> str:
    """The findings as lines of text, remedies last."""
    marks = {"ok": "ok     ", "fault": "FAULT  ", "absent": "absent "}
    width = max(len(finding.subject) for finding in findings)
    lines = [f"{marks[f.status]} {f.subject:{width}}  {f.detail}" for f in findings]
    remedies = [f"  {f.subject:{width}}  {f.remedy}" for f in findings if f.remedy]
    if remedies:
        lines += ["", "To mend it:", *remedies]
    faults = sum(finding.is_fault for finding in findings)
    lines += ["", f"{faults} fault(s)." if faults else "Kernels compile and run here."]
    return "\n".join(lines)


def find_python() -> Finding:
    """The interpreter."""
    version = platform.python_version()
    if sys.version_info[:2] >= _LEAST_PYTHON:
        return Finding("python", "ok", f"{version} ({sys.executable})")
    return Finding("python", "fault", f"{version} is too old, 3.12 is needed", "uv python install 3.12")


Bounds = tuple[tuple[int, ...], tuple[int, ...] | None]


def find_package(name: str, bounds: Bounds, remedy: str) -> Finding:
    """A distribution with a version from `bounds[0]` on and below `bounds[1]`."""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "fault", "is not installed", remedy)
    least, limit = bounds
    numbers = _numbers(version)
    if numbers < least or (limit is not None and numbers >= limit):
        return Finding(name, "fault", f"{version} is not supported", remedy)
    return Finding(name, "ok", version)


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (0, 11, 2) of "0.11.2.dev1"."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def find_mlir() -> Finding:
    """The MLIR bindings: do they load?"""
    try:
        import mosaic_gpu.dialect._mlir  # noqa: F401 (to see whether it loads)
    except ImportError as error:
        return Finding("MLIR bindings", "fault", str(error), "pip install --force-reinstall 'torch-mlir>=20261001'")
    return Finding("MLIR bindings", "ok", "they load")


def find_nvptx() -> Finding:
    """LLVM's back-end for PTX, in llvmlite."""
    remedy = "pip install --force-reinstall 'llvmlite>=0.50,<0.51'"
    try:
        import llvmlite.binding as llvm

        llvm.initialize_all_targets()
        llvm.Target.from_triple("nvptx64-nvidia-cuda")
    except (ImportError, OSError, RuntimeError) as error:
        return Finding("NVPTX back-end", "fault", str(error), remedy)
    return Finding("NVPTX back-end", "ok", "LLVM {}.{}.{}".format(*llvm.llvm_version_info))


def find_math_library() -> Finding:
    """libdevice."""
    path = find_libdevice()
    if path is None:
        return Finding(
            "libdevice", "fault", "not found: exp, sin, pow and so on need it", "pip install 'nvidia-nvvm>=13,<14'"
        )
    return Finding("libdevice", "ok", str(path))


def find_bindings() -> Finding:
    """The bindings of the driver and of nvJitLink."""
    try:
        return Finding("cuda-bindings", "ok", importlib.metadata.version("cuda-bindings"))
    except importlib.metadata.PackageNotFoundError:
        return Finding("cuda-bindings", "absent", "is not installed", "pip install 'cuda-bindings>=12.9,<14'")


def find_nvjitlink() -> Finding:
    """nvJitLink, which makes cubins in process where ptxas is absent or older."""
    version = nvjitlink_version()
    if version is None:
        return Finding("nvJitLink", "absent", "not found", "pip install 'nvidia-nvjitlink>=13,<14'")
    return Finding("nvJitLink", "ok", "{}.{}".format(*version))


def find_ptxas() -> Finding:
    """The program that makes cubins."""
    path = find_tool("ptxas")
    if path is None:
        return Finding("ptxas", "absent", "not found", "pip install 'nvidia-cuda-nvcc>=13,<14'")
    return Finding("ptxas", "ok", f"{_tool_version(path)} ({path})")


def find_assembler() -> Finding:
    """Either of the two."""
    if find_tool("ptxas") is not None:
        return Finding("assembler", "ok", "ptxas")
    if find_nvjitlink().status == "ok":
        return Finding("assembler", "ok", "nvJitLink: kernels get more registers than ptxas would give them")
    return Finding("assembler", "fault", "neither nvJitLink nor ptxas", "pip install 'mosaic-gpu[cuda13]'")


def find_disassembler() -> Finding:
    """What shows SASS."""
    path = find_tool("nvdisasm") or find_tool("cuobjdump")
    if path is None:
        return Finding(
            "nvdisasm", "absent", "not found: SASS cannot be shown", "pip install 'nvidia-cuda-nvdisasm>=13,<14'"
        )
    return Finding("nvdisasm", "ok", f"{_tool_version(path)} ({path})")


def _tool_version(path: Path) -> str:
    """What the tool calls its release."""
    try:
        done = subprocess.run([str(path), "--version"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    _, _, release = done.stdout.partition("release ")
    return release.split("\n")[0].strip() or "unknown version"


def find_native_launcher() -> Finding:
    """The native library of kernels inside jax.jit."""
    path = find_launcher()
    if path is None:
        return Finding("launcher", "absent", "not built: on a GPU kernels inside jax.jit need it", BUILD_COMMAND)
    return Finding("launcher", "ok", str(path))


def load_driver() -> Any | None:
    """The driver's library, initialised; None where there is none or it has no GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def find_driver() -> Finding:
    """The driver, and the CUDA version it knows."""
    driver = load_driver()
    if driver is None:
        return Finding("driver", "absent", "no NVIDIA driver: kernels run on the simulator")
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    return Finding("driver", "ok", f"CUDA {version.value // 1000}.{version.value % 1000 // 10}")


def find_gpus() -> list[Finding]:
    """The GPUs of this machine, one finding each; one where there is none."""
    driver = load_driver()
    count = ctypes.c_int()
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return [Finding("GPU", "absent", "none")]
    return [_describe_gpu(driver, index) for index in range(count.value)]


def _describe_gpu(driver: Any, index: int) -> Finding:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    major, minor = ctypes.c_int(), ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(device), index)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
    driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
    described = f"{name.value.decode()}, compute capability {major.value}.{minor.value}"
    try:
        target = parse_target((major.value, minor.value))
    except MosaicGpuError:
        return Finding(f"GPU {index}", "absent", f"{described}: not supported")
    return Finding(f"GPU {index}", "ok", f"{described}, target {target.name}")


def find_cache_folder() -> Finding:
    """Where compiled code is kept."""
    from mosaic_gpu.cache import VARIABLE, default_cache

    cache = default_cache()
    if cache is None:
        return Finding("cache", "absent", f"switched off by {VARIABLE}")
    return Finding("cache", "ok", str(cache.folder))
