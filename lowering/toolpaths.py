"""Where NVIDIA's tools and files are: in the wheels, then on PATH, then in an installed CUDA toolkit.

Nothing is looked for at import; each answer is a path or None.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_TOOLKIT_VARIABLES = ("CUDA_HOME", "CUDA_PATH")
_DEFAULT_TOOLKIT = Path("/usr/local/cuda")


def find_tool(name: str) -> Path | None:
    """The program `name` ("ptxas", "nvdisasm", "cuobjdump")."""
    for folder in _wheel_folders():
        if os.access(folder / "bin" / name, os.X_OK):
            return folder / "bin" / name
    on_path = shutil.which(name)
    if on_path is not None:
        return Path(on_path)
    candidates = (folder / "bin" / name for folder in _toolkit_folders())
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def find_libdevice() -> Path | None:
    """NVIDIA's library of mathematical functions, `libdevice.10.bc`."""
    inside = Path("nvvm", "libdevice", "libdevice.10.bc")
    folders = (*_wheel_folders(), *_toolkit_folders())
    return next((folder / inside for folder in folders if (folder / inside).is_file()), None)


def find_nvjitlink(major: int) -> Path | None:
    """The library nvJitLink of CUDA `major` in NVIDIA's wheels."""
    candidates = (folder / "lib" / f"libnvJitLink.so.{major}" for folder in _wheel_folders())
    return next((path for path in candidates if path.is_file()), None)


def _wheel_folders() -> Iterator[Path]:
    """The folders that NVIDIA's wheels fill: `nvidia/cu13` from CUDA 13 on, `nvidia/<package>` before."""
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or () if spec is not None else ():
        for name in ("cu13", "cuda_nvcc", "cuda_nvdisasm", "cuda_cuobjdump", "nvjitlink"):
            folder = Path(root, name)
            if folder.is_dir():
                yield folder


def _toolkit_folders() -> Iterator[Path]:
    for variable in _TOOLKIT_VARIABLES:
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    yield _DEFAULT_TOOLKIT
