"""Bundles run with cuda-python alone, and a bundle that is not what was made is refused by name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mosaic_gpu
from mosaic_gpu import DeviceArray, KernelError, ToolError, UnsupportedError
from mosaic_gpu.bundle import write_bundle
from mosaic_gpu.cli import main
from mosaic_gpu.runtime.devices import device
from tests.support import gpu_kernels
from tests.support.stand_in import ROOT, Driver

SOURCE = """
import jax, jax.numpy as jnp
import mosaic_gpu
from jax.experimental import pallas as pl

def scale(x, y):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] * y_ref[...]
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    z = pl.pallas_call(kernel, out, compiler_params=mosaic_gpu.CompilerParams(), name="scale")(x, y)
    return pl.pallas_call(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] + 1), out,
                          compiler_params=mosaic_gpu.CompilerParams(), name="shift")(z)
"""
ROWS = """
import jax, jax.numpy as jnp
import mosaic_gpu
from jax.experimental import pallas as pl

def rows(x, y):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[0]
    block, first = pl.BlockSpec((4, 40), lambda i: (i, 0)), pl.BlockSpec((1,), lambda i: (i,))
    return pl.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(pl.cdiv(x.shape[0], 4),),
                          in_specs=[block, first], out_specs=block, compiler_params=mosaic_gpu.CompilerParams(),
                          name="rows")(x, y)
"""
X = np.random.default_rng(5).normal(size=(3, 40)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bundle of two kernels for two targets, made by the command line."""
    (tmp_path / "scale.py").write_text(SOURCE)
    out = tmp_path / "scale.bundle"
    shapes = ["--shapes", "f32[3,40]", "f32[3,40]"]
    arguments = ["bundle", f"{tmp_path}/scale.py:scale", *shapes, "--targets", "sm_80", "sm_90a", "-o", str(out)]
    assert main(arguments) == 0
    return out


def test_the_folder_holds_cubins_ptx_and_a_manifest(folder: Path) -> None:
    names = {f"{kernel}.{target}.{kind}" for kernel in ("scale", "shift") for target in ("sm_80", "sm_90a")
             for kind in ("cubin", "ptx")}  # fmt: skip
    assert {path.name for path in folder.iterdir()} == names | {"manifest.json"}
    assert ".target sm_80" in (folder / "scale.sm_80.ptx").read_text()
    assert (folder / "scale.sm_90a.cubin").read_bytes()[:4] == b"\x7fELF"


_ALONE = """
import sys
from pathlib import Path
import numpy as np
before = set(sys.modules)
import mosaic_gpu
kernels = mosaic_gpu.load_bundle(sys.argv[1])
loaded = {name.split(".")[0] for name in set(sys.modules) - before}
heavy = {"jax", "jaxlib", "torch_mlir", "llvmlite"} & loaded
assert not heavy, heavy

from tests.support.stand_in import install
driver = install()
folder = Path(sys.argv[1])
for path in folder.glob("*.sm_90a.cubin"):
    driver.add(path.read_bytes(), path.with_suffix(".ptx").read_text())
x = np.arange(120, dtype=np.float32).reshape(3, 40)
np.testing.assert_array_equal(kernels["scale"](x, x), x * x)
on_gpu = mosaic_gpu.DeviceArray.of(x)
np.testing.assert_array_equal(kernels["shift"](on_gpu).numpy(), x + 1)
assert not {"jax", "jaxlib", "torch_mlir", "llvmlite"} & {name.split(".")[0] for name in sys.modules}
assert not [name for name in sys.modules if name.startswith(("mosaic_gpu.dialect", "mosaic_gpu.lowering.jaxpr"))]
print(sorted(kernels), kernels.made_by)
"""


