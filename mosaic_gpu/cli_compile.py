"""The command `mosaic-gpu compile`."""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mosaic_gpu.errors import KernelError, MosaicGpuError, SourceLine

_SHAPE = re.compile(r"(\w+)\[([\d,\s]*)\]")
_SYMBOLIC_SHAPE = re.compile(r"(\w+)\[(.*[a-zA-Z_].*)\]")
_DTYPES = {
    "bool": "bool", "pred": "bool", "i1": "bool",
    "i4": "int4", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u4": "uint4", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64",
    "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
}  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Compiles what `options` (see `cli`) name, and writes what they ask for; returns the exit status."""
    stop = "cubin" if options.emit == "sass" else options.emit
    if options.start is not None:
        name = Path(options.source).name.split(".")[0]
        results = [_compile_file(options, stop, name)]
    else:
        results = [_compile_call(call, options, stop) for call in _calls(options)]
    _write(results, options)
    return 0


def parse_shape(text: str) -> tuple[tuple[int, ...], str]:
    """The shape and NumPy's name of the dtype in `text`, such as "f32[4,1000]", "bfloat16[8]" or "i32[]".

    Raises KernelError where `text` has another form.
    """
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise KernelError(f"{text!r} is no shape", expected="a dtype and dimensions, such as f32[4,1000] or i32[]")
    dimensions = tuple(int(n) for n in match[2].split(",") if n.strip())
    return dimensions, _DTYPES.get(match[1], match[1])


def _arguments(shapes: list[str]) -> list[Any]:
    """What stands for the arguments while JAX traces the function."""
    import jax
    from jax import export

    scope = export.SymbolicScope()
    arguments = []
    for text in shapes:
        symbolic = _SYMBOLIC_SHAPE.fullmatch(text.strip())
        dimensions, dtype = parse_shape(text) if symbolic is None else (_sizes(symbolic[2], scope), symbolic[1])
        dtype = _DTYPES.get(dtype, dtype)
        if dtype in ("float64", "int64", "uint64"):
            jax.config.update("jax_enable_x64", True)  # the user asked for 64 bits by name
        try:
            arguments.append(jax.ShapeDtypeStruct(dimensions, jax.numpy.dtype(dtype)))
        except TypeError as error:
            raise KernelError(f"{text!r} names no dtype", expected=f"one of {', '.join(_DTYPES)}") from error
    return arguments


def _sizes(text: str, scope: Any) -> tuple[Any, ...]:
    """The sizes in a text such as "n, 2*n, 128"; a name means the same in all texts of a scope."""
    from jax import export

    try:
        return tuple(export.symbolic_shape(text, scope=scope))
    except ValueError as error:
        hint = "names, numbers, +, -, *, and floordiv, mod, max, min of two"
        raise KernelError(
            f"[{text}] is no shape: {error}", expected="sizes such as n, 2*n + 1, 128", hint=hint
        ) from error


def _calls(options: argparse.Namespace) -> list[Any]:
    return traced_calls(options.source, options.shape, options.target, options.kernel)


def traced_calls(source: str, shapes: list[str], target: str | None, kernel: str | None) -> list[Any]:
    """The kernels that the function `source` ("FILE:FUNCTION") calls on arguments of `shapes`, as `KernelCall`s.

    `kernel`: those of another name are left out.  Raises KernelError where none is left.
    """
    from mosaic_gpu.api import trace_calls

    arguments = _arguments(shapes)
    function = load_function(source)
    with _users_code(source):
        calls = trace_calls(function, *arguments, target=target)
    chosen = [call for call in calls if kernel in (None, call.name)]
    if not chosen:
        names = ", ".join(call.name for call in calls) or "none"
        wanted = "a kernel" if kernel is None else f"a kernel named {kernel!r}"
        raise KernelError(f"{source} calls no such kernel", got=f"kernels called: {names}", expected=wanted)
    return chosen


def load_function(source: str) -> Callable[..., Any]:
    """The function that "FILE:FUNCTION" names, after running the file.

    Raises KernelError where there is no such file or function.
    """
    file, _, path = source.rpartition(":")
    if not file or not path:
        raise KernelError(f"{source!r} names no function", expected="FILE:FUNCTION, or FILE with --from STAGE")
    if not Path(file).is_file():
        raise KernelError(f"there is no file {file!r}")
    with _users_code(source):
        found: Any = _load_file(Path(file))
    for name in path.split("."):
        if not hasattr(found, name):
            raise KernelError(f"{file} has no {path!r}", expected=f"one of {', '.join(_public_callables(found))}")
        found = getattr(found, name)
    if not callable(found):
        raise KernelError(f"{source} is no function", got=repr(found))
    return found  # type: ignore[no-any-return]


@contextmanager
def _users_code(source: str) -> Iterator[None]:
    """An exception of the user's own code inside becomes a `KernelError` at the user's line.

    The code of a file that a user names may raise anything, hence the broad clause; errors of ours pass.
    """
    try:
        yield
    except MosaicGpuError:
        raise
    except Exception as error:
        file = str(Path(source.rpartition(":")[0]).resolve())
        frames = [f for f in traceback.extract_tb(error.__traceback__) if str(Path(f.filename).resolve()) == file]
        line = SourceLine(frames[-1].filename, frames[-1].lineno or 0, frames[-1].name) if frames else None
        raise KernelError(f"{source} raises {type(error).__name__}: {error}", source=line) from error


def _public_callables(owner: Any) -> list[str]:
    return [name for name, value in vars(owner).items() if callable(value) and not name.startswith("_")]


def _load_file(path: Path) -> Any:
    """The module of a Python file, run as `python FILE` would find its neighbours."""
    name = f"_mosaic_gpu_file_{path.stem}"  # shadows no module of the same name
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise KernelError(f"{path} is no Python file", hint="give --from STAGE with the artifact of a stage")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    return module


def _compile_call(call: Any, options: argparse.Namespace, stop: str) -> str | bytes:
    return _compile(call, call.options, None, stop, call.name, options)


def _compile_file(options: argparse.Namespace, stop: str, name: str) -> str | bytes:
    from mosaic_gpu.lowering.options import LoweringOptions
    from mosaic_gpu.lowering.targets import parse_target

    if not Path(options.source).is_file():
        raise KernelError(f"there is no file {options.source!r}")
    choices = LoweringOptions(target=parse_target(options.target or LoweringOptions.target).name)
    return _compile(Path(options.source), choices, options.start, stop, name, options)


def _compile(
    source: Any, choices: Any, start: str | None, stop: str, name: str, options: argparse.Namespace
) -> str | bytes:
    """The artifact of stage `stop`, as it prints: of a `KernelCall`, or of the file that stage `start` made."""
    from mosaic_gpu.lowering.pipeline import STAGES, compilation_context, read_artifact, run_stages, stage_index
    from mosaic_gpu.lowering.sass import disassemble

    with compilation_context():
        artifact = source if start is None else read_artifact(start, source)
        observer = _observer(options, name)
        artifact = run_stages(artifact, choices, start=start, stop=stop, observer=observer)
        if options.report:
            _report(name, artifact)
        return disassemble(artifact.data) if options.emit == "sass" else STAGES[stage_index(stop)].show(artifact)


def _observer(options: argparse.Namespace, name: str) -> Callable[[Any, Any, float], None]:
    from mosaic_gpu.lowering.pipeline import DumpToFolder

    dump = None if options.dump_dir is None else DumpToFolder(options.dump_dir, name)

    def observe(stage: Any, artifact: Any, seconds: float) -> None:
        if options.report:
            print(f"{name}: {stage.name:8} {1e3 * seconds:8.1f} ms", file=sys.stderr)
        if dump is not None:
            dump(stage, artifact, seconds)

    return observe


def _report(name: str, artifact: Any) -> None:
    for fact in ("launch", "resources"):
        value = getattr(artifact, fact, None)
        if value is not None:
            print(f"{name}: {value}", file=sys.stderr)


def _write(results: list[str | bytes], options: argparse.Namespace) -> None:
    binary = any(isinstance(result, bytes) for result in results)
    if binary and len(results) > 1:
        raise KernelError(f"{options.source} calls {len(results)} kernels", hint="choose one with --kernel NAME")
    if binary and options.output is None and sys.stdout.isatty():
        raise KernelError("a cubin is no text for a terminal", hint="name a file with -o")
    data = b"".join(r if isinstance(r, bytes) else r.rstrip("\n").encode() + b"\n" for r in results)
    if options.output is not None:
        options.output.write_bytes(data)
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
