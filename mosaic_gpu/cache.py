"""Compiled code on disk, shared by all processes of a user.

Two kinds of entries: PTX, keyed by the kernel in the dialect (its locations included), the options and the
compiler; and cubins, keyed by the PTX, the target and the assembler.  An entry that is missing, torn or damaged
is made anew; nothing here can make a compilation fail.

The environment is read when the cache is used:
  MOSAIC_GPU_CACHE_DIR   the folder; empty = no cache; unset = `mosaic_gpu` in $XDG_CACHE_HOME or ~/.cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosaic_gpu.lowering.options import LoweringOptions

if TYPE_CHECKING:
    from mosaic_gpu.lowering.artifacts import Cubin, Ptx
    from mosaic_gpu.lowering.kernel_call import KernelCall
    from mosaic_gpu.lowering.pipeline import Observer

VARIABLE = "MOSAIC_GPU_CACHE_DIR"

_MAGIC = b"mosaic_gpu cache 1\n"
_DIGEST_BYTES = hashlib.sha256().digest_size
_SHARDS = 256
_ABANDONED_SECONDS = 3600.0


@dataclass(frozen=True)
class DiskCache:
    """A folder of entries, each a file of its own that holds a checksum and the data.

    Files come into being whole (written aside, then renamed), so readers and writers in any number of processes
    need no lock, and a process that is killed leaves at most a file aside, which a later one clears away.

    Attributes:
      folder: made when first needed.
      max_bytes: the entries together stay near or below this; the least recently used go first.
    """

    folder: Path
    max_bytes: int = 1 << 30

    def load(self, key: str) -> bytes | None:
        """The data stored under `key`, as it was stored; None where there is none that is whole."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + _DIGEST_BYTES
        data = content[start:]
        if content[:start] != _MAGIC + hashlib.sha256(data).digest():
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # recently used
        return data

    def store(self, key: str, data: bytes) -> None:
        """Keeps `data` under `key`; where the disk does not take it, nothing is kept."""
        path = self._path(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_whole(path, _MAGIC + hashlib.sha256(data).digest() + data)
            self._evict(path)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]

    def _evict(self, newest: Path) -> None:
        """Holds the shard of `newest` within its part of `max_bytes`, and clears abandoned files away.

        A shard is one of 256 folders, chosen by the key's first digits: few enough files to look at on each store.
        """
        files = [(entry.stat(), entry.path) for entry in os.scandir(newest.parent) if entry.is_file()]
        total = sum(status.st_size for status, _ in files)
        for status, path in sorted(files, key=lambda f: f[0].st_mtime):
            abandoned = path.endswith(".tmp") and time.time() - status.st_mtime > _ABANDONED_SECONDS
            if abandoned or (total > self.max_bytes // _SHARDS and path != str(newest)):
                with contextlib.suppress(OSError):  # another process was quicker
                    os.unlink(path)
                total -= status.st_size


def _write_whole(path: Path, content: bytes) -> None:
    """Puts a file with `content` at `path` in one step."""
    handle, aside = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise


def default_cache() -> DiskCache | None:
    """The cache that the environment asks for; None where it asks for none."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return DiskCache(Path(named).expanduser()) if named else None
    root = os.environ.get("XDG_CACHE_HOME") or str(Path("~", ".cache").expanduser())
    return DiskCache(Path(root, "mosaic_gpu"))


def compile_ptx(call: KernelCall, observer: Observer | None = None) -> Ptx:
    """The PTX of `call`, taken from the default cache or compiled and kept there.

    `observer` is told of the stages that ran: with a hit, "dialect" alone.
    """
    from mosaic_gpu.lowering.pipeline import compilation_context, run_stages

    with compilation_context():
        module = run_stages(call, call.options, stop="dialect", observer=observer)
        return _ptx_of(module_text(module), lambda: module, call.options, observer)


def compile_ptx_text(text: str, options: LoweringOptions, observer: Observer | None = None) -> Ptx:
    """`compile_ptx` of a kernel in the dialect, as `module_text` prints it."""
    from mosaic_gpu.lowering.diagnostics import parse_module
    from mosaic_gpu.lowering.pipeline import compilation_context

    with compilation_context():
        return _ptx_of(text, lambda: parse_module(text, "the kernel"), options, observer)


def _ptx_of(text: str, module: Callable[[], Any], options: LoweringOptions, observer: Observer | None) -> Ptx:
    from mosaic_gpu.lowering.pipeline import run_stages

    found = find_ptx(text, options)
    if found is not None:
        return found
    ptx: Ptx = run_stages(module(), options, start="dialect", stop="ptx", observer=observer)
    store = default_cache()
    if store is not None:
        store.store(_ptx_key(text, options), ptx.text.encode())
    return ptx


def find_ptx(text: str, options: LoweringOptions) -> Ptx | None:
    """The PTX of a kernel in the dialect, as `module_text` prints it, where the default cache holds it."""
    from mosaic_gpu.lowering.artifacts import read_ptx

    store = default_cache()
    found = None if store is None else store.load(_ptx_key(text, options))
    return None if found is None else read_ptx(found.decode())


def module_text(module: Any) -> str:
    """A module as text that loses nothing, its locations included."""
    return str(module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True))


def compile_cubin(ptx: Ptx, options: LoweringOptions, observer: Observer | None = None) -> Cubin:
    """The cubin of `ptx`, taken from the default cache or assembled and kept there."""
    from mosaic_gpu.lowering.pipeline import run_stages

    found = find_cubin(ptx, options)
    if found is not None:
        return found
    cubin: Cubin = run_stages(ptx, options, start="ptx", stop="cubin", observer=observer)
    store = default_cache()
    if store is not None:
        facts = json.dumps(dataclasses.asdict(cubin.resources)).encode()
        store.store(_cubin_key(ptx, options), facts + b"\n" + cubin.data)
    return cubin


def find_cubin(ptx: Ptx, options: LoweringOptions) -> Cubin | None:
    """The cubin of `ptx` where the default cache holds it."""
    store = default_cache()
    found = None if store is None else store.load(_cubin_key(ptx, options))
    return None if found is None else _unpack_cubin(found, ptx)


def _unpack_cubin(data: bytes, ptx: Ptx) -> Cubin:
    from mosaic_gpu.lowering.artifacts import Cubin
    from mosaic_gpu.lowering.resources import Resources

    facts, _, image = data.partition(b"\n")
    return Cubin(image, Resources(**json.loads(facts)), ptx.launch, ptx.text)


def _ptx_key(text: str, options: LoweringOptions) -> str:
    return key_of("ptx", text, repr(options), _compiler_version())


def _cubin_key(ptx: Ptx, options: LoweringOptions) -> str:
    from mosaic_gpu.lowering.assemblers import assembler_version

    return key_of("cubin", ptx.text, options.target, assembler_version(), _sources_digest())


def key_of(*parts: str) -> str:
    """A name for the tuple `parts`: 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _compiler_version() -> str:
    """What decides the PTX besides the kernel and the options."""
    packages = ("torch-mlir", "llvmlite")
    versions = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    return " ".join([*versions, _libdevice_digest(), _sources_digest()])


@cache
def _libdevice_digest() -> str:
    from mosaic_gpu.lowering.toolpaths import find_libdevice

    path = find_libdevice()
    return "no libdevice" if path is None else hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def _sources_digest() -> str:
    """One hash over the compiler's own sources: an edit of any of them makes all entries stale."""
    from mosaic_gpu import dialect, lowering

    digest = hashlib.sha256()
    for package in (dialect, lowering):
        root = Path(str(package.__file__)).parent
        for path in sorted(root.rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
