"""The launcher: the native library behind the custom call that runs a kernel inside `jax.jit` on a GPU.

It is built with the package where a C++ compiler is at hand, and by `mosaic-gpu build-launcher` later; its sources are
in mosaic_gpu/native.  Importing this imports neither JAX nor the compiler.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sysconfig
import tempfile
import threading
from pathlib import Path
from typing import Any

import mosaic_gpu
from mosaic_gpu.errors import ToolError

CUSTOM_CALL_TARGET = "mosaic_gpu_kernel_v1"
"""Name of the custom call on platform "cuda"; native/launcher.h says what it carries."""

CALL_VERSION = 2
"""Of what the custom call carries: a launcher refuses programs that were exported with another."""

LIBRARY = "libmosaic_gpu_launcher.so"
BUILD_COMMAND = "mosaic-gpu build-launcher"

_HANDLER = "MosaicGpuKernel"
_SOURCES = ("launcher.cc", "modules.cc", "driver.cc")
_FLAGS = ("-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")
_lock = threading.Lock()
_registered: set[str] = set()


def find_launcher() -> Path | None:
    """The library, where it is built; beside the sources, or where an editable install puts what is built."""
    folders = [*map(Path, mosaic_gpu.__path__), _installed_folder()]
    return next((path for folder in folders if (path := folder / "native" / LIBRARY).is_file()), None)


def _installed_folder() -> Path:
    return Path(sysconfig.get_path("platlib"), "mosaic_gpu")


def build_launcher(folder: Path | None = None) -> Path:
    """Builds the library and returns its path.

    Arguments:
      folder: where to put it; None puts it where `find_launcher` looks.

    Raises ToolError without a C++ compiler, or with its words where it fails.
    """
    compiler = next(
        (found for name in (os.environ.get("CXX"), "c++", "g++", "clang++") if name and (found := shutil.which(name))),
        None,
    )
    if compiler is None:
        raise ToolError("no C++ compiler is found", expected="$CXX, c++, g++ or clang++", hint="apt-get install g++")
    sources = Path(__file__).parent / "native"
    target = (folder or _installed_folder() / "native") / LIBRARY
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            built = Path(scratch, LIBRARY)
            paths = [str(sources / name) for name in _SOURCES]
            command = [compiler, *_FLAGS, f"-I{sources}", "-isystem", _headers(), "-o", str(built), *paths, "-ldl"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise ToolError(f"{compiler} cannot build the launcher\n{done.stderr.strip()}")
            os.replace(built, target)  # in one step: another process may be loading it
    except OSError as error:
        raise ToolError(
            f"the launcher cannot be written to {target.parent}: {error}", hint="use a virtual environment of your own"
        ) from error
    return target


def _headers() -> str:
    """The folder of XLA's headers."""
    import jax

    return str(jax.ffi.include_dir())


def register_launcher() -> None:
    """Registers the launcher with JAX, so that programs of `jax.export` with kernels of ours run on a GPU.

    Needed in a process that only loads such programs: using `CompilerParams` registers it too.

    Raises ToolError where it is not built, or cannot be used.
    """
    if not register_if_built():
        raise missing_launcher()


def register_if_built() -> bool:
    """Registers the launcher with JAX, once a process; returns whether it is built.

    Raises ToolError where it is built and cannot be used.
    """
    with _lock:
        if CUSTOM_CALL_TARGET in _registered:
            return True
        path = find_launcher()
        if path is None:
            return False
        register_library(path, _HANDLER, CUSTOM_CALL_TARGET, "CUDA")
        _registered.add(CUSTOM_CALL_TARGET)
        return True


def register_library(path: Path, symbol: str, target: str, platform: str) -> None:
    """Registers the handler `symbol` of a library with JAX.  Raises ToolError where it cannot be used."""
    import jax

    hint = f"build it again: {BUILD_COMMAND}"
    try:
        handler: Any = getattr(ctypes.CDLL(str(path)), symbol)
    except (OSError, AttributeError) as error:
        raise ToolError(f"the launcher {path} cannot be loaded: {error}", hint=hint) from error
    try:
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform=platform)
    except (RuntimeError, ValueError) as error:
        raise ToolError(f"JAX {jax.__version__} does not take the launcher {path}: {error}", hint=hint) from error


def missing_launcher() -> ToolError:
    """The error of a program that needs the library where it is not built."""
    return ToolError(
        "kernels inside jax.jit need the launcher, a small native library that is not built",
        hint=f"{BUILD_COMMAND} (it needs a C++ compiler), then run the program again; calling what "
        "mosaic_gpu.compile gives needs no launcher",
    )
