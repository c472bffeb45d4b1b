"""The benchmark command: on the stand-in driver, from a bundle, and without a GPU; each in a process of its own."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.stand_in import ROOT, compiler

RUN = ROOT / "benchmarks" / "run.py"
SMALL = Path(__file__).parent / "small.toml"
on_stand_in = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

TWO = """
softmax = [{ dtype = "float32", m = 3, n = 100, block = [2] }]
rms_norm = [{ dtype = "float32", m = 3, n = 100, block = [1] }]
"""


def command(*arguments: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    """A Python process with these arguments, which must exit with `status`."""
    done = subprocess.run([sys.executable, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def stand_in(
    run: Path, folder: Path, *arguments: object, before: tuple[object, ...] = ()
) -> tuple[dict[str, Any], str]:
    """What on_stand_in.py reports of a run, and what the run printed."""
    report = folder / "report.json"
    done = command(Path(__file__).parent / "on_stand_in.py", run, report, *before, "--", *arguments)
    return json.loads(report.read_text()), done.stdout + done.stderr


def content(path: Path) -> dict[str, Any]:
    """A JSON file without numbers that JSON has not."""

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    found: dict[str, Any] = json.loads(path.read_text(), parse_constant=refuse)
    return found


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of the small cases."""
    folder = tmp_path_factory.mktemp("bundle") / "made"
    done = command(RUN, "--shapes", SMALL, "--make-bundle", folder)
    assert f"run it with `python {folder}/run.py`" in done.stdout
    return folder


