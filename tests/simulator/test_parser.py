"""Reading PTX: every fault is named with its line, and nothing else escapes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mosaic_gpu.errors import SimulationError, UnsupportedError
from mosaic_gpu.simulator.module import Module
from mosaic_gpu.simulator.parser import parse
from mosaic_gpu.simulator.ptx import Address, Immediate, Register, Vector
from tests.simulator.harness import HEADER, kernel_text

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "no `.target` directive"),
        ("hello", 1, "a directive expected"),
        (HEADER + "\n.bogus x;\n", 5, "unknown directive `.bogus`"),
        (HEADER + ".visible .entry k()\n{\n  add.s32 %r1, %r2;\n}", 6, "register %r1 is not declared"),
        (HEADER + ".visible .entry k()\n{\n  .reg .b32 %r<2>;\n\n  mov.u32 %r2, 0;\n}", 8, "%r2 is not declared"),
        (HEADER + ".visible .entry k()\n{\n  ret;\n", 7, "the text ends inside `k`"),
        (HEADER + ".visible .entry k()\n{\n  ret\n}", 6, "this is not a PTX statement"),
        (HEADER + ".visible .entry k()\n{\n  .reg .b32 %r;\n  @%r ret;\n}", 7, "is not a predicate register"),
        (HEADER + ".visible .entry k()\n{\nA:\nA:\nret;\n}", 7, "the label A is defined twice"),
        (HEADER + ".visible .entry k()\n{\n/* two\nlines */ bra NOWHERE; // not here\n}", 7, "no label NOWHERE"),
        (HEADER + ".visible .entry k()\n{\n.reg .f32 %f;\nmov.f32 %f, 0f3F8;\n}", 7, "wrong number of digits"),
        (HEADER + ".visible .entry k()\n{\n.reg .b32 %r;\nld.global.b32 %r, [%r+%r];\n}", 7, "cannot read the address"),
        (HEADER + ".visible .entry k()\n{\n.reg .b32 %r;\nld.global.b32 %r, [%r-4];\n}", 7, "cannot read the address"),
        (HEADER + ".global .b32 x[2] = {1, 2, 3};\n", 4, "longer than the variable"),
        (HEADER + ".global .b99 x;\n", 4, "cannot read the declaration"),
    ],
)  # fmt: skip
def test_a_malformed_text_is_an_error_with_its_line(text: str, line: int, what: str) -> None:
    with pytest.raises(SimulationError, match=f"PTX line {line}: ") as caught:
        Module(text)
    assert what in str(caught.value)


def test_an_unknown_instruction_is_refused_by_name_with_its_line() -> None:
    with pytest.raises(UnsupportedError, match=r"PTX line 8: the simulator does not support `tex\.1d\.v4\.f32\.s32`"):
        Module(kernel_text(".reg .b32 %r<9>;\ntex.1d.v4.f32.s32 {%r0, %r1, %r2, %r3}, [%r4, {%r5}];", []))


def test_an_unknown_special_register_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="special register %envreg3"):
        Module(kernel_text(".reg .b32 %r; mov.b32 %r, %envreg3;", []))


def test_recursion_is_refused() -> None:
    recursive = HEADER + ".func f() { call f; ret; }\n.visible .entry k() { call f; ret; }"
    with pytest.raises(UnsupportedError, match="recursion"):
        Module(recursive)


def test_operands_are_read_into_their_parts() -> None:
    text = kernel_text(
        ".reg .b32 %r<5>; .reg .b64 %a; .reg .pred %p;\n"
        "@!%p ld.global.v2.b32 {%r1, %r2}, [ %a + -16 ];\nmov.b32 %r3, 0x1F; mov.b32 %r3, -7; mov.f32 %r4, 1.5;",
        [],
    )
    load, hexadecimal, negative, decimal = parse(text).functions["k"].instructions[:4]
    assert (load.opcode, load.modifiers, load.line) == ("ld", ("global", "v2", "b32"), 8)
    assert (load.guard, load.guard_negated) == (Register("%p", "pred"), True)
    assert load.operands == (
        Vector((Register("%r1", "b32"), Register("%r2", "b32"))),
        Address(Register("%a", "b64"), -16, ()),
    )
    assert hexadecimal.operands[1] == Immediate(31, "int")
    assert negative.operands[1] == Immediate(-7, "int")
    assert decimal.operands[1] == Immediate(0x3FF8000000000000, "f64")


def test_locations_follow_the_loc_directives() -> None:
    text = (
        HEADER + '.file 1 "a.py"\n.file 2 "b//c.py"\n.visible .entry k()\n{\n.loc 1 3 0\nret;\n'
        ".loc 2 9 1, function_name $x, inlined_at 1 3 0\nret;\n}"
    )
    sources = [i.source for i in parse(text).functions["k"].instructions]
    assert [str(s) for s in sources] == ["a.py:3", "b//c.py:9"]


def test_debug_sections_and_module_directives_are_passed_over() -> None:
    text = (
        HEADER + '.pragma "nounroll";\n.visible .entry k() .maxntid 128, 1, 1 .minnctapersm 2 { ret; }\n'
        ".section .debug_abbrev\n{\n.b8 1\n.b8 17\n}\n"
    )
    assert parse(text).functions["k"].directives == {"maxntid": (128, 1, 1), "minnctapersm": (2,)}


@pytest.mark.parametrize("seed", range(4))
def test_damaged_texts_give_errors_with_a_line_and_nothing_else(seed: int) -> None:
    rng = random.Random(seed)
    whole = (DATA / "triton_softmax.ptx").read_text()
    for _ in range(120):
        text = whole[: rng.randrange(len(whole))] if rng.random() < 0.3 else whole
        at = rng.randrange(len(text) + 1)
        if rng.random() < 0.5:
            text = text[:at] + text[at + rng.randrange(1, 9) :]
        else:
            text = (
                text[:at]
                + rng.choice(["{", "}", "[", ";", ",", "@", "%r1", ".b32", "ret;", "\n", "0f", '"', ":"])
                + text[at:]
            )
        try:
            Module(text)
        except (SimulationError, UnsupportedError) as error:
            assert "PTX line" in str(error)  # noqa: PT017


@pytest.mark.parametrize("text", ["add.b128 %q, %q, %q;", "selp.b128 %q, %q, %q, %p;", "cvt.b128.b64 %q, %a;"])
def test_other_uses_of_registers_of_128_bits_are_refused_by_name(text: str) -> None:
    with pytest.raises(UnsupportedError, match=r"PTX line 7: .*\.b128"):
        Module(kernel_text(f".reg .b128 %q; .reg .b64 %a; .reg .pred %p; {text}", []))
