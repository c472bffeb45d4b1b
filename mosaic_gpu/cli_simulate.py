"""The command `mosaic-gpu simulate`: run a kernel of a PTX file on the CPU, and look for its hazards."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mosaic_gpu.errors import KernelError, SimulationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosaic_gpu.simulator import LaunchResult, Module

Array = np.ndarray[Any, np.dtype[Any]]
INITIAL = ("random", "zeros", "ones", "arange", "uninitialised")
_ARGUMENT = re.compile(r"(?P<name>[\w$.]+)=(?P<type>\w+)(?::(?P<shape>[^:]*))?(?::(?P<initial>.*))?")
_FLOATS = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
_INTERRUPTED = 130
_SHOWN = 6


@dataclass
class Argument:
    """One `--arg`: the kernel's argument `value`, and whether it is an array that holds nothing yet."""

    name: str
    value: Any
    is_uninitialised: bool = False


def run(options: argparse.Namespace) -> int:
    """Simulates what `options` (see `cli`) say; returns the exit status: 1 for a fault in the kernel."""
    from mosaic_gpu.simulator import load

    module = load(_text(options.source))
    entry = _entry(module, options.entry)
    rng = np.random.default_rng(options.random_seed)
    params = module.program.functions[entry].params
    if len(options.arg) != len(params):
        declared = ", ".join(f".{p.type} {p.name}" for p in params) or "none"
        raise KernelError(f"`{entry}` takes {len(params)} arguments", got=len(options.arg), expected=declared)
    arguments = [parse_argument(text, p.size, rng) for text, p in zip(options.arg, params, strict=True)]
    try:
        with _progress() as progress:
            result = _launch(module, entry, options, arguments, progress)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return _INTERRUPTED
    except SimulationError as error:
        print(f"`{entry}` has a fault:\n{error}", file=sys.stderr)
        return 1
    _report(entry, result, arguments)
    _save(options.save, arguments)
    return 0


def _launch(
    module: Module, entry: str, options: argparse.Namespace, arguments: list[Argument],
    progress: Callable[[int, int], object] | None,
) -> LaunchResult:  # fmt: skip
    return module.launch(
        entry, options.grid, options.block, [a.value for a in arguments], cluster=options.cluster,
        shared_bytes=options.shared_bytes, seed=options.seed, races=not options.no_hazards,
        instruction_limit=options.limit, progress=progress,
        uninitialised=[i for i, a in enumerate(arguments) if a.is_uninitialised],
    )  # fmt: skip


def _text(source: str) -> str:
    try:
        return Path(source).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise KernelError(f"cannot read {source}: {error}") from None


def _entry(module: Module, name: str | None) -> str:
    """The entry to run: the only one, if none is named."""
    names = ", ".join(module.entries)
    if name is None and len(module.entries) == 1:
        return module.entries[0]
    if name is None:
        raise KernelError("--entry is missing", expected=f"one of {names}")
    if name not in module.entries and name not in module.refused:
        raise KernelError(f"there is no entry `{name}`", expected=f"one of {names}")
    return name


def dimensions(text: str) -> tuple[int, ...]:
    """ "4" or "4,2" or "4,2,1" as ints."""
    parts = re.split("[,x]", text)
    if not 1 <= len(parts) <= 3 or not all(part.isdecimal() and int(part) for part in parts):
        raise KernelError(f"{text!r}", expected="one to three positive ints, such as 4 or 4,2,1")
    return tuple(int(part) for part in parts)


def parse_argument(text: str, param_bytes: int, rng: np.random.Generator) -> Argument:
    """NAME=TYPE:VALUE for a parameter that is no pointer, NAME=TYPE:SHAPE[:INITIAL] for an array, also one that fills
    a struct passed by value; a parameter of 8 bytes is a pointer unless INITIAL is "value".
    Raises KernelError for a text of another form."""
    match = _ARGUMENT.fullmatch(text)
    if match is None:
        raise KernelError(f"--arg {text!r}", expected="NAME=TYPE:SHAPE[:INITIAL] or NAME=TYPE:VALUE")
    name, shape, initial = match["name"], match["shape"] or "", match["initial"] or "uninitialised"
    dtype = _dtype(match["type"], text)
    if initial == "value" or (param_bytes != 8 and not match["initial"]):
        return Argument(name, _number(shape, dtype, text))
    if initial.endswith(".npy"):
        return Argument(name, _from_file(initial, shape, dtype))
    extents = tuple(_int(part, text) for part in re.split("[,x]", shape) if part)
    return Argument(name, _filled(extents, dtype, initial, rng, text), initial == "uninitialised")


