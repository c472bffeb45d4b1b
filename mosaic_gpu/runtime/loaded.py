"""Loading a kernel into a GPU's context, and launching it with addresses."""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from mosaic_gpu.errors import KernelError, MosaicGpuError, UnsupportedError
from mosaic_gpu.lowering.targets import parse_target
from mosaic_gpu.runtime import driver
from mosaic_gpu.runtime.devices import Device
from mosaic_gpu.runtime.gpu_kernel import PERSISTENT, GpuKernel
from mosaic_gpu.runtime.map_encoder import MapEncoder, map_memory

_SHARED_WITHOUT_OPT_IN = 48 * 1024
_PORTABLE_CLUSTER = 8


class _Parameters(threading.local):
    """The memory of a launch's parameters, one for each thread: the driver reads it before the launch returns.

    Attributes:
      values: the pointers.
      map_addresses: where the tensor maps go.
      address: of the addresses of all of them, as the driver takes it.
    """

    def __init__(self, pointers: int, maps: int) -> None:
        self.values = (ctypes.c_uint64 * pointers)()
        self._maps = [map_memory() for _ in range(maps)]
        self.map_addresses = [ctypes.addressof(m) for m in self._maps]
        first = ctypes.addressof(self.values)
        addresses = [first + 8 * i for i in range(pointers)] + self.map_addresses
        self._addresses = (ctypes.c_void_p * len(addresses))(*addresses)
        self.address = ctypes.addressof(self._addresses)


class LoadedKernel:
    """A kernel in the context of one GPU; `launch` may be called from any thread.

    It stays loaded until `unload`: a graph that was captured, or work in flight, may need it after this object.
    """

    def __init__(self, kernel: GpuKernel, device: Device) -> None:
        """Loads the cubin.

        Raises:
          UnsupportedError: the GPU does not run code of the kernel's target.
          KernelError: the kernel takes more shared memory than the GPU has.
          ToolError: the driver refuses.
        """
        check_target(kernel, device)
        self.kernel = kernel
        self.device = device
        self._about = f"kernel {kernel.name!r}"
        with device.active(), driver.relaxed_capture():
            self.module = driver.call("cuModuleLoadData", kernel.cubin, about=self._about)
            try:
                self.function = driver.call(
                    "cuModuleGetFunction", self.module, kernel.entry.encode(), about=self._about
                )
                self._allow_shared_bytes()
                self.grid = self._full_grid()
                self._attributes = self._launch_attributes()
            except MosaicGpuError:
                driver.bindings().cuModuleUnload(self.module)
                raise
        self._encoders = [MapEncoder(facts, self._about) for facts in kernel.tensor_maps]
        self._sizes = (*self.grid, *kernel.block, kernel.shared_bytes)
        self._memory = _Parameters(
            len(kernel.operands) + len(kernel.symbols) + len(kernel.results), len(self._encoders)
        )

    def _allow_shared_bytes(self) -> None:
        cuda, wanted = driver.bindings(), self.kernel.shared_bytes
        attributes = cuda.CUfunction_attribute
        static = driver.call("cuFuncGetAttribute", attributes.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, self.function)
        if wanted > self.device.max_shared_bytes:
            raise KernelError(
                f"kernel {self.kernel.name!r} takes more shared memory than a block of {self.device.name} may have",
                got=f"{wanted} bytes",
                expected=f"at most {self.device.max_shared_bytes}",
            )
        if wanted + static > _SHARED_WITHOUT_OPT_IN:
            limit = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.call("cuFuncSetAttribute", self.function, limit, wanted, about=self._about)

    def _full_grid(self) -> tuple[int, int, int]:
        """The kernel's grid; of a kernel that takes any number of blocks, as many as run at once."""
        kernel = self.kernel
        if kernel.grid[0] != PERSISTENT:
            return kernel.grid
        name, threads = (
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            kernel.block[0] * kernel.block[1] * kernel.block[2],
        )
        blocks = driver.call(name, self.function, threads, kernel.shared_bytes, about=self._about)
        return (max(1, blocks) * self.device.multiprocessors, 1, 1)

    def _launch_attributes(self) -> list[Any]:
        cuda, cluster = driver.bindings(), self.kernel.cluster
        attributes = []
        size = cluster[0] * cluster[1] * cluster[2]
        if size > 1:
            if size > _PORTABLE_CLUSTER:
                allowed = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
                driver.call("cuFuncSetAttribute", self.function, allowed, 1, about=self._about)
            attribute = cuda.CUlaunchAttribute()
            attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            dims = attribute.value.clusterDim
            dims.x, dims.y, dims.z = cluster
            attributes.append(attribute)
        if self.kernel.programmatic:
            attribute = cuda.CUlaunchAttribute()
            attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            attributes.append(attribute)
        return attributes

    def launch(self, pointers: Sequence[int], stream: int) -> None:
        """Enqueues the kernel on `stream`; the device's context is current.

        `pointers`: one for each pointer among the kernel's parameters (see `GpuKernel`).

        Raises ToolError where the driver refuses.
        """
        if 0 in self.grid:
            return
        memory = self._memory
        memory.values[:] = list(pointers)
        for encoder, place in zip(self._encoders, memory.map_addresses, strict=True):
            encoder(pointers[encoder.argument], place)
        if self._attributes:
            self._launch_extended(memory.address, stream)
        else:
            driver.call("cuLaunchKernel", self.function, *self._sizes, stream, memory.address, 0, about=self._about)

    def _launch_extended(self, params: int, stream: int) -> None:
        config = driver.bindings().CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = self.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = self.kernel.block
        config.sharedMemBytes = self.kernel.shared_bytes
        config.hStream = stream
        config.attrs = self._attributes
        config.numAttrs = len(self._attributes)
        driver.call("cuLaunchKernelEx", config, self.function, params, 0, about=self._about)

    def unload(self) -> None:
        """Gives the code back to the driver, after all work of the GPU."""
        with self.device.active():
            driver.call("cuModuleUnload", self.module, about=self._about)