def test_it_runs_in_a_process_that_imports_neither_jax_nor_a_compiler(folder: Path) -> None:
    command = [sys.executable, "-c", _ALONE, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("['scale', 'shift'] 0.")


def _known(driver: Driver, folder: Path) -> Any:
    for path in folder.glob("*.cubin"):
        driver.add(path.read_bytes(), path.with_suffix(".ptx").read_text())
    return mosaic_gpu.load_bundle(folder)


def test_the_variant_for_the_gpu_at_hand_is_taken(driver: Driver, folder: Path) -> None:
    kernels = _known(driver, folder)
    assert kernels["scale"].targets == ("sm_80", "sm_90a")
    assert set(kernels) == {"scale", "shift"}
    assert "softmax" not in kernels
    for capability in ((9, 0), (8, 6)):
        driver.configure(capability=capability)
        device.cache_clear()
        np.testing.assert_array_equal(kernels["scale"](DeviceArray.of(X), DeviceArray.of(X)).numpy(), X * X)
        kernels["scale"].unload()
    device.cache_clear()


def test_one_bundle_serves_all_sizes(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(ROWS)
    out = tmp_path / "rows.bundle"
    assert main(["bundle", f"{tmp_path}/rows.py:rows", "--shapes", "f32[n,40]", "f32[2*n]", "-o", str(out)]) == 0
    rows = _known(driver, out)["rows"]
    for n in (1, 9, 30):
        x, y = np.random.default_rng(n).normal(size=(n, 40)).astype(np.float32), np.ones(2 * n, np.float32)
        np.testing.assert_array_equal(rows(x, y), x + 1)
    with pytest.raises(KernelError, match=r"kernel 'rows' disagree\n  got: operand 1 of shape \[61\]\n .*n = 30"):
        rows(x, np.ones(61, np.float32))


def test_results_go_to_given_arrays(driver: Driver, folder: Path) -> None:
    out = DeviceArray(X.shape, X.dtype)
    assert _known(driver, folder)["shift"](DeviceArray.of(X), out=out) is out
    np.testing.assert_array_equal(out.numpy(), X + 1)


def test_the_wrong_gpu_is_refused_by_name(driver: Driver, folder: Path) -> None:
    driver.configure(capability=(10, 0))
    device.cache_clear()
    message = (
        r"kernel 'scale' for other GPUs than Stand-in GPU\n  got: .*10\.0\n  expected: one that runs sm_80 or sm_90a"
    )
    with pytest.raises(UnsupportedError, match=message):
        _known(driver, folder)["scale"](X, X)
    device.cache_clear()


@pytest.mark.parametrize("name", ["scale.sm_80.cubin", "shift.sm_90a.ptx"])
def test_a_changed_file_is_refused_by_name(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(ToolError, match=f"{name} was changed since the bundle was made"):
        mosaic_gpu.load_bundle(folder)


def test_a_missing_file_is_refused_by_name(folder: Path) -> None:
    (folder / "scale.sm_80.cubin").unlink()
    with pytest.raises(ToolError, match=r"a file of the bundle is missing: .*scale\.sm_80\.cubin"):
        mosaic_gpu.load_bundle(folder)


def test_a_changed_manifest_is_refused(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"shared_bytes": 0', '"shared_bytes": 16'))
    with pytest.raises(ToolError, match=r"manifest\.json was changed"):
        mosaic_gpu.load_bundle(folder)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(ToolError, match=r"manifest\.json was changed"):
        mosaic_gpu.load_bundle(folder)


def test_another_version_is_refused_by_name(folder: Path) -> None:
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "version": 3, "made_by": "9.9"}))
    with pytest.raises(UnsupportedError, match=r"got: version 3, made by mosaic-gpu 9\.9\n  expected: version 2"):
        mosaic_gpu.load_bundle(folder)


def test_a_folder_without_a_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="is no bundle"):
        mosaic_gpu.load_bundle(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(KernelError, match="is no manifest of a bundle"):
        mosaic_gpu.load_bundle(tmp_path)


def test_a_kernel_that_is_not_in_it_is_refused_with_those_that_are(folder: Path) -> None:
    with pytest.raises(KernelError, match=r"has no kernel 'softmax'\n  got: kernels: scale, shift"):
        mosaic_gpu.load_bundle(folder)["softmax"]


def test_a_folder_with_other_files_is_not_written_to(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years")
    with pytest.raises(KernelError, match="holds other files than a bundle's"):
        write_bundle(tmp_path, [(gpu_kernels.add_one(driver), "")])


def test_two_kernels_of_one_name_are_refused(driver: Driver, tmp_path: Path) -> None:
    kernel = gpu_kernels.add_one(driver)
    with pytest.raises(KernelError, match="two kernels of the bundle are named 'add_one'"):
        write_bundle(tmp_path / "b", [(kernel, ""), (kernel, "")])


def test_tensor_maps_and_clusters_survive(driver: Driver, tmp_path: Path) -> None:
    kernels = [gpu_kernels.tma(driver), gpu_kernels.add_one(driver, cluster=(2, 1, 1), programmatic=True)]
    write_bundle(tmp_path / "b", [(kernel, "") for kernel in kernels])
    loaded = mosaic_gpu.load_bundle(tmp_path / "b")
    assert [variant for kernel in loaded.values() for variant in kernel.variants] == kernels
    x = np.random.default_rng(0).normal(size=(16, 32)).astype(np.float32)
    np.testing.assert_array_equal(loaded["tma"](x), x[4:12, 8:16])
