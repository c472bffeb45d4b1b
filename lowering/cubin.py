"""Stage "cubin": PTX becomes the binary of one architecture, by nvJitLink in process or by the program ptxas."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mosaic_gpu.errors import ToolError
from mosaic_gpu.lowering.artifacts import Cubin, Ptx
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.resources import read_resources
from mosaic_gpu.lowering.targets import Target, parse_target
from mosaic_gpu.lowering.toolpaths import find_tool


def assemble_cubin(ptx: Ptx, options: LoweringOptions) -> Cubin:
    """The cubin of `ptx` for the target of `options`.

    Raises:
      ToolError: no assembler is installed, or it refuses the PTX; the message holds its log.
    """
    target = parse_target(options.target)
    nvjitlink = _load_nvjitlink()
    data, report = _link(nvjitlink, ptx.text, target) if nvjitlink is not None else _run_ptxas(ptx.text, target)
    entry = None if ptx.launch is None else ptx.launch.entry
    return Cubin(data, read_resources(data, entry, report), ptx.launch, ptx.text)


def _load_nvjitlink() -> Any | None:
    """The bindings of nvJitLink; None where they or the library are not installed."""
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except (ImportError, RuntimeError):
        return None
    return nvjitlink


def _link(nvjitlink: Any, text: str, target: Target) -> tuple[bytes, str]:
    """The cubin and ptxas' report, made in this process."""
    options = [f"-arch={target.name}", "-O3", "-lineinfo", "-Xptxas=-v"]
    source = text.encode() + b"\0"
    handle = nvjitlink.create(len(options), options)
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


def _run_ptxas(text: str, target: Target) -> tuple[bytes, str]:
    """The cubin and ptxas' report, made by the program."""
    ptxas = find_tool("ptxas")
    if ptxas is None:
        raise ToolError(
            "no assembler for PTX: neither nvJitLink nor ptxas is installed",
            hint="pip install 'mosaic-gpu[cuda13]'; `mosaic-gpu doctor` shows what is there",
        )
    with tempfile.TemporaryDirectory(prefix="mosaic_gpu_") as folder:
        source, image = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(text)
        command = [str(ptxas), f"-arch={target.name}", "-O3", "-lineinfo", "-v", str(source), "-o", str(image)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ToolError(f"{ptxas} refuses the PTX for {target.name}\n{done.stderr.strip()}")
        return image.read_bytes(), done.stderr
