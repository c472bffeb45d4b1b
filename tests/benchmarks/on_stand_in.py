"""Runs the benchmark command in this process on the stand-in driver (tests/support/stand_in.py).

    python tests/benchmarks/on_stand_in.py RUN REPORT [--hide MODULE ...] [--replace OLD NEW] [-- ARGUMENT ...]

RUN is `run.py` of the checkout or of a bundle.  The modules that are hidden cannot be imported by what runs, though the
simulator under the stand-in has what it needs.  In the PTX that the stand-in runs OLD becomes NEW: a compiler's fault.
REPORT is JSON: the exit status, the first pointers of each kernel's launches, and the modules that were loaded.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def install_stand_in() -> Any:
    """The stand-in, in a process whose mosaic_gpu may be a bundle's, which has no simulator."""
    sys.path.append(str(ROOT))
    folders = {
        "mosaic_gpu": "mosaic_gpu",
        "mosaic_gpu.lowering": "lowering",
        "mosaic_gpu.runtime": "mosaic_gpu/runtime",
    }
    for name, folder in folders.items():
        package = importlib.import_module(name)
        if str(ROOT / folder) not in package.__path__:
            package.__path__.append(str(ROOT / folder))
    from tests.support.stand_in import install

    return install()


def hide(names: Sequence[str]) -> None:
    """Makes modules impossible to import from now on; who has imported them keeps them."""
    for name in names:
        for loaded in [n for n in sys.modules if n == name or n.startswith(f"{name}.")]:
            del sys.modules[loaded]
        sys.modules[name] = None  # type: ignore[assignment]


def forget_runtime() -> None:
    """The runtime is imported again, so that it sees what is hidden; the simulator stays."""
    for name in [n for n in sys.modules if n.startswith("mosaic_gpu.runtime") or n == "mosaic_gpu.bundle"]:
        del sys.modules[name]
    package = sys.modules["mosaic_gpu"]
    for name in ("runtime", "bundle", "DeviceArray", "load_bundle"):
        vars(package).pop(name, None)


def teach(stand_in: Any, folder: Path, arguments: Sequence[str], old: str, new: str) -> None:
    """Tells the stand-in what to run for each kernel of the bundle, or of the cases that the command line names."""
    if (folder / "kernels").is_dir():
        files = sorted((folder / "kernels").glob("*.cubin"))
        known = [(path.read_bytes(), path.with_suffix(".ptx").read_text()) for path in files]
    else:
        cases = importlib.import_module("suite.cases").read_cases(Path(arguments[arguments.index("--shapes") + 1]))
        compile_case = importlib.import_module("suite.kernels").compile_case
        known = [(kernel.cubin, ptx) for kernel, ptx in (compile_case(case, "sm_90a") for case in cases)]
    for cubin, ptx in known:
        stand_in.add(cubin, ptx.replace(old, new) if old else ptx)


def record_launches(loaded: ModuleType) -> dict[str, list[int]]:
    """The first pointer of each launch from now on, by the kernel's name."""
    seen: dict[str, list[int]] = defaultdict(list)
    launch = loaded.LoadedKernel.launch

    def recorded(self: Any, pointers: Sequence[int], stream: int) -> None:
        seen[self.kernel.name].append(pointers[0])
        launch(self, pointers, stream)

    loaded.LoadedKernel.launch = recorded
    return seen


def main() -> None:
    """Runs the command, and writes the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("report", type=Path)
    parser.add_argument("--hide", nargs="*", default=[])
    parser.add_argument("--replace", nargs=2, default=("", ""))
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options, arguments = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    sys.path[0] = str(options.run.resolve().parent)  # as if it were run itself
    if (options.run.resolve().parent / "mosaic_gpu").is_dir():  # the hook of an editable install comes before any path
        sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
    stand_in = install_stand_in()
    hide(options.hide)
    forget_runtime()
    seen = record_launches(importlib.import_module("mosaic_gpu.runtime.loaded"))
    teach(stand_in, options.run.resolve().parent, arguments, *options.replace)
    status = importlib.import_module("run").main(arguments)
    files = {n: getattr(m, "__file__", None) for n, m in sys.modules.items() if m is not None}
    options.report.write_text(
        json.dumps({"status": status, "launches": seen, "modules": files, "errors": stand_in.errors})
    )


if __name__ == "__main__":
    main()
