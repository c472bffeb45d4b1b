"""The disk cache: whole or nothing, whatever other processes do and however they end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import pytest
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu import cache
from mosaic_gpu.cache import DiskCache, compile_cubin, compile_ptx, default_cache
from mosaic_gpu.lowering.artifacts import Ptx
from mosaic_gpu.lowering.diagnostics import parse_module
from mosaic_gpu.lowering.kernel_call import KernelCall
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.pipeline import compilation_context, run_stages
from tests.support.thread_ir import SINES

KEY = "ab" + "0" * 62
OPTIONS = LoweringOptions()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_what_is_stored_is_loaded(tmp_path: Path) -> None:
    store = DiskCache(tmp_path / "not" / "there" / "yet")
    assert store.load(KEY) is None
    store.store(KEY, b"\x00code\n")
    assert store.load(KEY) == b"\x00code\n"
    store.store(KEY, b"")
    assert store.load(KEY) == b""


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "append"])
def test_a_damaged_entry_is_absent_and_can_be_stored_again(damage: str, tmp_path: Path) -> None:
    store = DiskCache(tmp_path)
    store.store(KEY, b"code" * 100)
    (path,) = _files(tmp_path)
    content = path.read_bytes()
    flipped = content[:200] + bytes([content[200] ^ 1]) + content[201:]
    path.write_bytes({"truncate": content[:-7], "flip": flipped, "empty": b"", "append": content + b"x"}[damage])
    assert store.load(KEY) is None
    store.store(KEY, b"anew")
    assert store.load(KEY) == b"anew"


def test_a_folder_that_cannot_be_written_loses_the_entry_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = DiskCache(tmp_path / "file")
    store.store(KEY, b"code")
    assert store.load(KEY) is None


def test_the_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    store = DiskCache(tmp_path, max_bytes=256 * 3500)  # 3500 bytes a shard: three entries of 1 kB
    keys = [f"ab{n:062}" for n in range(4)]
    for age, key in zip((30, 20, 10), keys[:3], strict=True):
        store.store(key, b"x" * 1000)
        os.utime(tmp_path / "ab" / key[2:], (time.time() - age,) * 2)
    assert store.load(keys[0]) is not None  # the oldest becomes the newest
    store.store(keys[3], b"x" * 1000)
    assert [store.load(key) is not None for key in keys] == [True, False, True, True]


def test_an_entry_larger_than_the_limit_is_kept_until_the_next_one(tmp_path: Path) -> None:
    store = DiskCache(tmp_path, max_bytes=256)
    store.store(KEY, b"x" * 1000)
    assert store.load(KEY) == b"x" * 1000
    store.store("ab" + "1" * 62, b"y")
    assert store.load(KEY) is None


def test_what_a_killed_process_left_aside_is_cleared_away_in_time(tmp_path: Path) -> None:
    store = DiskCache(tmp_path)
    store.store(KEY, b"code")
    fresh, old = tmp_path / "ab" / "fresh.tmp", tmp_path / "ab" / "old.tmp"
    for path in (fresh, old):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    store.store("ab" + "1" * 62, b"more")
    assert fresh.exists()
    assert not old.exists()
    assert store.load(KEY) == b"code"


_WRITER = """
import itertools, sys
from pathlib import Path
from mosaic_gpu.cache import DiskCache
store, key = DiskCache(Path(sys.argv[1])), sys.argv[2]
print("ready", flush=True)
for n in itertools.count():
    store.store(key, bytes([n % 256]) * 100_000)
