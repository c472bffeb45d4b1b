"""What debug_print writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_kernel import DebugPrintOp
from tests.lowering.nvvm.harness import Array, Body, constant, load, run

I64 = 64


def printed(body: Body, inputs: Sequence[Array], capsys: pytest.CaptureFixture[str], **options: Any) -> str:
    run(body, inputs, [], **options)
    return capsys.readouterr().out


def debug_print(values: Sequence[ir.Value], text: str, kinds: Sequence[str]) -> None:
    DebugPrintOp(list(values), ir.StringAttr.get(text), ir.ArrayAttr.get([ir.StringAttr.get(k) for k in kinds]))


def test_scalars_are_printed_once_a_block_by_their_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    def body() -> None:
        type_ = ir.IntegerType.get_signless(I64)
        bits = int(np.float64(1.25).view(np.int64))
        values = [constant(type_, n) for n in (-3, -3, 1, 0, bits)]
        text = "{} {} {} {} {} {{100%}}"
        debug_print(values, text, ["int", "uint", "bool", "bool", "float"])

    assert printed(body, [], capsys, grid=(2,)) == f"-3 {2**64 - 3} True False 1.25 {{100%}}\n" * 2


def test_a_text_without_values_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(lambda: debug_print([], "hello", []), [], capsys) == "hello\n"


@pytest.mark.parametrize(
    ("array", "kind", "expected"),
    [
        (np.array([[1, -2], [3, 4]], np.int8), "int", "x: [[1 -2]\n [3 4]]\n"),
        (np.array([200, 3], np.uint8), "uint", "x: [200 3]\n"),
        (np.array([True, False]), "bool", "x: [True False]\n"),
        (np.array([0.5, -2.25], np.float16), "float", "x: [0.5 -2.25]\n"),
        (np.arange(8).reshape(2, 2, 2), "int", "x: [[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]\n"),
    ],
)
def test_tiles_are_printed_as_numpy_prints_arrays(
    array: Array, kind: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = Layout.blocked(array.shape, 4, 2)
    assert printed(lambda ref: debug_print([load(ref, layout)], "x: {}", [kind]), [array], capsys) == expected


def test_an_array_of_a_hundred_elements_is_printed_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    x = np.arange(100, dtype=np.int32)
    layout = Layout.blocked((100,), 4)
    text = printed(lambda ref: debug_print([load(ref, layout)], "{}", ["int"]), [x], capsys)
    assert text == f"[{' '.join(map(str, range(100)))}]\n"


def test_a_large_array_is_summarised(capsys: pytest.CaptureFixture[str]) -> None:
    x = np.arange(40 * 50, dtype=np.float32).reshape(40, 50)
    layout = Layout.blocked((40, 50), 4, 2)
    text = printed(lambda ref: debug_print([load(ref, layout)], "{}", ["float"]), [x], capsys)
    lines = text.splitlines()
    assert lines[0] == "[[0 1 2 ... 47 48 49]"
    assert lines[3] == " ..."
    assert lines[-1] == " [1950 1951 1952 ... 1997 1998 1999]]"
