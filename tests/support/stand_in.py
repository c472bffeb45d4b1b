"""A driver without a GPU: builds the stand-in for libcuda.so.1, and runs what is launched on the simulator.

    driver = install()          # from now on this process's libcuda.so.1 is the stand-in
    driver.add(cubin, ptx)      # the simulator runs `ptx` where `cubin` is launched

What it models is said in fake_driver/fake.h.  A process cannot go back: tests use it in processes of their own.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mosaic_gpu import simulator
from mosaic_gpu.errors import SimulationError
from mosaic_gpu.lowering.resources import read_resources
from mosaic_gpu.simulator.tensor_map import MAP_BYTES, TensorMap

VARIABLE = "MOSAIC_GPU_TEST_STAND_IN"
"""Set in processes whose tests run on the stand-in."""

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "fake_driver"
HEADERS = ROOT / "mosaic_gpu" / "native"

_MAP_MAGIC, _MAP_FORMAT = b"standin!", "<8sQ4B5I5Q4Q"
_INVALID_IMAGE, _LAUNCH_FAILED = 200, 719
_DESCRIBE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t
)
_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_uint * 9),
    ctypes.c_uint,
    ctypes.POINTER(ctypes.c_void_p),
)


def compiler() -> str | None:
    """The C++ compiler of this machine; None where there is none."""
    return next(
        (found for name in (os.environ.get("CXX"), "c++", "g++", "clang++") if name and (found := shutil.which(name))),
        None,
    )


def build_library(sources: Sequence[Path], name: str, flags: Sequence[str] = ()) -> Path:
    """Compiles C++ sources to `build/native/DIGEST/NAME`, unless that is there; returns the path."""
    program = compiler()
    assert program is not None
    command = [program, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *flags]
    digest = hashlib.sha256(" ".join(command).encode())
    for path in sorted([*sources, *HEADERS.glob("*.h"), *SOURCES.glob("*.h")]):
        digest.update(path.read_bytes())
    library = ROOT / "build" / "native" / digest.hexdigest()[:16] / name
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        aside = library.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, "-o", str(aside), *map(str, sources), "-ldl"], check=True)
        os.replace(aside, library)
    return library


def build_driver() -> Path:
    """The stand-in, compiled."""
    return build_library(
        sorted(SOURCES.glob("*.cc")), "libcuda.so.1", (f"-I{HEADERS}", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic")
    )


@dataclass
class _Image:
    """What is known of a cubin: its code, and how many bytes lie behind each pointer of its entry (None: unknown)."""

    ptx: str
    registers: int
    shared_bytes: int
    sizes: tuple[int, ...] | None


@dataclass
class Driver:
    """The stand-in in this process.

    Attributes:
      errors: the simulator's reports of launches that failed, oldest first.
      launches: (entry, grid, block, cluster, dynamic shared bytes) of each launch that ran.
    """

    library: Any
    errors: list[str] = field(default_factory=list)
    launches: list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...], int]] = field(default_factory=list)
    _images: dict[str, _Image] = field(default_factory=dict)
    _callbacks: list[Any] = field(default_factory=list)

    def add(self, cubin: bytes, ptx: str, sizes: Sequence[int] | None = None) -> None:
        """Tells what to run for `cubin`.

        `sizes`: bytes behind each pointer of the entry; needed for memory that the stand-in did not allocate.
        """
        resources = read_resources(cubin)
        image = _Image(ptx, resources.registers, 0, None if sizes is None else tuple(sizes))
        self._images[hashlib.sha256(cubin).hexdigest()] = image

    def add_kernel(self, compiled: Any) -> None:
        """Tells what to run for a `CompiledKernel`."""
        program = compiled._compilation.program
        arrays = (*program.operands, *program.results)
        sizes = [int(np.prod(a.shape, dtype=np.int64)) * a.memory_dtype.itemsize for a in arrays]
        self.add(compiled.cubin, compiled.ptx, sizes)

    def fail(self, function: str, status: int, skip: int = 0) -> None:
        """The call of `function` (without a version) after `skip` good ones answers `status`."""
        self.library.fake_fail(function.encode(), status, skip)

    def heal(self) -> None:
        """Contexts that a fault lost work again, and no failure is planned."""
        self.library.fake_heal()

    def count(self, what: str) -> int:
        """How many "modules", "streams", "events", "graphs", "allocations" live; how often a context is "retained";
        calls of a function."""
        return int(self.library.fake_count(what.encode()))

    def run_nothing(self) -> None:
        """From now on kernels that are launched do nothing, in no time: for measuring what a launch takes."""
        self.library.fake_install(self._callbacks[0], None)

    def configure(
        self, *, devices: int = 1, capability: tuple[int, int] = (9, 0), multiprocessors: int = 132,
        memory_bytes: int = 1 << 30,
    ) -> None:  # fmt: skip
        """Other GPUs than one H100 with 1 GiB."""
        self.library.fake_configure(devices, *capability, multiprocessors, ctypes.c_size_t(memory_bytes))

    def _describe(self, image: int, size: int, answer: Any, capacity: int) -> int:
        data = ctypes.string_at(image, size)
        key = hashlib.sha256(data).hexdigest()
        if key not in self._images and data[:4] != b"\x7fELF":  # PTX: the driver compiles it itself
            self._images[key] = _Image(data.decode(), 32, 0, None)
        if key not in self._images:
            return _INVALID_IMAGE
        known = self._images[key]
        module = simulator.load(known.ptx)
        target = known.ptx.split(".target", 1)[1].split()[0].strip(",").removeprefix("sm_").rstrip("af")
        lines = [f"key {key}", f"target {target[:-1]} {target[-1]}"]
        for name in module.entries:
            entry = module.program.functions[name]
            limit = entry.directives.get("reqntid") or entry.directives.get("maxntid") or [1024]
            threads = int(np.prod([int(n) for n in np.atleast_1d(limit)]))
            sizes = " ".join(str(p.size) for p in entry.params)
            lines.append(f"kernel {name} {known.registers} {known.shared_bytes} {threads} {sizes}")
        text = "\n".join(lines).encode() + b"\0"
        if len(text) > capacity:
            return _INVALID_IMAGE
        ctypes.memmove(answer, text, len(text))
        return 0

    def _run(self, key: bytes, entry: bytes, dims: Any, shared: int, params: Any) -> int:
        image, numbers = self._images[key.decode()], tuple(dims.contents)
        grid, block, cluster = numbers[:3], numbers[3:6], numbers[6:]
        module = simulator.load(image.ptx)
        try:
            arguments = self._arguments(image, module.program.functions[entry.decode()].params, params)
            module.launch(entry.decode(), grid, block, arguments, cluster=cluster, shared_bytes=shared)
        except SimulationError as error:
            self.errors.append(str(error))
            return _LAUNCH_FAILED
        self.launches.append((entry.decode(), grid, block, cluster, shared))
        return 0

    def _arguments(self, image: _Image, variables: Sequence[Any], params: Any) -> list[Any]:
        """The simulator's arguments for the driver's: arrays over the memory that pointers and maps name."""
        raw = [ctypes.string_at(params[i], v.size) for i, v in enumerate(variables)]
        arrays: dict[int, Any] = {}
        pointers = 0
        for i, data in enumerate(raw):
            if len(data) == 8:
                address = int.from_bytes(data, "little")
                arrays[i] = _memory(address, None if image.sizes is None else image.sizes[pointers], self.library)
                pointers += 1
        return [arrays[i] if i in arrays else _argument(data, arrays) for i, data in enumerate(raw)]


def _argument(data: bytes, arrays: dict[int, Any]) -> Any:
    if len(data) != MAP_BYTES:
        return data
    magic, address, rank, element_bytes, swizzle, _, *rest = struct.unpack_from(_MAP_FORMAT, data)
    if magic != _MAP_MAGIC:
        raise SimulationError("the driver did not encode this tensor map", got=data[:8].hex())
    box, dims, strides = tuple(rest[:rank]), tuple(rest[5 : 5 + rank]), tuple(rest[10 : 10 + rank - 1])
    for array in arrays.values():
        if array.size and array.ctypes.data == address:
            return TensorMap(array, element_bytes, dims, strides, box, swizzle)
    raise SimulationError("a tensor map names memory that is no argument of the launch")


def _memory(address: int, size: int | None, library: Any) -> Any:
    """The bytes at `address` as an array: `size` of them, or to the end of the allocation."""
    if address == 0 or size == 0:
        return np.zeros(0, np.uint8)
    if size is None:
        size = int(library.fake_bytes_behind(ctypes.c_ulonglong(address)))
        if size == 0:
            raise SimulationError(f"address {address:#x} is not in device memory")
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)


@cache
def install() -> Driver:
    """Makes the stand-in this process's driver."""
    library = ctypes.CDLL(str(build_driver()), mode=ctypes.RTLD_GLOBAL)
    library.fake_count.restype = ctypes.c_long
    library.fake_bytes_behind.restype = ctypes.c_size_t
    driver = Driver(library)
    driver._callbacks = [_DESCRIBE(driver._describe), _LAUNCH(driver._run)]
    library.fake_install(*driver._callbacks)
    return driver


def build_host_launcher() -> Path:
    """The launcher with the handler `MosaicGpuKernelOnHost` for XLA's CPU client; `install` comes first."""
    import jax

    sources = [*sorted(HEADERS.glob("*.cc")), Path(__file__).parent / "native" / "host_handler.cc"]
    return build_library(sources, "libhost_launcher.so", (f"-I{HEADERS}", "-isystem", str(jax.ffi.include_dir())))
