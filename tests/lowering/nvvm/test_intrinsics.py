"""LLVM selects every op of the table; a fault there ends the process, so each op compiles in a child."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mosaic_gpu.lowering.nvvm.intrinsics import CASTS, SELECTABLE, is_selectable

ROOT = Path(__file__).parents[3]
OPERANDS = {"math.fma": 3, **{name: 1 for name in SELECTABLE if name.startswith("math.") and name != "math.copysign"}}
OPERANDS |= {"math.fma": 3, "arith.negf": 1}
PREDICATES = {"arith.cmpi": range(10), "arith.cmpf": range(16)}


def signatures(name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(operand type, result types) of an op."""
    if name not in CASTS:
        for element in SELECTABLE[name]:
            result = "i1" if name in PREDICATES else element
            yield element, (result, result) if name.endswith("_extended") else (result,)
        return
    for source, target in itertools.product(*CASTS[name]):
        if _fits(name, _bits(source), _bits(target), source, target):
            yield source, (target,)


def _bits(element: str) -> int:
    return int(element.lstrip("bfi"))


def _fits(name: str, source: int, target: int, source_name: str, target_name: str) -> bool:
    if name == "arith.bitcast":
        return source == target and source_name != target_name
    if "ext" in name:
        return source < target
    return source > target if "trunc" in name else True


def use(number: int, name: str, operand: str, results: tuple[str, ...], predicate: int | None, lanes: int) -> str:
    """One application of an op to vectors (scalars for 0 lanes) from memory, stored so that it is not dropped."""

    def wide(element: str) -> str:
        return f"vector<{lanes}x{element}>" if lanes else element

    count = OPERANDS.get(name, 1 if name in CASTS else 2)
    values = [f"%v{number}_{i}" for i in range(count)]
    loads = "\n".join(f"{v} = llvm.load volatile %p : !llvm.ptr<1> -> {wide(operand)}" for v in values)
    attribute = "" if predicate is None else f"{{predicate = {predicate} : i64}}"
    types = f"({', '.join([wide(operand)] * count)}) -> ({', '.join(map(wide, results))})"
    made = f'%r{number}:{len(results)} = "{name}"({", ".join(values)}) {attribute} : {types}'
    stores = "\n".join(
        f"llvm.store volatile %r{number}#{i}, %p : {wide(result)}, !llvm.ptr<1>" for i, result in enumerate(results)
    )
    return f"{loads}\n{made}\n{stores}\n"


def compile_all(name: str) -> None:
    """Compiles a kernel with every signature of an op; prints its name before: the last line tells what failed."""
    from mosaic_gpu import dialect
    from mosaic_gpu.dialect._mlir import ir
    from mosaic_gpu.lowering.llvm import translate_to_llvm
    from mosaic_gpu.lowering.options import LoweringOptions
    from mosaic_gpu.lowering.ptx import compile_to_ptx

    print(name, flush=True)
    options = LoweringOptions()
    cases = itertools.product(signatures(name), PREDICATES.get(name, [None]), (0, 1, 2, 3, 8))
    body = "".join(use(i, name, *signature, predicate, lanes) for i, (signature, predicate, lanes) in enumerate(cases))
    facts = "nvvm.kernel, mgpu.grid = [1 : i32], mgpu.num_warps = 1 : i32, mgpu.smem_bytes = 0 : i32"
    with ir.Context(), ir.Location.unknown():
        dialect.load()
        module = ir.Module.parse(f"llvm.func @k(%p: !llvm.ptr<1>) attributes {{{facts}}} {{\n{body}llvm.return\n}}")
        ptx = compile_to_ptx(translate_to_llvm(module, options), options).text
    if "call" in ptx:
        raise AssertionError(f"{name} became a call")


@pytest.mark.parametrize("family", ["arith", "math", "casts"])
def test_every_op_of_the_table_compiles(family: str) -> None:
    casts = [n for n in CASTS if "index" not in n]  # casts of index become casts of i64
    names = casts if family == "casts" else [n for n in SELECTABLE if n.startswith(family)]
    script = "import sys; from tests.lowering.nvvm.test_intrinsics import compile_all\n"
    script += "for name in sys.argv[1:]: compile_all(name)"
    done = subprocess.run([sys.executable, "-c", script, *names], cwd=ROOT, capture_output=True, text=True)
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"{last} failed: {done.stderr[-2000:]}"


@pytest.mark.parametrize(
    ("name", "operand", "result", "expected"),
    [
        ("arith.addf", "bf16", "bf16", True),
        ("arith.remf", "f32", "f32", False),
        ("math.exp2", "f64", "f64", False),
        ("math.sin", "f32", "f32", False),
        ("arith.trunci", "i16", "i1", False),
        ("arith.trunci", "i16", "i8", True),
    ],
)
def test_the_table_says_what_may_be_emitted(name: str, operand: str, result: str, expected: bool) -> None:
    assert is_selectable(name, operand, result) is expected
