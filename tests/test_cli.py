"""The command line: what it writes, and how it fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mosaic_gpu.cli import EMIT_CHOICES, STAGE_CHOICES, main
from mosaic_gpu.cli_compile import load_function, parse_shape
from mosaic_gpu.errors import KernelError
from mosaic_gpu.lowering.pipeline import STAGE_NAMES, STAGES
from tests.support.thread_ir import SINES

KERNELS = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
import mosaic_gpu

def double_kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2

def half_kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] / 2

def call(kernel, x):
    return pl.pallas_call(
        kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), compiler_params=mosaic_gpu.CompilerParams()
    )(x)

def double(x):
    return call(double_kernel, x)

def both(x):
    return call(half_kernel, call(double_kernel, x))

def neither(x):
    return x

def wrong(x):
    m, n = x.shape
    return x

def rows(x, y):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[0].astype(jnp.float32)
    block, first = pl.BlockSpec((4, 16), lambda i: (i, 0)), pl.BlockSpec((1,), lambda i: (i,))
    return pl.pallas_call(
        kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(pl.cdiv(x.shape[0], 4),),
        in_specs=[block, first], out_specs=block, compiler_params=mosaic_gpu.CompilerParams(),
    )(x, y)

class Holder:
    double = staticmethod(double)

number = 3
"""


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return path


@pytest.fixture
def sines(tmp_path: Path) -> Path:
    path = tmp_path / "sines.mlir"
    path.write_text(SINES)
    return path