def runs_on(target: str, capability: tuple[int, int]) -> bool:
    """Whether a GPU of this compute capability runs a cubin of `target`.

    A cubin runs on GPUs of its major version with at least its minor one, architecture-specific code ("a") on its very
    own (CUDA C++ Programming Guide, "Binary Compatibility").
    """
    major, minor = parse_target(target).capability
    if target.endswith("a"):
        return capability == (major, minor)
    return capability[0] == major and capability[1] >= minor


def check_target(kernel: GpuKernel, device: Device) -> None:
    """Raises UnsupportedError where `device` does not run code of the kernel's target."""
    if runs_on(kernel.target, device.capability):
        return
    raise UnsupportedError(
        f"kernel {kernel.name!r} is compiled for another GPU than {device.name}",
        got=f"a GPU of compute capability {device.capability[0]}.{device.capability[1]}",
        expected=f"one that runs {kernel.target}",
        hint="compile it with the target of this GPU (the default, where the GPU is at hand)",
    )


class _Loaded:
    """Kernels by GPU and content, each with the number of those who use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kernels: dict[tuple[int, GpuKernel], LoadedKernel] = {}
        self._users: Counter[tuple[int, GpuKernel]] = Counter()

    def take(self, kernel: GpuKernel, device: Device) -> LoadedKernel:
        """The kernel on `device`, loaded when it is first asked for, whichever thread asks, until all gave it back."""
        key = (device.ordinal, kernel)
        with self._lock:
            if key not in self._kernels:
                self._kernels[key] = LoadedKernel(kernel, device)
            self._users[key] += 1
            return self._kernels[key]

    def give_back(self, loaded: LoadedKernel) -> None:
        """One user less; the last one unloads it: no graph that holds the kernel may be launched again."""
        key = (loaded.device.ordinal, loaded.kernel)
        with self._lock:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
                self._kernels.pop(key).unload()


_LOADED = _Loaded()
take, give_back = _LOADED.take, _LOADED.give_back
