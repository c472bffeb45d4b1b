"""Writes the pages that are read off the code: docs/dialect.md and docs/support.md.

python docs/generate.py            writes them
python docs/generate.py --check    says which differ, and fails if any does
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import ml_dtypes
import numpy as np

from mosaic_gpu import dialect, simulator
from mosaic_gpu.check_blocks import SUPPORTED_DTYPES
from mosaic_gpu.dialect import types as dialect_types
from mosaic_gpu.dialect._mlir import ext, ir
from mosaic_gpu.dialect.mgpu import Mgpu
from mosaic_gpu.lowering.jaxpr import load_rules
from mosaic_gpu.lowering.jaxpr.dtypes import element_type
from mosaic_gpu.lowering.jaxpr.registry import RULES
from mosaic_gpu.lowering.targets import TARGETS
from mosaic_gpu.simulator.registry import INSTRUCTIONS

FOLDER = Path(__file__).parent
_NOTE = "<!-- Written by docs/generate.py from the code: change it there. -->"

_DTYPES: tuple[Any, ...] = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *(ml_dtypes.int4, ml_dtypes.uint4, "float16", ml_dtypes.bfloat16, "float32", "float64"),
    *(ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3b11fnuz),
    *(ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e4m3, ml_dtypes.float8_e3m4),
    *(ml_dtypes.float8_e8m0fnu, ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.float4_e2m1fn, "complex64", "complex128"),
)

_KINDS = {
    ext.OperandDef: "operand",
    ext.ResultDef: "result",
    ext.AttributeDef: "attribute",
    ext.RegionDef: "region",
    ext.ParamDef: "parameter",
}
_CONSTRAINTS = {
    "Any": "",
    "ArrayAttr": "array",
    "IntegerAttr": "integer",
    "LayoutAttr": "layout",
    "StringAttr": "string",
    "TypeAttr": "type",
}


def dialect_page() -> str:
    """The reference of the dialect: its types, attributes and ops, by the file they stand in."""
    _import_all(dialect)
    parts = [
        _NOTE,
        "# The `mgpu` dialect",
        "A kernel in this dialect is what one block of threads does. Its values are *tiles*: builtin `tensor` types "
        "of rank 1 and above, and plain scalars for rank 0. A tile's encoding is its register layout "
        "([layouts](layouts.md)); a tile without one has no layout yet. Elementwise arithmetic is not here: it is "
        "upstream's `arith` and `math` on tiles, and control flow is upstream's `scf` on scalars.",
        "## Types and attributes",
    ]
    for class_ in (*Mgpu.types, *Mgpu.attributes):
        kind = "type" if class_ in Mgpu.types else "attribute"
        parts += [f"### {kind} `{'!' if kind == 'type' else '#'}mgpu.{class_._name}`", _doc(class_), _fields(class_)]
    for module in dict.fromkeys(inspect.getmodule(op) for op in Mgpu.operations):
        assert module is not None
        parts += [f"## {_first_line(module).rstrip('.')}"]
        for op in (op for op in Mgpu.operations if op.__module__ == module.__name__):
            parts += [f"### `{op.OPERATION_NAME}`", _doc(op), _traits(op), _fields(op)]
    return _page(parts)


def support_page() -> str:
    """What is supported: primitives, dtypes, targets and the simulator's instructions."""
    load_rules()
    _import_all(simulator)
    parts = [
        _NOTE,
        "# What is supported",
        "Anything that is not listed here is refused by name, with the kernel's file and line.",
        "## JAX primitives inside a kernel",
        f"{len(RULES)} primitives have a rule; functions of `jax.numpy`, `jax.lax` and `jax.nn` become these.",
        *_primitives(),
        "## Dtypes",
        *_dtypes(),
        "## Targets",
        _table(
            ("target", "compute capability", "PTX ISA", "shared memory of a block, bytes"),
            [
                (f"`{t.name}`", ".".join(map(str, t.capability)), ".".join(map(str, t.ptx_version)), t.max_shared_bytes)
                for t in TARGETS.values()
            ],
        ),
        "## PTX instructions of the simulator",
        "By their first word; the modifiers that PTX allows there are checked one by one, and one that is not "
        "known is refused by name.",
        ", ".join(f"`{name}`" for name in sorted(INSTRUCTIONS)) + ".",
    ]
    return _page(parts)


PAGES = {"dialect.md": dialect_page, "support.md": support_page}


def _page(parts: Sequence[str]) -> str:
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _doc(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


def _first_line(thing: Any) -> str:
    return _doc(thing).split("\n\n")[0].replace("\n", " ")


def _traits(op: Any) -> str:
    names = [trait.__name__ for trait in op._traits]
    return f"Traits: {', '.join(names)}." if names else ""


def _fields(class_: Any) -> str:
    rows = []
    for field in class_._fields:
        variadicity = getattr(field, "variadicity", ext.Variadicity.single).name
        kind = _KINDS[type(field)] + ("" if variadicity == "single" else f", {variadicity}")
        rows.append((f"`{field.name.rstrip('_')}`", kind, _constraint(field.constraint)))
    return _table(("field", "kind", "of type"), rows) if rows else ""


def _constraint(constraint: Any) -> str:
    if constraint is dialect_types.RefType:
        return "`!mgpu.ref`"
    if getattr(constraint, "__origin__", None) is ir.IntegerType:
        return f"`i{get_args(constraint)[0]}`"
    return _CONSTRAINTS[constraint.__name__]


def _import_all(package: ModuleType) -> None:
    """Imports every module of a package: they register what they define."""
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


def _primitives() -> Iterator[str]:
    modules = sorted({rule.__module__ for rule in RULES.values()})
    for name in modules:
        rows = sorted((p, rule) for p, rule in RULES.items() if rule.__module__ == name)
        yield f"### {_first_line(sys.modules[name]).rstrip('.')}"
        yield f"In `{name.removeprefix('mosaic_gpu.').replace('.', '/')}.py`."
        plain = [f"`{p}`" for p, rule in rows if not rule.__doc__]
        yield ", ".join(plain) + ("." if plain else "")
        told = [(f"`{p}`", _first_line(rule)) for p, rule in rows if rule.__doc__]
        yield _table(("primitive", "how"), told) if told else ""


def _dtypes() -> Iterator[str]:
    rows = []
    with ir.Context(), ir.Location.unknown():
        dialect.load()
        for dtype in map(np.dtype, _DTYPES):
            if dtype.name in SUPPORTED_DTYPES:
                element = element_type(dtype)
                rows.append((f"`{dtype.name}`", f"`{element}`", dialect_types.storage_bits(element) // 8))
            else:
                rows.append((f"`{dtype.name}`", "refused", ""))
    yield _table(("dtype", "element type in the dialect", "bytes an element in memory"), rows)


def main(arguments: Sequence[str]) -> int:
    """Writes the pages, or compares them under `--check`; the exit status."""
    stale = [name for name, page in PAGES.items() if not _is_current(FOLDER / name, page())]
    if "--check" in arguments:
        for name in stale:
            print(f"docs/{name} differs from the code: run docs/generate.py")
        return bool(stale)
    for name in stale:
        (FOLDER / name).write_text(PAGES[name](), encoding="utf-8")
        print(f"wrote docs/{name}")
    return 0


def _is_current(file: Path, text: str) -> bool:
    return file.exists() and file.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