def _fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command prints to stderr on its way to exit status 1."""
    assert main(arguments) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    return printed.err


def test_the_command_line_knows_the_stages_of_the_pipeline() -> None:
    assert STAGE_CHOICES == STAGE_NAMES
    assert (*STAGE_NAMES, "sass") == EMIT_CHOICES


def test_the_command_line_imports_nothing_heavy_before_it_has_to() -> None:
    code = (
        "import sys; from mosaic_gpu.cli import _parser; _parser().parse_args(['compile', 'a.py:f']);"
        "sys.exit(any(m in sys.modules for m in ('jax', 'numpy', 'torch_mlir', 'llvmlite', 'cuda')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32[4,1000]", ((4, 1000), "float32")),
        ("bf16[ 8, 2 ]", ((8, 2), "bfloat16")),
        ("i32[]", ((), "int32")),
        ("float64[3]", ((3,), "float64")),
        ("bool[7]", ((7,), "bool")),
        ("f8e4m3fn[16]", ((16,), "float8_e4m3fn")),
    ],
)
def test_a_shape_is_a_dtype_and_dimensions(text: str, expected: tuple[tuple[int, ...], str]) -> None:
    assert parse_shape(text) == expected


@pytest.mark.parametrize("text", ["f32", "[3]", "f32[a]", "f32[-1]", "f32(3)"])
def test_what_is_no_shape_is_the_users_error(text: str) -> None:
    with pytest.raises(KernelError, match="is no shape"):
        parse_shape(text)


def test_a_size_may_be_a_name(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", f"{kernels}:rows", "--shape", "f32[n, 16]", "bf16[2*n]", "--emit", "dialect"]) == 0
    printed = capsys.readouterr().out
    assert "tensor<2147483647x16xf32>" in printed
    assert "tensor<2147483647xbf16>" in printed


def test_a_size_that_is_no_expression_is_the_users_error(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    errors = _fails(capsys, "compile", f"{kernels}:double", "--shape", "f32[n+,16]")
    assert "KernelError: [n+,16] is no shape" in errors
    assert "sizes such as n, 2*n + 1, 128" in errors


def test_a_function_is_found_by_its_dotted_name(kernels: Path) -> None:
    assert load_function(f"{kernels}:Holder.double").__name__ == "double"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{}:missing", "has no 'missing'"),
        ("{}:number", "is no function"),
        ("{}", "names no function"),
        ("nowhere.py:f", "there is no file 'nowhere.py'"),
    ],
)
def test_a_source_that_names_no_function_says_why(
    source: str, message: str, kernels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in _fails(capsys, "compile", source.format(kernels), "--shape", "f32[8]")


def test_a_dtype_that_does_not_exist_is_named(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "'f33[8]' names no dtype" in _fails(capsys, "compile", f"{kernels}:double", "--shape", "f33[8]")


def test_an_exception_of_the_users_function_is_a_message_at_its_line(
    kernels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = _fails(capsys, "compile", f"{kernels}:wrong", "--shape", "f32[8]")
    line = KERNELS.split("\n").index("    m, n = x.shape") + 1
    assert "ValueError: not enough values to unpack" in error
    assert f"at {kernels}:{line} in wrong" in error


def test_a_file_that_cannot_be_run_is_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken.py"
    path.write_text("import nonesuch\n")
    error = _fails(capsys, "compile", f"{path}:f")
    assert "No module named 'nonesuch'" in error
    assert f"at {path}:1" in error


def test_a_function_without_kernels_is_an_error(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = _fails(capsys, "compile", f"{kernels}:neither", "--shape", "f32[8]")
    assert "kernels called: none" in error


def test_an_unknown_kernel_name_lists_the_kernels(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = _fails(capsys, "compile", f"{kernels}:both", "--shape", "f32[8]", "--kernel", "other")
    assert "double_kernel, half_kernel" in error


@pytest.mark.parametrize("target", ["gfx950", "hopper"])
def test_a_target_that_is_none_is_an_error(
    target: str, kernels: Path, sines: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert target in _fails(capsys, "compile", f"{kernels}:double", "--shape", "f32[8]", "--target", target)
    assert target in _fails(capsys, "compile", str(sines), "--from", "nvvm", "--target", target)


@pytest.mark.parametrize(
    ("emit", "words"),
    [
        ("dialect", "mgpu.kernel"),
        ("layouts", "#mgpu.layout"),
        ("nvvm", "llvm.func"),
        ("llvm", "define ptx_kernel void @double_kernel"),
        ("ptx", ".visible .entry double_kernel"),
        ("sass", "double_kernel"),
    ],
)
def test_each_stage_of_a_kernel_is_written_as_text(emit: str, words: str, kernels: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["compile", f"{kernels}:double", "--shape", "f32[4,100]", "--emit", emit, "-o", str(out)]) == 0
    assert words in out.read_text()


def test_a_cubin_is_written_as_bytes(kernels: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.cubin"
    assert main(["compile", f"{kernels}:double", "--shape", "f32[100]", "--emit", "cubin", "-o", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x7fELF")


def test_the_target_decides_the_code(kernels: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["compile", f"{kernels}:double", "--shape", "f32[100]", "--target", "8.0"]) == 0
    assert b".target sm_80" in capsysbinary.readouterr().out


def test_a_kernel_is_chosen_by_name_among_several(kernels: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    arguments = ["compile", f"{kernels}:both", "--shape", "f32[100]"]
    assert main(arguments) == 0
    assert capsysbinary.readouterr().out.count(b".entry") == 2
    assert main([*arguments, "--kernel", "half_kernel"]) == 0
    assert capsysbinary.readouterr().out.count(b".entry half_kernel") == 1


def test_one_file_does_not_hold_two_cubins(kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = _fails(
        capsys, "compile", f"{kernels}:both", "--shape", "f32[8]", "--emit", "cubin", "-o", str(tmp_path / "out")
    )
    assert "--kernel" in error


def test_every_stage_is_dumped_and_each_dump_can_be_entered(kernels: Path, tmp_path: Path) -> None:
    arguments = ["--emit", "cubin", "-o"]
    whole, dumps = tmp_path / "whole", tmp_path / "dumps"
    shape = ["--shape", "f32[4,100]"]
    assert main(["compile", f"{kernels}:double", *shape, *arguments, str(whole), "--dump-dir", str(dumps)]) == 0
    assert {path.name for path in dumps.iterdir()} == {f"double_kernel{stage.suffix}" for stage in STAGES}
    for stage in STAGES:
        again = tmp_path / f"again_{stage.name}"
        source = str(dumps / f"double_kernel{stage.suffix}")
        assert main(["compile", source, "--from", stage.name, *arguments, str(again)]) == 0
        assert again.read_bytes()[:4] == b"\x7fELF"


def test_a_stage_is_entered_from_a_file(sines: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["compile", str(sines), "--from", "nvvm", "--emit", "ptx"]) == 0
    assert b".entry sines" in capsysbinary.readouterr().out


def test_going_back_a_stage_is_an_error(sines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "comes before" in _fails(capsys, "compile", str(sines), "--from", "nvvm", "--emit", "dialect")


def test_the_report_tells_times_launch_and_resources(
    sines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert main(["compile", str(sines), "--from", "nvvm", "--emit", "cubin", "-o", out, "--report"]) == 0
    printed = capsys.readouterr().err
    for words in ("llvm ", "ptx ", "cubin ", "grid=(15, 1, 1)", "registers="):
        assert words in printed


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["compile"], ["compile", "a.py:f", "--emit", "jpeg"]])
def test_a_wrong_command_line_exits_with_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
