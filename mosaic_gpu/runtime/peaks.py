"""How fast a GPU of this machine is, by what its driver tells."""

from __future__ import annotations

from mosaic_gpu.lowering.throughput import Throughput, throughput_of
from mosaic_gpu.runtime import driver
from mosaic_gpu.runtime.devices import Device


def throughput_of_device(gpu: Device) -> Throughput:
    """The peaks of `gpu`: its own clocks, multiprocessors, memory and cache, and its architecture's rates.

    What the driver does not tell (it gives 0, as for some GPUs whose memory is the host's) is the architecture's.

    Raises UnsupportedError: an architecture that is not in the table.
    """
    cuda = driver.bindings()
    handle = driver.call("cuDeviceGet", gpu.ordinal)

    def attribute(name: str) -> int:
        which = getattr(cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(driver.call("cuDeviceGetAttribute", which, handle))

    # Clocks are in kHz, and memory moves data twice a cycle (CUDA runtime API, cudaDeviceProp).
    memory_bytes = attribute("GLOBAL_MEMORY_BUS_WIDTH") / 8
    return throughput_of(gpu.capability).of_device(
        name=gpu.name,
        multiprocessors=attribute("MULTIPROCESSOR_COUNT"),
        clock_ghz=attribute("CLOCK_RATE") / 1e6,
        dram_bytes_per_s=2 * attribute("MEMORY_CLOCK_RATE") * 1e3 * memory_bytes,
        l2_bytes=attribute("L2_CACHE_SIZE"),
    )