def _dtype(name: str, text: str) -> np.dtype[Any]:
    import ml_dtypes

    if name in _FLOATS:
        small: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _FLOATS[name]))
        return small
    match = re.fullmatch(r"([busf])(8|16|32|64)", name)
    if match is None or name == "f8":
        raise KernelError(f"--arg {text!r}: type {name}", expected="f16 to f64, bf16, e4m3, e5m2, s8 to s64, u8 to u64")
    return np.dtype({"b": "u", "u": "u", "s": "i", "f": "f"}[match[1]] + str(int(match[2]) // 8))


def _int(part: str, text: str) -> int:
    try:
        return int(part, 0)
    except ValueError:
        raise KernelError(f"--arg {text!r}: {part!r} is no int") from None


def _number(value: str, dtype: np.dtype[Any], text: str) -> Any:
    try:
        return dtype.type(int(value, 0) if dtype.kind in "iu" else float(value))
    except (ValueError, OverflowError):
        raise KernelError(f"--arg {text!r}: {value!r} is no value of {dtype}") from None


def _from_file(file: str, shape: str, dtype: np.dtype[Any]) -> Array:
    try:
        array = np.ascontiguousarray(np.load(file))
    except (OSError, ValueError) as error:
        raise KernelError(f"cannot read {file}: {error}") from None
    if array.dtype.itemsize != dtype.itemsize:
        raise KernelError(f"{file}", got=array.dtype, expected=dtype)
    extents = tuple(int(part) for part in re.split("[,x]", shape) if part)
    if extents and extents != array.shape:
        raise KernelError(f"{file}", got=f"shape {array.shape}", expected=extents)
    return array


def _filled(extents: tuple[int, ...], dtype: np.dtype[Any], initial: str, rng: np.random.Generator, text: str) -> Array:
    if initial in ("zeros", "ones"):
        return np.full(extents, initial == "ones", dtype)
    if initial == "arange":
        return np.arange(int(np.prod(extents))).reshape(extents).astype(dtype)
    if initial == "uninitialised":
        return np.full(int(np.prod(extents)) * dtype.itemsize, 0xA5, np.uint8).view(dtype).reshape(extents)
    if initial == "random" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, extents, dtype, endpoint=True)
    if initial == "random":
        return rng.standard_normal(extents).astype(dtype)
    return np.full(extents, _number(initial, dtype, text), dtype)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], object] | None]:
    """Shows how many blocks are done, where a person looks on and rich is installed."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield lambda done, total: print(f"\r{done} of {total} blocks", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("blocks", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _report(entry: str, result: LaunchResult, arguments: list[Argument]) -> None:
    rate = result.instructions / max(result.seconds, 1e-9)
    print(
        f"`{entry}`: {result.blocks} blocks, {result.threads} threads, {result.instructions} thread-instructions in "
        f"{result.seconds:.3f} s ({rate / 1e6:.1f} million/s); no hazards found"
    )
    for argument in arguments:
        if isinstance(argument.value, np.ndarray):
            print(f"  {argument.name}: {_summary(argument.value)}")


def _summary(array: Array) -> str:
    values = array.reshape(-1)
    head = ", ".join(str(v) for v in values[:_SHOWN].tolist()) + (", .." if values.size > _SHOWN else "")
    text = f"{array.dtype}{list(array.shape)} = [{head}]"
    if not values.size:
        return text
    wide = values.astype(np.float64)
    missing = int(np.count_nonzero(np.isnan(wide)))
    if missing == values.size:
        return f"{text}, all NaN"
    nan = f", {missing} NaN" if missing else ""
    return f"{text}, least {np.nanmin(wide):g}, greatest {np.nanmax(wide):g}, mean {np.nanmean(wide):g}{nan}"


def _save(wanted: list[str], arguments: list[Argument]) -> None:
    arrays = {a.name: a.value for a in arguments if isinstance(a.value, np.ndarray)}
    for text in wanted:
        name, _, file = text.partition("=")
        if name not in arrays or not file:
            raise KernelError(f"--save {text!r}", expected=f"NAME=FILE.npy, NAME one of {', '.join(arrays)}")
        np.save(file, arrays[name])
