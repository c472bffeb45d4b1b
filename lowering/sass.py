"""A view of a cubin: its machine code as text."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from mosaic_gpu.errors import ToolError
from mosaic_gpu.lowering.toolpaths import find_tool


def disassemble(image: bytes) -> str:
    """The SASS of the cubin `image`, by nvdisasm or else by cuobjdump.

    Raises:
      ToolError: neither is installed, or it fails.
    """
    commands = ((find_tool("nvdisasm"), ["-c"]), (find_tool("cuobjdump"), ["-sass"]))
    program, arguments = next(((p, a) for p, a in commands if p is not None), (None, []))
    if program is None:
        raise ToolError("no disassembler is installed", hint="pip install nvidia-cuda-nvdisasm")
    with tempfile.TemporaryDirectory(prefix="mosaic_gpu_") as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(image)
        done = subprocess.run([program, *arguments, path], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolError(f"{program} fails\n{done.stderr.strip()}")
    return done.stdout
