"""MLIR's errors become ours in one place, with the kernel's line."""

from __future__ import annotations

import pytest

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.errors import InternalError, KernelError, SourceLine
from mosaic_gpu.lowering.diagnostics import location_source, parse_module, translated_errors
from mosaic_gpu.lowering.pipeline import compilation_context


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ('loc("/a/kernel.py":3:7)', SourceLine("/a/kernel.py", 3)),
        ('loc("add"("/a/kernel.py":3:7))', SourceLine("/a/kernel.py", 3)),
        ('loc(callsite("/a/inner.py":3:7 at "/a/outer.py":9:1))', SourceLine("/a/inner.py", 3)),
        ('loc(fused["-":1:1, "/a/kernel.py":4:1])', SourceLine("/a/kernel.py", 4)),
        ('loc("-":1:1)', None),
        ("loc(unknown)", None),
    ],
)
def test_a_location_gives_the_first_source_line_that_it_names(location: str, expected: SourceLine | None) -> None:
    with compilation_context():
        module = ir.Module.parse(
            f'"builtin.unrealized_conversion_cast"() : () -> i32 {location}'.replace("() -> i32", "() -> i32")
        )
        assert location_source(module.body.operations[0].location) == expected


def test_a_refused_module_is_an_internal_error_that_names_the_stage_and_the_line() -> None:
    with compilation_context():
        module = parse_module(
            'func.func @f() -> i32 {\n  %c = arith.constant 1 : i32\n  return %c : i32 loc("/a/k.py":3:1)\n}', "f"
        )
        function = module.body.operations[0]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([], []))
        with pytest.raises(InternalError, match="stage 'made up' failed") as error, translated_errors("made up"):
            module.operation.verify()
    assert error.value.source == SourceLine("/a/k.py", 3)


def test_errors_of_ours_pass_unchanged() -> None:
    mine = KernelError("mine")
    with pytest.raises(KernelError) as error, translated_errors("any"):
        raise mine
    assert error.value is mine
