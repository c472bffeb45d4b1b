"""The native sources: NVIDIA's own header agrees with ours, and the library builds without a toolkit."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu import launcher
from mosaic_gpu.cli import main
from mosaic_gpu.errors import ToolError
from mosaic_gpu.lowering.jaxpr import compat
from tests.support.stand_in import HEADERS, build_library, compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def _cuda_header() -> Path | None:
    """cuda.h, where one of NVIDIA's wheels brought it."""
    try:
        import nvidia
    except ImportError:
        return None
    return next((h for folder in nvidia.__path__ for h in sorted(Path(folder).glob("*/include/cuda.h"))), None)


def test_values_and_layouts_are_those_of_nvidias_header(tmp_path: Path) -> None:
    header = _cuda_header()
    if header is None:
        pytest.skip("no cuda.h")
    ours = (HEADERS / "cuda_driver.h").read_text()
    values = re.findall(r"\b(CU\w*_[A-Z0-9_]+) = (\d+)", ours)
    assert len(values) > 30
    checks = [f"static_assert(static_cast<int>({name}) == {value});" for name, value in values]
    checks += [
        "static_assert(sizeof(CUtensorMap) == 128 && alignof(CUtensorMap) <= 128);",
        "static_assert(sizeof(CUlaunchAttribute) == 72 && offsetof(CUlaunchAttribute, value) == 8);",
        "static_assert(sizeof(CUlaunchConfig) == 56 && offsetof(CUlaunchConfig, hStream) == 32);",
        "static_assert(offsetof(CUlaunchConfig, attrs) == 40 && offsetof(CUlaunchConfig, numAttrs) == 48);",
        "static_assert(sizeof(CUdeviceptr) == 8 && sizeof(CUdevice) == 4);",
    ]
    text = "\n".join(checks)
    for name, include in (("theirs", "cuda.h"), ("ours", "cuda_driver.h")):
        source = tmp_path / f"{name}.cc"
        source.write_text(f"#include <cstddef>\n#include <{include}>\n{text}\n")
        folders = [f"-I{HEADERS}", f"-I{header.parent}"]
        subprocess.run([str(compiler()), "-std=c++17", "-fsyntax-only", *folders, str(source)], check=True)


def test_the_library_is_built_and_holds_the_handler(tmp_path: Path) -> None:
    path = launcher.build_launcher(tmp_path)
    assert path == tmp_path / launcher.LIBRARY
    assert [p.name for p in tmp_path.iterdir()] == [launcher.LIBRARY]
    assert ctypes.CDLL(str(path)).MosaicGpuKernel is not None
    libraries = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=True).stdout
    assert "cuda" not in libraries


def test_the_handler_tells_xla_that_a_cuda_graph_may_hold_it(tmp_path: Path) -> None:
    include = str(jax.ffi.include_dir())
    probe = build_library(
        [Path(__file__).parents[1] / "support/native/traits.cc"], "libtraits.so", ("-isystem", include)
    )
    handler = ctypes.cast(ctypes.CDLL(str(launcher.build_launcher(tmp_path))).MosaicGpuKernel, ctypes.c_void_p)
    assert ctypes.CDLL(str(probe)).traits_of(handler) == 1  # XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ToolError, match=r"no C\+\+ compiler is found\n.*\n.*apt-get install g\+\+"):
        launcher.build_launcher(tmp_path)


def test_a_compiler_that_fails_is_an_error_with_its_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\necho out of tape >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(ToolError, match="cannot build the launcher\nout of tape"):
        launcher.build_launcher(tmp_path / "out")


def test_a_library_that_is_none_is_an_error_with_the_build_command(tmp_path: Path) -> None:
    wrong = tmp_path / "lib.so"
    wrong.write_bytes(b"no library")
    with pytest.raises(ToolError, match=r"cannot be loaded(.|\n)*mosaic-gpu build-launcher"):
        launcher.register_library(wrong, "MosaicGpuKernel", "a_target_of_no_use", "CUDA")


def test_jax_takes_the_library(tmp_path: Path) -> None:
    launcher.register_library(launcher.build_launcher(tmp_path), "MosaicGpuKernel", "mosaic_gpu_test_target", "CUDA")


def test_it_is_found_where_it_was_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(launcher, "_installed_folder", lambda: tmp_path)
    monkeypatch.setattr(mosaic_gpu, "__path__", [])
    assert launcher.find_launcher() is None
    assert main(["build-launcher"]) == 0
    assert launcher.find_launcher() == tmp_path / "native" / launcher.LIBRARY


def test_a_kernel_that_is_to_run_on_a_gpu_without_it_is_an_error_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def double(x: Any) -> Any:
        def kernel(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] * 2

        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(kernel, out, compiler_params=mosaic_gpu.CompilerParams())(x)

    monkeypatch.setattr(launcher, "find_launcher", lambda: None)
    monkeypatch.setattr(launcher, "_registered", set())
    jax.jit(double).trace(np.ones(8, np.float32)).lower(lowering_platforms=("cuda",))  # for another machine: fine
    monkeypatch.setattr(compat, "backend_platform", lambda ctx: "cuda")
    with pytest.raises(ToolError, match=r"kernels inside jax\.jit need the launcher"):
        jax.jit(double).trace(np.ones(9, np.float32)).lower(lowering_platforms=("cuda",))


def test_where_it_is_not_built_the_error_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "find_launcher", lambda: None)
    monkeypatch.setattr(launcher, "_registered", set())
    with pytest.raises(ToolError, match=r"the launcher, a small native library that is not built\n.*build-launcher"):
        launcher.register_launcher()
