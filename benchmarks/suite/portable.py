"""A folder that measures on a machine without the compiler: kernels, this suite, and the runtime of the package."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mosaic_gpu.bundle import load_bundle, write_bundle
from mosaic_gpu.errors import KernelError, MosaicGpuError, ToolError, UnsupportedError
from mosaic_gpu.runtime.devices import Device
from mosaic_gpu.runtime.gpu_kernel import GpuKernel
from mosaic_gpu.runtime.loaded import runs_on

from . import machine
from .cases import Case

KERNELS, CASES = "kernels", "shapes.toml"

# What running a bundle imports of the package: these, and whatever they import.
_ROOTS = ("bundle", "runtime.timing", "runtime.peaks", "runtime.dtypes", "lowering.targets", "lowering.throughput")

_README = """A benchmark of mosaic_gpu's kernels.  Needs a GPU, its driver, Python 3.12, NumPy and cuda-bindings:

    pip install numpy cuda-bindings
    python run.py --json results.json

JAX, PyTorch and Triton take part where they are installed, and matplotlib draws with --plot results.png.
"""


def is_portable(folder: Path) -> bool:
    """Whether this is such a folder."""
    return (folder / KERNELS / "manifest.json").is_file()


def make(folder: Path, cases: Sequence[Case], targets: Sequence[str], root: Path) -> list[str]:
    """Compiles the cases for the targets and writes the folder; what was refused, a line each.

    Arguments:
      root: the folder of `run.py`.

    Raises:
      KernelError: the folder holds something, or nothing compiles.
      ToolError: it cannot be written.
    """
    from .kernels import compile_case

    if folder.exists() and any(folder.iterdir()):
        raise KernelError(f"{folder} is not empty", hint="name a folder that does not exist")
    kernels: list[tuple[GpuKernel, str]] = []
    refusals = []
    for case in cases:
        for target in targets:
            print(f"{case.name} for {target}", flush=True)
            try:
                kernels.append(compile_case(case, target))
            except MosaicGpuError as error:
                refusals.append(f"{case.name} for {target}: {type(error).__name__}: {error.what.splitlines()[0]}")
    if not kernels:
        raise KernelError("no case compiles", got="; ".join(refusals))
    write_bundle(folder / KERNELS, kernels)
    try:
        _write_rest(folder, cases, {kernel.name for kernel, _ in kernels}, targets, root)
    except OSError as error:
        raise ToolError(f"the folder cannot be written: {error}") from error
    return refusals


def _write_rest(folder: Path, cases: Sequence[Case], compiled: set[str], targets: Sequence[str], root: Path) -> None:
    shutil.copy(root / "run.py", folder)
    shutil.copytree(root / "suite", folder / "suite", ignore=shutil.ignore_patterns("__pycache__"))
    for module, file in runtime_files().items():
        path = folder / Path(*module.split("."))
        path = path / "__init__.py" if Path(file).name == "__init__.py" else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, path)
    (folder / CASES).write_text(toml([case for case in cases if case.name in compiled]))
    made = {**machine.commit(root), "date": machine.now(), "targets": list(targets)}
    (folder / machine.MADE).write_text(json.dumps(made, indent=1) + "\n")
    (folder / "README.txt").write_text(_README)


def runtime_files() -> dict[str, str]:
    """The modules of the package that a bundle needs, with their files: asked of a process that imports them."""
    code = (
        "import importlib, json, sys\n"
        f"for name in {_ROOTS!r}: importlib.import_module('mosaic_gpu.' + name)\n"
        "found = {n: m.__file__ for n, m in sys.modules.items() if n.partition('.')[0] == 'mosaic_gpu'}\n"
        "print(json.dumps(found))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolError(f"the package's runtime cannot be imported: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def toml(cases: Sequence[Case]) -> str:
    """The cases as a file that `read_cases` reads, each under its name."""
    lines: list[str] = []
    for operation in dict.fromkeys(case.operation for case in cases):
        lines.append(f"{operation} = [")
        # TOML's inline tables are JSON's with other signs between keys and values; strings and numbers are alike.
        for case in (case for case in cases if case.operation == operation):
            pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in case.line().items())
            lines.append(f"  {{ {pairs} }},")
        lines.append("]")
    return "\n".join(lines) + "\n"


class PortableKernels:
    """The kernels of such a folder, for one GPU."""

    def __init__(self, folder: Path, place: Device) -> None:
        """Raises ToolError where a file is missing or was changed."""
        self._bundle = load_bundle(folder / KERNELS)
        self._place = place

    def __call__(self, case: Case) -> GpuKernel:
        """The case's kernel.  Raises KernelError where there is none, UnsupportedError where none is for the GPU."""
        variants = self._bundle[case.name].variants
        found = next((v for v in variants if runs_on(v.target, self._place.capability)), None)
        if found is None:
            raise UnsupportedError(
                f"the bundle has no kernel for {self._place.name}",
                got=f"compute capability {self._place.capability}",
                expected=" or ".join(v.target for v in variants),
                hint="make it with --targets for this GPU",
            )
        return found
