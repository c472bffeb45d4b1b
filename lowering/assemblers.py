"""The two assemblers of PTX: the program ptxas, and nvJitLink, in this process.

Imports nothing heavy, so that `mosaic-gpu doctor` can ask here whatever else is missing.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from mosaic_gpu.errors import ToolError
from mosaic_gpu.lowering.targets import Target
from mosaic_gpu.lowering.toolpaths import find_nvjitlink, find_tool


def assemble(ptx: str, target: Target) -> tuple[bytes, str]:
    """The cubin of `ptx`, and ptxas' report (its -v) on it.

    Raises:
      ToolError: no assembler is installed, or it refuses the PTX; the message holds its log.
    """
    return _run_ptxas(ptx, target) if _prefers_ptxas() else _link(_load_nvjitlink(), ptx, target)


def assembler_version() -> str:
    """The assembler that `assemble` uses, and its version; "none" where none is installed."""
    if not _prefers_ptxas():
        return "nvJitLink {}.{}".format(*(nvjitlink_version() or ()))
    version = ptxas_version()
    return "none" if version is None else "ptxas {}.{}".format(*version)


def _prefers_ptxas() -> bool:
    """Whether ptxas makes the cubins: where it is as new as nvJitLink.

    nvJitLink compiles for linking: kernels get more registers (a softmax 79 instead of 56, so a third fewer warps a
    processor), and it ignores setmaxnreg.  Starting ptxas costs a few milliseconds.
    """
    newest = nvjitlink_version()
    return newest is None or (ptxas_version() or (0, 0)) >= newest


@cache
def ptxas_version() -> tuple[int, int] | None:
    """The release (major, minor) of ptxas; None where it is not installed or does not say."""
    ptxas = find_tool("ptxas")
    if ptxas is None:
        return None
    told = subprocess.run([str(ptxas), "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"release (\d+)\.(\d+)", told)
    return None if found is None else (int(found[1]), int(found[2]))


def nvjitlink_version() -> tuple[int, int] | None:
    """The version (major, minor) of nvJitLink; None where it is not installed."""
    nvjitlink = _load_nvjitlink()
    if nvjitlink is None:
        return None
    major, minor = nvjitlink.version()
    return int(major), int(minor)


def _load_nvjitlink() -> Any | None:
    """The bindings of nvJitLink; None where they or the library are not installed."""
    try:
        from cuda.bindings import nvjitlink

        _load_library_of_own_major()
        nvjitlink.version()
    except (ImportError, RuntimeError):
        return None
    return nvjitlink


@cache
def _load_library_of_own_major() -> None:
    """Loads the library of the bindings' own CUDA, for the bindings take what is in the process.

    Where both 12 and 13 are installed they would take 13, whose cubins a driver of CUDA 12 may refuse.
    """
    library = find_nvjitlink(int(metadata.version("cuda-bindings").split(".")[0]))
    if library is not None:
        ctypes.CDLL(str(library))


def _link(nvjitlink: Any, ptx: str, target: Target) -> tuple[bytes, str]:
    options = [f"-arch={target.name}", "-O3", "-lineinfo", "-Xptxas=-v"]
    source = ptx.encode() + b"\0"
    try:
        handle = nvjitlink.create(len(options), options)
    except nvjitlink.nvJitLinkError as error:
        raise ToolError(
            f"{assembler_version()} does not take the options {options}: {error}",
            hint=f"a newer nvidia-nvjitlink may know {target.name}",
        ) from error
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, source, len(source), "kernel.ptx")
        nvjitlink.complete(handle)
        image = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, image)
        return bytes(image), _log(nvjitlink.get_info_log_size, nvjitlink.get_info_log, handle)
    except nvjitlink.nvJitLinkError as error:
        log = _log(nvjitlink.get_error_log_size, nvjitlink.get_error_log, handle)
        raise ToolError(f"nvJitLink refuses the PTX for {target.name}: {error}\n{log}") from error
    finally:
        nvjitlink.destroy(handle)


def _log(size: Callable[[Any], int], read: Callable[[Any, bytearray], None], handle: Any) -> str:
    text = bytearray(size(handle))
    if text:
        read(handle, text)
    return text.rstrip(b"\0").decode(errors="replace")


def _run_ptxas(ptx: str, target: Target) -> tuple[bytes, str]:
    ptxas = find_tool("ptxas")
    if ptxas is None:
        raise ToolError(
            "no assembler for PTX: neither nvJitLink nor ptxas is installed",
            hint="pip install 'mosaic-gpu[cuda13]'; `mosaic-gpu doctor` shows what is there",
        )
    with tempfile.TemporaryDirectory(prefix="mosaic_gpu_") as folder:
        source, image = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [str(ptxas), f"-arch={target.name}", "-O3", "-lineinfo", "-v", str(source), "-o", str(image)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ToolError(f"{ptxas} refuses the PTX for {target.name}\n{done.stderr.strip()}")
        return image.read_bytes(), done.stderr