@on_stand_in
def test_a_bundle_checks_and_times_every_case_with_numpy_and_cuda_bindings_alone(bundle: Path, tmp_path: Path) -> None:
    hidden = ("jax", "jaxlib", "ml_dtypes", "torch", "triton", "torch_mlir", "llvmlite", "greenlet")
    output = tmp_path / "numbers.json"
    report, printed = stand_in(
        bundle / "run.py", tmp_path, "--json", output, "--plot", tmp_path / "shares.png", "--quick",
        "--only", "matmul,matmul_e4m3_64x64x96", "attention", "softmax", "rms_norm", "cross_entropy", "grouped_matmul",
        before=("--hide", *hidden),
    )  # fmt: skip
    assert report["status"] == 0, printed
    assert report["errors"] == []
    assert not [
        name for name in report["modules"] if name.startswith(("mosaic_gpu.dialect", "mosaic_gpu.lowering.jaxpr"))
    ]
    assert report["modules"]["mosaic_gpu"] == str(bundle / "mosaic_gpu" / "__init__.py")
    assert report["modules"]["mosaic_gpu.runtime.timing"].startswith(str(bundle))
    numbers = content(output)
    check_numbers(numbers)
    assert numbers["bundle_made"]
    for reason in ("PyTorch is not installed", "JAX is not installed", "Triton is not installed"):
        assert printed.count(reason) >= 1
    assert (tmp_path / "shares.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    # Calls that follow each other find their inputs at different places.
    for name, pointers in report["launches"].items():
        assert len(set(pointers)) > 5, name
        assert sum(a == b for a, b in itertools.pairwise(pointers)) <= 3, name


def check_numbers(numbers: dict[str, Any]) -> None:
    """The JSON is complete, and the numbers agree with each other."""
    assert {"version", "date", "commit", "dirty", "versions", "command", "gpu", "peers", "cases"} <= set(numbers)
    gpu = numbers["gpu"]
    assert gpu["name"] == "Stand-in GPU"
    assert gpu["clocks_mhz"] == {"sm_max": 1830.0, "memory_max": 3201.0}  # as fake_driver/devices.cc has them
    assert gpu["driver_cuda"] == "13.0"
    assert gpu["peaks"]["dram_bytes_per_s"] == 2 * 3201e6 * 6144 / 8
    assert gpu["nvidia_smi_before"]
    assert gpu["nvidia_smi_after"]
    assert numbers["versions"]["numpy"]
    assert set(numbers["peers"]) == {"mosaic_gpu", "torch", "torch-flash", "jax", "mosaic", "triton"}
    operations = {"matmul", "attention", "softmax", "rms_norm", "cross_entropy", "grouped_matmul"}
    assert {case["operation"] for case in numbers["cases"]} == operations
    for case in numbers["cases"]:
        assert {"name", "dtype", "block", "flops", "bytes", "bound", "tolerance", "exceeds_l2"} <= set(case)
        assert case["copies"] == 128
        rows = {row["contender"]: row for row in case["contenders"]}
        ours = rows.pop("mosaic_gpu")
        assert (ours["status"], ours["clock"]) == ("timed", "events")
        assert 0 <= ours["error"] <= 1
        assert 0 < ours["low"] <= ours["median"] <= ours["high"]
        assert ours["share"] == pytest.approx(case["roofline_us"] / ours["median"])
        assert {"torch", "jax", "triton"} <= set(rows)
        assert all(row["status"] == "missing" and row["reason"] for row in rows.values())


@on_stand_in
def test_a_wrong_result_is_told_and_not_timed_and_the_command_fails(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(TWO)
    output = tmp_path / "numbers.json"
    report, printed = stand_in(
        RUN, tmp_path, "--shapes", tmp_path / "two.toml", "--quick", "--json", output, "--peers", "none",
        before=("--replace", "ex2.approx", "cos.approx"),
    )  # fmt: skip
    assert report["status"] == 1, printed
    assert "mosaic_gpu: NOT right in softmax_f32_3x100 (wrong)" in printed
    rows = {case["operation"]: case["contenders"][0] for case in content(output)["cases"]}
    assert rows["softmax"]["status"] == "wrong"
    assert rows["softmax"]["median"] is None
    assert "times what is allowed" in rows["softmax"]["reason"]
    assert rows["rms_norm"]["status"] == "timed"


@on_stand_in
def test_kernels_that_a_bundle_has_not_or_not_for_the_gpu_fail_by_name(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(TWO)
    output = tmp_path / "numbers.json"
    report, printed = stand_in(
        bundle / "run.py", tmp_path, "--shapes", tmp_path / "two.toml", "--quick", "--json", output, "--peers", "torch",
        before=("--hide", "jax", "torch"),
    )  # fmt: skip
    assert report["status"] == 1, printed
    rows = {case["operation"]: case["contenders"][0] for case in content(output)["cases"]}
    assert rows["softmax"]["status"] == "timed"
    assert rows["rms_norm"]["status"] == "failed"
    assert "has no kernel 'rms_norm_f32_3x100'" in rows["rms_norm"]["reason"]
    assert "missing: torch: PyTorch is not installed" in printed


@pytest.mark.skipif("not __import__('tests.conftest', fromlist=['x']).has_gpu() is False", reason="a GPU is here")
def test_without_a_gpu_it_tells_how_kernels_compile_and_what_it_cannot_tell(tmp_path: Path) -> None:
    output, picture = tmp_path / "numbers.json", tmp_path / "times.png"
    arguments = ("--quick", "--only", "softmax", "matmul", "--json", output, "--plot", picture)
    printed = command(RUN, *arguments).stdout
    assert "No GPU: there is no NVIDIA driver on this machine" in printed
    assert "What needs a GPU: running the kernels" in printed
    numbers = content(output)
    assert numbers["cases"] == []
    times, code = numbers["without_gpu"]["compile_seconds"], numbers["without_gpu"]["code"]
    assert [row["name"] for row in times] == ["matmul_bf16_4096x4096x4096", "softmax_f32_8192x4096"]
    assert all(row["total"] >= row["ptx"] > 0 for row in times)
    matmul, softmax = code
    assert (matmul["mma"], matmul["stages"], matmul["spills"]) == (4, 4, 0)
    assert (softmax["mma"], softmax["stages"]) == (0, None)
    assert softmax["loop"] > 100  # it has no loop: all of its instructions
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_case_that_cannot_be_compiled_is_named_and_the_others_are_made(tmp_path: Path) -> None:
    too_large = 'matmul = [{ dtype = "bfloat16", m = 2048, n = 2048, k = 64, block = [1024, 1024, 64] }]\n'
    (tmp_path / "cases.toml").write_text(too_large + TWO.split("\n", 2)[2])
    folder = tmp_path / "made"
    printed = command(RUN, "--shapes", tmp_path / "cases.toml", "--make-bundle", folder, status=1).stdout
    assert "left out: matmul_bf16_2048x2048x64 for sm_90a: " in printed
    assert {path.name for path in (folder / "kernels").glob("*.cubin")} == {"rms_norm_f32_3x100.sm_90a.cubin"}
    assert "matmul" not in (folder / "shapes.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "sofmax"), "there is no operation or case 'sofmax'"),
        (("--peers", "tensorflow"), "there is no peer 'tensorflow'"),
        (("--shapes", "nothing.toml"), "the cases cannot be read"),
        (("--plot", "picture.svg"), "the picture is a PNG"),
        (("--json", "README.md/numbers.json"), "the numbers cannot be written"),
        (("--make-bundle", "tests"), "tests is not empty"),
    ],
)
def test_a_wrong_command_is_refused_by_name(arguments: tuple[str, ...], message: str) -> None:
    assert f"error: {message}" in command(RUN, *arguments, status=2).stderr


def test_a_bundle_is_made_by_a_checkout_only(bundle: Path, tmp_path: Path) -> None:
    printed = command(bundle / "run.py", "--make-bundle", tmp_path / "again", status=2).stderr
    assert "a bundle holds no compiler to make another with" in printed