"""


def test_readers_never_see_half_an_entry_while_writers_write_and_are_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WRITER, str(tmp_path), KEY]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    store, seen = DiskCache(tmp_path), set()
    end = time.monotonic() + 1.0
    path = tmp_path / "ab" / KEY[2:]
    while time.monotonic() < end:
        if path.exists():
            data = store.load(KEY)
            assert data is not None
            assert len(data) == 100_000
            assert len(set(data)) == 1
            seen.add(data[0])
    for writer in writers:
        writer.kill()
        writer.communicate()
    assert len(seen) > 1
    assert store.load(KEY) is not None


def test_the_environment_of_the_moment_says_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MOSAIC_GPU_CACHE_DIR", str(tmp_path / "mine"))
    assert default_cache() == DiskCache(tmp_path / "mine")
    monkeypatch.delenv("MOSAIC_GPU_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache() == DiskCache(tmp_path / "xdg" / "mosaic_gpu")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_cache() == DiskCache(tmp_path / "home" / ".cache" / "mosaic_gpu")
    monkeypatch.setenv("MOSAIC_GPU_CACHE_DIR", "")
    assert default_cache() is None


@pytest.fixture
def ptx() -> Ptx:
    with compilation_context():
        made: Ptx = run_stages(parse_module(SINES, "sines"), OPTIONS, start="nvvm", stop="ptx")
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOSAIC_GPU_CACHE_DIR", str(tmp_path))
    return tmp_path


def _stages_run(ptx: Ptx, options: LoweringOptions = OPTIONS) -> tuple[Any, list[str]]:
    ran: list[str] = []
    cubin = compile_cubin(ptx, options, lambda stage, artifact, seconds: ran.append(stage.name))
    return cubin, ran


def test_a_cubin_is_assembled_once_and_comes_back_the_same(ptx: Ptx, folder: Path) -> None:
    first, ran = _stages_run(ptx)
    assert ran == ["cubin"]
    again, ran = _stages_run(ptx)
    assert ran == []
    assert again == first


def test_a_damaged_cubin_is_assembled_again(ptx: Ptx, folder: Path) -> None:
    first, _ = _stages_run(ptx)
    (path,) = _files(folder)
    path.write_bytes(path.read_bytes()[:-100])
    again, ran = _stages_run(ptx)
    assert (again, ran) == (first, ["cubin"])
    assert _stages_run(ptx)[1] == []


@pytest.mark.usefixtures("folder")
def test_everything_that_matters_is_in_the_key(ptx: Ptx, monkeypatch: pytest.MonkeyPatch) -> None:
    _stages_run(ptx)
    assert _stages_run(Ptx(ptx.text + "\n", ptx.launch))[1] == ["cubin"]
    monkeypatch.setattr(cache, "_sources_digest", lambda: "another compiler")
    assert _stages_run(ptx)[1] == ["cubin"]
    monkeypatch.setattr("mosaic_gpu.lowering.assemblers.assembler_version", lambda: "another assembler")
    assert _stages_run(ptx)[1] == ["cubin"]
    assert _stages_run(ptx)[1] == []


def test_parts_of_a_key_do_not_run_together() -> None:
    assert cache.key_of("ab", "c") != cache.key_of("a", "bc")


def test_with_the_cache_off_nothing_is_written(ptx: Ptx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOSAIC_GPU_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _stages_run(ptx)[1] == ["cubin"]
    assert _stages_run(ptx)[1] == ["cubin"]
    assert _files(tmp_path) == []


def _call(num_warps: int | None = None, target: str = "sm_90a", scale: float = 2.0) -> KernelCall:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * scale

    x = jax.ShapeDtypeStruct((4, 100), "float32")
    params = mosaic_gpu.CompilerParams(num_warps=num_warps, target=target)
    (call,) = mosaic_gpu.trace_calls(pl.pallas_call(body, out_shape=x, compiler_params=params), x)
    return call


def _ptx_stages_run(call: KernelCall) -> tuple[Ptx, list[str]]:
    ran: list[str] = []
    ptx = compile_ptx(call, lambda stage, artifact, seconds: ran.append(stage.name))
    return ptx, ran


@pytest.mark.usefixtures("folder")
def test_a_kernel_traced_anew_is_found_after_its_first_stage() -> None:
    first, ran = _ptx_stages_run(_call())
    assert ran == ["dialect", "layouts", "pipelined", "nvvm", "llvm", "ptx"]
    again, ran = _ptx_stages_run(_call())
    assert ran == ["dialect"]
    assert again == first


@pytest.mark.usefixtures("folder")
def test_options_target_and_constants_make_another_kernel() -> None:
    calls = [_call(), _call(num_warps=8), _call(target="sm_80"), _call(scale=3.0)]
    for call in calls:
        assert len(_ptx_stages_run(call)[1]) > 1
    assert [_ptx_stages_run(call)[1] for call in calls] == [["dialect"]] * 4


def test_processes_that_compile_one_kernel_at_once_all_get_it(tmp_path: Path) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text(_PROCESS)
    environment = {**os.environ, "MOSAIC_GPU_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, str(kernel)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) for _ in range(3)]
    outputs = {process.communicate()[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(outputs) == 1
    assert b".entry" in outputs.pop()


_PROCESS = """
import jax
from jax.experimental import pallas as pl
import mosaic_gpu

def body(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1

x = jax.ShapeDtypeStruct((64,), "float32")
k = mosaic_gpu.compile(pl.pallas_call(body, out_shape=x, compiler_params=mosaic_gpu.CompilerParams()), x)
assert k.cubin[:4] == b"\\x7fELF"
print(k.ptx)
"""
