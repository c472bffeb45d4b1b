"""Float constants of the newer LLVM arrive in the older one with the same bits."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect._mlir import llvm as mlir_llvm
from mosaic_gpu.lowering.float_text import with_plain_floats

# Type, bits, and what LLVM 22 prints for them (LLVM language reference, "Simple Constants").
SPECIAL = [
    ("f32", 0xFF800000, "0xFFF0000000000000"),
    ("f32", 0x7FC00000, "0x7FF8000000000000"),
    ("f32", 0x7FC00123, "0x7FF8002460000000"),
    ("f32", 0x3F800001, "0x3FF0000020000000"),
    ("f32", 0x00000001, "0x36A0000000000000"),
    ("f64", 0x7FF0000000000000, "0x7FF0000000000000"),
    ("f64", 0x400921FB54442D18, "0x400921FB54442D18"),
    ("f16", 0x7C00, "0xH7C00"),
    ("f16", 0x3C01, "0xH3C01"),
    ("bf16", 0xFF80, "0xRFF80"),
    ("bf16", 0x7FC0, "0xR7FC0"),
    ("bf16", 0x3F81, "0xR3F81"),
]


def translated(constants: list[tuple[str, int]]) -> str:
    """LLVM IR that stores constants of (type, bits), as the newer LLVM writes it."""
    lines = [f"%{i} = llvm.mlir.constant({bits:#x} : {type_}) : {type_}" for i, (type_, bits) in enumerate(constants)]
    lines += [f"llvm.store %{i}, %p : {type_}, !llvm.ptr" for i, (type_, _) in enumerate(constants)]
    with ir.Context():
        module = ir.Module.parse("llvm.func @k(%p: !llvm.ptr) {" + "\n".join(lines) + "\nllvm.return }")
        return str(mlir_llvm.translate_module_to_llvmir(module.operation))


@pytest.mark.parametrize(("type_", "bits", "expected"), SPECIAL)
def test_a_constant_keeps_its_bits(type_: str, bits: int, expected: str) -> None:
    text = with_plain_floats(translated([(type_, bits)]))
    assert f" {expected}, ptr" in text or f" {expected}, ptr" in str(llvm.parse_assembly(text))


@pytest.mark.parametrize(
    ("type_", "width", "word"), [("f16", 16, "half"), ("bf16", 16, "bfloat"), ("f32", 32, "float")]
)
def test_random_bits_come_back(type_: str, width: int, word: str) -> None:
    rng = np.random.default_rng(0)
    numbers = [int(n) for n in rng.integers(0, 2**width, 300)]
    text = str(llvm.parse_assembly(with_plain_floats(translated([(type_, n) for n in numbers]))))
    found = [line.split()[2].rstrip(",") for line in text.splitlines() if f"store {word}" in line]
    assert [_bits(token, type_) for token in found] == numbers


def _bits(token: str, type_: str) -> int:
    """The bits of a constant as LLVM 22 prints it."""
    if token[:3] in ("0xH", "0xR"):
        return int(token[3:], 16)
    if not token.startswith("0x"):
        return int(np.float32(token).view(np.uint32))
    double = int(token, 16)
    if double >> 52 & 0x7FF == 0x7FF:  # not finite: the upper bits of the payload
        return double >> 63 << 31 | 0xFF << 23 | (double >> 29 & 0x7FFFFF)
    return int(np.array(double, np.uint64).view(np.float64).astype(np.float32).view(np.uint32))


def test_text_in_quotes_and_metadata_stays() -> None:
    text = 'store float 1.0, ptr %p\n  call void asm "mov +inf f0x12", "l"(ptr %p)\n!1 = !{!"half -inf 1.5"}'
    assert with_plain_floats(text) == text.replace("float 1.0", "float 0x3FF0000000000000")


def test_a_constant_without_type_takes_that_of_its_instruction() -> None:
    assert with_plain_floats("  %2 = fadd half %1, -inf") == "  %2 = fadd half %1, 0xHFC00"
    assert with_plain_floats("  %2 = fmul <2 x float> %1, splat (float f0x3F800001)") == (
        "  %2 = fmul <2 x float> %1, splat (float 0x3FF0000020000000)"
    )
