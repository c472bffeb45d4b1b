"""The command `mosaic-gpu`: compile a kernel and look at any stage of it; see what is installed.

    mosaic-gpu compile softmax.py:softmax --shape f32[4,1000] --emit ptx
    mosaic-gpu compile kernel.mlir --from dialect --emit sass
    mosaic-gpu bundle softmax.py:softmax --shapes f32[4,1000] --targets sm_90a sm_100a -o softmax.bundle
    mosaic-gpu build-launcher
    mosaic-gpu simulate kernel.ptx --grid 4 --block 128 --arg n=s32:1000 --arg x=f32:1000:random --arg y=f32:1000
    mosaic-gpu doctor

Nothing heavy is imported before the arguments are known to be right.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mosaic_gpu.errors import MosaicGpuError

# The stages of lowering/pipeline.py, which brings the compiler in; a test holds the two together.
STAGE_CHOICES = ("dialect", "layouts", "pipelined", "nvvm", "llvm", "ptx", "cubin")
EMIT_CHOICES = (*STAGE_CHOICES, "sass")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line `arguments` (None: the process's own) and returns its exit status.

    0: done; 1: the kernel, the request or the installation is at fault, and a message on stderr says how; 2: the
    command line is wrong.
    """
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except MosaicGpuError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mosaic-gpu", description="A compiler for Pallas kernels on NVIDIA GPUs.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_compile(commands.add_parser("compile", help="compile a kernel and write any stage of it"))
    _add_bundle(commands.add_parser("bundle", help="compile kernels ahead of time, to run with cuda-python alone"))
    launcher = commands.add_parser("build-launcher", help="build what runs kernels inside jax.jit on a GPU")
    launcher.set_defaults(run=_run_build_launcher)
    _add_simulate(commands.add_parser("simulate", help="run a kernel of a PTX file on the CPU, find its hazards"))
    doctor = commands.add_parser("doctor", help="what is installed, what is missing, and how to mend it")
    doctor.set_defaults(run=_run_doctor)
    return parser


def _add_compile(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compiles the kernels that FUNCTION of the Python file FILE calls on arguments of the given shapes, or goes on "
        "with the artifact of a stage (--from).  Needs no GPU."
    )
    parser.add_argument("source", metavar="FILE:FUNCTION", help="or FILE alone, with --from")
    parser.add_argument(
        "--shape", nargs="+", action="extend", default=[], metavar="DTYPE[DIMS]",
        help="one an argument, for instance f32[4,1000] bf16[8] i32[]",
    )  # fmt: skip
    parser.add_argument("--target", help="GPU architecture, for instance sm_90a (default: the kernel's own, or sm_90a)")
    parser.add_argument("--emit", choices=EMIT_CHOICES, default="ptx", help="what to write (default: ptx)")
    parser.add_argument("--from", dest="start", choices=STAGE_CHOICES, help="the stage that made FILE")
    parser.add_argument("--kernel", help="name of the kernel, where FUNCTION calls several")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT", help="file to write (default: standard output)")
    parser.add_argument("--dump-dir", type=Path, metavar="DIR", help="folder for the artifacts of all stages passed")
    parser.add_argument("--report", action="store_true", help="print times, launch and resources to standard error")
    parser.set_defaults(run=_run_compile)


def _add_bundle(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compiles the kernels that FUNCTION of the Python file FILE calls on arguments of the given shapes, and writes "
        "a folder that `mosaic_gpu.load_bundle` runs without JAX and without a compiler.  Needs no GPU."
    )
    parser.add_argument("source", metavar="FILE:FUNCTION")
    parser.add_argument(
        "--shapes", "--shape", dest="shape", nargs="+", action="extend", default=[], metavar="DTYPE[DIMS]",
        help="one an argument, for instance f32[4,1000] bf16[8] i32[]",
    )  # fmt: skip
    parser.add_argument(
        "--targets", nargs="+", default=["sm_90a"], metavar="TARGET", help="GPU architectures (default: sm_90a)"
    )
    parser.add_argument("--kernel", help="name of the kernel, where FUNCTION calls several and one is wanted")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.set_defaults(run=_run_bundle)


def _add_simulate(parser: argparse.ArgumentParser) -> None:
    parser.description = "Runs one entry of FILE, PTX of any compiler up to sm_90a. Exit status 1: it has a fault."
    parser.add_argument("source", metavar="FILE", help="PTX text")
    parser.add_argument("--entry", help="name of the kernel (default: the only one)")
    parser.add_argument("--grid", default="1", metavar="X[,Y[,Z]]", help="blocks (default: 1)")
    parser.add_argument("--block", default="128", metavar="X[,Y[,Z]]", help="threads of a block (default: 128)")
    parser.add_argument("--cluster", default="1", metavar="X[,Y[,Z]]", help="blocks of a cluster (default: 1)")
    parser.add_argument(
        "--arg", action="append", default=[], metavar="NAME=TYPE:..",
        help="one a parameter, in order: TYPE:SHAPE[:INITIAL] for an array (INITIAL random, zeros, ones, arange, a "
        "number, FILE.npy; else it holds nothing yet), TYPE:VALUE for a number (of 8 bytes: TYPE:VALUE:value)",
    )  # fmt: skip
    parser.add_argument("--shared-bytes", type=int, default=0, help="dynamic shared memory of a block")
    parser.add_argument("--seed", type=int, default=0, help="draws another legal schedule")
    parser.add_argument("--random-seed", type=int, default=0, help="seed of random arguments")
    parser.add_argument("--limit", type=int, default=0, help="thread-instructions after which it is stopped")
    parser.add_argument("--no-hazards", action="store_true", help="do not look for races and asynchronous hazards")
    parser.add_argument("--save", action="append", default=[], metavar="NAME=FILE.npy", help="write an array")
    parser.set_defaults(run=_run_simulate)


def _run_simulate(options: argparse.Namespace) -> int:
    from mosaic_gpu.cli_simulate import dimensions, run

    for name in ("grid", "block", "cluster"):
        setattr(options, name, dimensions(getattr(options, name)))
    return run(options)


def _run_compile(options: argparse.Namespace) -> int:
    from mosaic_gpu.cli_compile import run

    return run(options)


def _run_bundle(options: argparse.Namespace) -> int:
    from mosaic_gpu.cli_bundle import run

    return run(options)


def _run_build_launcher(_: argparse.Namespace) -> int:
    from mosaic_gpu.launcher import build_launcher

    print(build_launcher())
    return 0


def _run_doctor(options: argparse.Namespace) -> int:
    from mosaic_gpu.doctor import diagnose, report

    findings = diagnose()
    print(report(findings))
    return 1 if any(finding.is_fault for finding in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
