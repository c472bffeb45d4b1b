"""The benchmarks, in one command: our kernels and their peers on a GPU, or without one how they compile.

    python benchmarks/run.py [--only softmax matmul] [--json FILE] [--plot FILE.png] [--quick]
    python benchmarks/run.py --make-bundle FOLDER [--targets sm_90a]     then anywhere: python FOLDER/run.py

docs/benchmarks.md says what the columns mean, how it is measured, and how to add a case.  Exits with 1 where a result
of ours is wrong or a kernel of ours does not compile or run, with 2 where the command is wrong.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from suite import machine, portable, report
from suite.cases import Case, choose, read_cases
from suite.contender import Contender
from suite.measure import FULL, MISSING, QUICK, measure
from suite.ours import ours

import mosaic_gpu
from mosaic_gpu.errors import KernelError, MosaicGpuError, ToolError
from mosaic_gpu.runtime import driver
from mosaic_gpu.runtime.devices import Device, default_target, device, device_count

HERE = Path(__file__).resolve().parent
PEERS = ("torch", "torch-flash", "jax", "mosaic", "triton")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="operations or cases; commas work too")
    parser.add_argument("--shapes", type=Path, default=HERE / portable.CASES, metavar="FILE", help="the cases (TOML)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw them there")
    parser.add_argument(
        "--peers", nargs="+", default=list(PEERS), metavar="PEER", help=f"of {', '.join(PEERS)}; or none"
    )
    parser.add_argument("--quick", action="store_true", help="one case of each operation, few samples")
    parser.add_argument(
        "--make-bundle", type=Path, metavar="FOLDER", help="write a folder that runs without the compiler"
    )
    parser.add_argument(
        "--targets", nargs="+", default=["sm_90a"], metavar="SM", help="of the bundle (default: sm_90a)"
    )
    return parser.parse_args(arguments)


def _words(given: Sequence[str]) -> list[str]:
    """Of an option that takes several, by spaces or commas."""
    return [word for text in given for word in text.split(",") if word]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    try:
        return run(_options(arguments))
    except MosaicGpuError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def run(options: argparse.Namespace) -> int:
    """What `options` ask for.  Raises MosaicGpuError where they cannot be met."""
    cases = choose(read_cases(options.shapes), _words(options.only), options.quick)
    peers = _peers(_words(options.peers))
    if options.plot is not None:
        report.check_plot(options.plot)
    if options.make_bundle is not None:
        return make_bundle(options.make_bundle, cases, _words(options.targets))
    content: dict[str, Any] = {
        "date": machine.now(),
        **machine.commit(HERE),
        "versions": machine.versions(),
        "command": {"only": options.only, "shapes": str(options.shapes), "quick": options.quick, "peers": list(peers)},
        "cases": [],
    }
    if options.json is not None:
        report.write_json(options.json, content)  # a place that cannot be written is told before hours of work
    if device_count() == 0:
        without_gpu(cases, content, 1 if options.quick else 3)
        is_right = not any("error" in row for row in content["without_gpu"]["compile_seconds"])
    else:
        on_gpu(cases, content, peers, options)
        is_right = report.is_right(content["cases"])
    _write(options, content)
    return 0 if is_right else 1


def _write(options: argparse.Namespace, content: dict[str, Any]) -> None:
    if options.json is not None:
        report.write_json(options.json, content)
        print(f"numbers: {options.json}")
    if options.plot is not None:
        report.write_plot(options.plot, content)
        print(f"picture: {options.plot}")


def _peers(names: list[str]) -> list[str]:
    for name in names:
        if name not in (*PEERS, "none"):
            raise KernelError(f"there is no peer {name!r}", expected=f"{', '.join(PEERS)}; or none")
    return [name for name in PEERS if name in names]


def make_bundle(folder: Path, cases: Sequence[Case], targets: Sequence[str]) -> int:
    """Writes the folder; 1 where a case was refused."""
    if portable.is_portable(HERE):
        raise KernelError("a bundle holds no compiler to make another with", hint="use benchmarks/run.py of a checkout")
    refusals = portable.make(folder, cases, targets, HERE)
    for refusal in refusals:
        print(f"left out: {refusal}")
    print(f"{folder}: run it with `python {folder}/run.py`")
    return 1 if refusals else 0


def without_gpu(cases: Sequence[Case], content: dict[str, Any], repeat: int) -> None:
    """Prints what can be said without a GPU, and what cannot.  Raises ToolError in a bundle, which can say nothing."""
    reason = _why_no_gpu()
    if portable.is_portable(HERE):
        raise ToolError(f"this bundle measures on a GPU: {reason}", hint="benchmarks/run.py of a checkout says more")
    from suite import offline

    print(f"No GPU: {reason}")
    content["gpu"] = {"missing": reason}
    content["without_gpu"] = offline.tables(cases, repeat)
    print(f"\n{offline.NEEDS_A_GPU}")


def _why_no_gpu() -> str:
    try:
        driver.bindings()
    except ToolError as error:
        return error.what
    return "the driver sees no GPU"


def on_gpu(cases: Sequence[Case], content: dict[str, Any], peers: Sequence[str], options: argparse.Namespace) -> None:
    """Measures, prints as it goes, and fills in the content; the JSON is written after each case."""
    place = device(0)
    with place.active():
        content["gpu"] = {**machine.describe(place), "nvidia_smi_before": machine.smi(place)}
        contenders = _contenders(place, peers)
        content["peers"] = {c.name: c.missing or "runs" for c in contenders}
        clocks = content["gpu"]["clocks_mhz"]
        print(f"{place.name}: at most {clocks['sm_max']:.0f} MHz, memory {clocks['memory_max']:.0f} MHz")
        for contender in contenders:
            if contender.missing:
                print(f"missing: {contender.name}: {contender.missing}")
        print(report.HEAD)
        for case in cases:
            content["cases"].append(_measure(case, contenders, place, options.quick))
            if options.json is not None:
                report.write_json(options.json, content)
            _forget()
        content["gpu"]["nvidia_smi_after"] = machine.smi(place)
    print("\n" + report.summary(content["cases"]))


def _measure(case: Case, contenders: Sequence[Contender], place: Device, quick: bool) -> dict[str, Any]:
    try:
        measured = measure(case, contenders, place, QUICK if quick else FULL)
    except ToolError as error:
        print(f"{case.name}: {error}", flush=True)
        return report.failed_case(case, error)
    print("\n" + report.describe(measured))
    for row in (row for row in measured.rows if row.status != MISSING):
        print(report.line(row, measured), flush=True)
    return report.case_content(measured)


def _contenders(place: Device, peers: Sequence[str]) -> list[Contender]:
    """Ours, and the peers that were asked for, the missing ones too."""
    # Read when JAX starts: left alone it takes three quarters of the memory that all share.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    from suite import peers_jax, peers_torch, peers_triton

    if portable.is_portable(HERE):
        home = Path(mosaic_gpu.__file__).resolve().parent
        if home != HERE / "mosaic_gpu":  # the hook of an editable install comes before any path
            print(f"note: the runtime is {home}, not the bundle's own")
        mine = ours(portable.PortableKernels(HERE, place), place)
    else:
        from suite.kernels import compile_case

        target = default_target()
        if target is None:
            raise ToolError(f"{place.name} is not supported", got=f"compute capability {place.capability}")
        mine = ours(lambda case: compile_case(case, target)[0], place)
    every = [*peers_torch.contenders(), *peers_jax.contenders(), *peers_triton.contenders()] if peers else []
    return [mine, *(contender for contender in every if contender.name in peers)]


def _forget() -> None:
    """Gives back what the last case held of the GPU's memory."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
