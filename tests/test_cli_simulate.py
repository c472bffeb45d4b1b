"""mosaic-gpu simulate: what it prints, saves and refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mosaic_gpu.cli import main
from mosaic_gpu.cli_simulate import dimensions, parse_argument
from mosaic_gpu.errors import KernelError

PTX = str(Path(__file__).parent / "simulator" / "data" / "nvcc_kernels.ptx")
SAXPY = ["simulate", PTX, "--entry", "saxpy", "--grid", "4", "--block", "128"]
RACE = """.version 8.7
.target sm_90a
.address_size 64
.file 1 "kernel.py"
.shared .align 4 .b8 s[256];
.visible .entry race(.param .u64 p)
{
  .reg .b32 %r<6>;
  .loc 1 3 0
  mov.u32 %r0, %tid.x; mov.u32 %r1, s; mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2], %r0;
  .loc 1 4 0
  xor.b32 %r3, %r2, 128; ld.shared.u32 %r4, [%r3];
  ret;
}
"""
RNG = np.random.default_rng(0)


def test_a_kernel_runs_on_arguments_of_all_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = RNG.standard_normal(1000).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    arguments = ["--arg", "n=s32:1000", "--arg", "a=f32:2.5", "--arg", f"x=f32::{tmp_path / 'x.npy'}", "--arg",
                 "y=f32:1000:3", "--save", f"y={tmp_path / 'y.npy'}"]  # fmt: skip
    assert main([*SAXPY, *arguments]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), 2.5 * x + 3, rtol=1e-6, atol=1e-6)
    printed = capsys.readouterr().out
    assert "4 blocks, 512 threads" in printed
    assert "no hazards found" in printed
    assert "y: float32[1000] = [" in printed


def test_an_array_fills_a_struct_that_is_passed_by_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.ptx").write_text(
        """.version 8.7
        .target sm_90a
        .address_size 64
        .visible .entry k(.param .u64 out, .param .align 4 .b8 s[12]) { .reg .b64 %o; .reg .b32 %r;
        ld.param.u64 %o, [out]; ld.param.b32 %r, [s+8]; st.global.b32 [%o], %r; ret; }"""
    )
    np.save(tmp_path / "s.npy", np.array([1, 2, 77], np.int32).view(np.uint8))
    command = ["simulate", str(tmp_path / "k.ptx"), "--arg", "out=s32:1", "--arg", f"s=u8:12:{tmp_path / 's.npy'}"]
    assert main(command) == 0
    assert "out: int32[1] = [77]" in capsys.readouterr().out
    assert main([*command[:-1], "s=u8:11:zeros"]) == 1
    assert "expected: 12 bytes" in capsys.readouterr().err


def test_a_buffer_without_initial_values_must_be_written_first(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--arg", "n=s32:1000", "--arg", "a=f32:2.5", "--arg", "x=f32:1000:random", "--arg", "y=f32:1000"]
    assert main([*SAXPY, *arguments]) == 1
    assert "never written: byte 0 of buffer `saxpy_param_3`" in capsys.readouterr().err


def test_a_hazard_is_reported_with_both_lines_and_the_status_is_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "race.ptx").write_text(RACE)
    command = ["simulate", str(tmp_path / "race.ptx"), "--block", "64", "--arg", "p=u32:1:zeros"]
    assert main(command) == 1
    report = capsys.readouterr().err
    assert "race: shared load of 4 bytes at byte 128 of shared memory" in report
    assert "the other: PTX line 10: st.shared.u32" in report
    assert "kernel.py:3" in report
    assert "PTX line 12: ld.shared.u32" in report
    assert "kernel.py:4" in report
    assert main([*command, "--no-hazards"]) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["simulate", PTX], "--entry is missing"),
        (["simulate", PTX, "--entry", "nothing"], "there is no entry `nothing`"),
        (SAXPY, "`saxpy` takes 4 arguments"),
        (["simulate", "absent.ptx"], "cannot read absent.ptx"),
        ([*SAXPY[:4], "--grid", "0"], "one to three positive ints"),
        ([*SAXPY, "--arg", "n=s32:x", *["--arg", "x=f32:1"] * 3], "no value of int32"),
        ([*SAXPY, "--arg", "n=s33:1", *["--arg", "x=f32:1"] * 3], "type s33"),
        ([*SAXPY, "--arg", "n", *["--arg", "x=f32:1"] * 3], "NAME=TYPE:SHAPE"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    assert says in capsys.readouterr().err


def test_an_interrupted_launch_stops_cleanly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mosaic_gpu.simulator.Module.launch", interrupt)
    arguments = ["--arg", "n=s32:0", "--arg", "a=f32:1", "--arg", "x=f32:1:ones", "--arg", "y=f32:1:ones"]
    assert main([*SAXPY, *arguments]) == 130
    assert "stopped" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a=s16:2,3:arange", np.arange(6, dtype=np.int16).reshape(2, 3)),
        ("a=u8:4:255", np.full(4, 255, np.uint8)),
        ("a=f64:2x2:ones", np.ones((2, 2))),
        ("a=f16:3:-0.5", np.full(3, -0.5, np.float16)),
    ],
)
def test_arrays_are_filled_as_they_say(text: str, want: np.ndarray) -> None:  # type: ignore[type-arg]
    argument = parse_argument(text, 8, RNG)
    np.testing.assert_array_equal(argument.value, want)
    assert argument.value.dtype == want.dtype
    assert not argument.is_uninitialised


def test_numbers_of_8_bytes_are_marked() -> None:
    assert parse_argument("n=s64:-7:value", 8, RNG).value == -7
    assert parse_argument("n=u32:0x10", 4, RNG).value == 16
    assert parse_argument("y=bf16:4", 8, RNG).is_uninitialised


def test_dimensions_are_one_to_three_positive_ints() -> None:
    assert dimensions("4,2x3") == (4, 2, 3)
    with pytest.raises(KernelError, match="one to three positive ints"):
        dimensions("1,1,1,1")
