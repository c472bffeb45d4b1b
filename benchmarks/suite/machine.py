"""Where and of what numbers were measured: the GPU, its clocks, the driver, versions, and the commit."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from mosaic_gpu.runtime import driver
from mosaic_gpu.runtime.devices import Device
from mosaic_gpu.runtime.peaks import throughput_of_device

PACKAGES = (
    "mosaic-gpu", "numpy", "ml_dtypes", "cuda-bindings", "jax", "jaxlib", "torch", "triton", "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13", "nvidia-cublas-cu12", "nvidia-cublas", "nvidia-cuda-nvcc", "nvidia-nvjitlink", "llvmlite",
)  # fmt: skip

_SMI_FIELDS = (
    "driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.limit", "power.draw",
    "temperature.gpu", "pstate",
)  # fmt: skip

MADE = "made.json"
"""The file of a bundle that tells of what it was made."""


def versions() -> dict[str, str]:
    """Of the packages that matter, where they are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit(root: Path) -> dict[str, Any]:
    """The commit of the checkout, or the one a bundle was made of; `dirty` where files differ from it."""
    made = root / MADE
    if made.is_file():
        content: dict[str, Any] = json.loads(made.read_text())
        return {"commit": content["commit"], "dirty": content["dirty"], "bundle_made": content["date"]}
    revision, changed = _git(root, "rev-parse", "HEAD"), _git(root, "status", "--porcelain")
    return {"commit": revision, "dirty": None if changed is None else bool(changed)}


def _git(root: Path, *arguments: str) -> str | None:
    if shutil.which("git") is None:
        return None
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def now() -> str:
    """This moment, as ISO 8601 has it, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def describe(place: Device) -> dict[str, Any]:
    """The GPU: what the driver tells, the peaks that shares are of, and what nvidia-smi says."""
    version = int(driver.call("cuDriverGetVersion"))
    peaks = throughput_of_device(place)
    free, total = driver.call("cuMemGetInfo")
    return {
        "name": place.name,
        "capability": list(place.capability),
        "multiprocessors": place.multiprocessors,
        "memory_bytes": int(total),
        "free_memory_bytes": int(free),
        "l2_bytes": peaks.l2_bytes,
        "driver_cuda": f"{version // 1000}.{version % 1000 // 10}",
        "clocks_mhz": {"sm_max": _mhz(place, "CLOCK_RATE"), "memory_max": _mhz(place, "MEMORY_CLOCK_RATE")},
        "peaks": {
            "dram_bytes_per_s": peaks.dram_bytes_per_s,
            "fp32_flops_per_s": peaks.fp32_flops_per_s,
            **{f"{kind}_flops_per_s": peaks.tensor_flops_per_s(kind) for kind in ("bf16", "f16", "f8")},
            "source": peaks.source,
        },
    }  # fmt: skip


def _mhz(place: Device, name: str) -> float:
    """A clock that the driver tells in kHz."""
    handle = driver.call("cuDeviceGet", place.ordinal)
    which = getattr(driver.bindings().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(driver.call("cuDeviceGetAttribute", which, handle)) / 1e3


def smi(place: Device) -> dict[str, str]:
    """What nvidia-smi says of the GPU now; {"missing": why} where it says nothing."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {"missing": "nvidia-smi is not installed"}
    handle = driver.call("cuDeviceGet", place.ordinal)
    bus = driver.call("cuDeviceGetPCIBusId", 32, handle).split(b"\0", 1)[0].decode()
    command = [program, "-i", bus, f"--query-gpu={','.join(_SMI_FIELDS)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"missing": str(error)}
    if done.returncode:
        return {"missing": (done.stdout + done.stderr).strip()[:300]}
    return dict(zip(_SMI_FIELDS, (text.strip() for text in done.stdout.strip().split(",")), strict=False))
