"""How fast the GPUs of each architecture are: the peaks that a kernel's time is compared with.

Each entry is one common GPU of its architecture, the one whose multiprocessors `targets.py` counts.  Rates of
arithmetic are a multiprocessor's for one clock cycle.  They are the CUDA C++ Programming Guide's ("Arithmetic
Instructions", the table of throughput) and, for the tensor cores, the peak that NVIDIA states for the GPU, divided by
its multiprocessors and its boost clock.  For the H100 SXM and half precision:

    989.4e12 flops/s / (132 multiprocessors * 1.83e9 cycles/s) = 4096 flops a cycle

Peaks are of dense matrices.  A multiply-add is two flops.  The clock is the boost clock; under a long heavy load a GPU
runs slower.  What no vendor states is marked as assumed in the entry's source.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from mosaic_gpu.lowering.targets import Target, parse_target


@dataclass(frozen=True)
class Throughput:
    """The peaks of one GPU.

    Attributes:
      gpu: its name.
      source: where the numbers are from.
      multiprocessors: how many it has.
      clock_ghz: boost clock of the multiprocessors.
      tensor: flops (of integers: operations) of the tensor cores, of one multiprocessor in one cycle, by the kind of
        the operands: "f16", "bf16", "tf32", "f8", "i8", "f64".  A kind that they do not take is absent.
      mma_fraction: the part of these that `mma.sync` reaches; what is newer (wgmma) reaches all.
      fp32, fp64, int32: results of additions or multiply-adds, of one multiprocessor in one cycle.
      special: the same of reciprocal, square root, exp2, log2, sine and so on.
      issue: instructions of a whole warp that one multiprocessor starts in one cycle.
      dram_bytes_per_s: of the GPU's memory.
      l2_bytes_per_s: of reads that hit the L2 cache, the whole GPU together.
      l2_bytes: size of the L2 cache.
    """

    gpu: str
    source: str
    multiprocessors: int
    clock_ghz: float
    tensor: Mapping[str, int] = field(hash=False)
    mma_fraction: float
    fp32: int
    fp64: int
    dram_bytes_per_s: float
    l2_bytes_per_s: float
    l2_bytes: int
    int32: int = 64
    special: int = 16
    issue: int = 4

    @property
    def cycles_per_s(self) -> float:
        """Clock cycles in a second."""
        return self.clock_ghz * 1e9

    def tensor_flops_per_s(self, kind: str) -> float:
        """The peak of all tensor cores for operands of `kind`; 0 where they do not take them."""
        return self.tensor.get(kind, 0) * self.multiprocessors * self.cycles_per_s

    @property
    def fp32_flops_per_s(self) -> float:
        """The peak of float32 multiply-adds outside of the tensor cores, two flops each."""
        return 2 * self.fp32 * self.multiprocessors * self.cycles_per_s

    def of_device(
        self, *, name: str, multiprocessors: int, clock_ghz: float, dram_bytes_per_s: float, l2_bytes: int
    ) -> Throughput:
        """The peaks of another GPU of the architecture; a number that is 0 is not known, and stays."""
        clock = clock_ghz or self.clock_ghz
        return dataclasses.replace(
            self,
            gpu=name,
            multiprocessors=multiprocessors or self.multiprocessors,
            clock_ghz=clock,
            dram_bytes_per_s=dram_bytes_per_s or self.dram_bytes_per_s,
            l2_bytes_per_s=self.l2_bytes_per_s * clock / self.clock_ghz,
            l2_bytes=l2_bytes or self.l2_bytes,
        )


def throughput_of(target: str | tuple[int, int] | Target) -> Throughput:
    """The peaks of the common GPU of an architecture, named as `parse_target` takes it.

    Raises KernelError, UnsupportedError: there is no such target.
    """
    return _TABLE[parse_target(target).capability]


def _rates(**flops: int) -> Mapping[str, int]:
    """`tensor` of a GPU whose tensor cores are as fast for bfloat16 as for float16."""
    return MappingProxyType({**flops, "bf16": flops["f16"]})


_GUIDE = "CUDA C++ Programming Guide, Arithmetic Instructions"
_MIB = 1 << 20

_A100 = Throughput(
    "NVIDIA A100 SXM 80GB",
    f"NVIDIA A100 Tensor Core GPU Architecture (L2: 5120 bytes a cycle); A100 80GB data sheet; {_GUIDE}",
    multiprocessors=108, clock_ghz=1.41, tensor=_rates(f16=2048, tf32=1024, i8=4096, f64=128), mma_fraction=1.0,
    fp32=64, fp64=32, dram_bytes_per_s=2.039e12, l2_bytes_per_s=5120 * 1.41e9, l2_bytes=40 * _MIB,
)  # fmt: skip
_A40 = Throughput(
    "NVIDIA A40", f"NVIDIA A40 data sheet; {_GUIDE}; assumed: L2 of 2048 bytes a cycle",
    multiprocessors=84, clock_ghz=1.74, tensor=_rates(f16=1024, tf32=512, i8=2048), mma_fraction=1.0,
    fp32=128, fp64=2, dram_bytes_per_s=6.96e11, l2_bytes_per_s=2048 * 1.74e9, l2_bytes=6 * _MIB,
)  # fmt: skip
_ORIN = Throughput(
    "NVIDIA Jetson AGX Orin 64GB",
    f"NVIDIA Jetson AGX Orin Series Technical Brief; {_GUIDE}; assumed: L2 of 512 bytes a cycle",
    multiprocessors=16, clock_ghz=1.3, tensor=_rates(f16=2048, tf32=1024, i8=4096), mma_fraction=1.0,
    fp32=128, fp64=2, dram_bytes_per_s=2.048e11, l2_bytes_per_s=512 * 1.3e9, l2_bytes=4 * _MIB,
)  # fmt: skip
_L40S = Throughput(
    "NVIDIA L40S", f"NVIDIA Ada GPU Architecture; L40S data sheet; {_GUIDE}; assumed: L2 of 2048 bytes a cycle",
    multiprocessors=142, clock_ghz=2.52, tensor=_rates(f16=1024, tf32=512, f8=2048, i8=2048), mma_fraction=1.0,
    fp32=128, fp64=2, dram_bytes_per_s=8.64e11, l2_bytes_per_s=2048 * 2.52e9, l2_bytes=96 * _MIB,
)  # fmt: skip
_H100 = Throughput(
    "NVIDIA H100 SXM",
    f"NVIDIA H100 Tensor Core GPU Architecture; H100 data sheet; {_GUIDE}; mma.sync reaches 62.9 percent: Luo et al., "
    "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking; "
    "assumed: L2 of 5120 bytes a cycle, as the A100's",
    multiprocessors=132, clock_ghz=1.83, tensor=_rates(f16=4096, tf32=2048, f8=8192, i8=8192, f64=256),
    mma_fraction=0.63, fp32=128, fp64=64, dram_bytes_per_s=3.352e12, l2_bytes_per_s=5120 * 1.83e9, l2_bytes=50 * _MIB,
)  # fmt: skip
# Without tcgen05 the tensor cores run mma.sync, for which NVIDIA states no peak.
_B200 = Throughput(
    "NVIDIA B200",
    f"NVIDIA Blackwell Architecture Technical Brief; DGX B200 data sheet; {_GUIDE}; "
    "assumed: mma.sync at a quarter of tcgen05's peak, L2 of 10240 bytes a cycle",
    multiprocessors=148, clock_ghz=1.85, tensor=_rates(f16=8192, tf32=4096, f8=16384, i8=16384, f64=128),
    mma_fraction=0.25, fp32=128, fp64=64, dram_bytes_per_s=8e12, l2_bytes_per_s=10240 * 1.85e9, l2_bytes=126 * _MIB,
)  # fmt: skip
_B300 = dataclasses.replace(
    _B200, gpu="NVIDIA B300", source=f"NVIDIA Blackwell Ultra data sheet; {_GUIDE}; assumed: as of the B200",
    tensor=_rates(f16=8192, tf32=4096, f8=16384, i8=512), fp64=2,
)  # fmt: skip
_RTX5090 = Throughput(
    "NVIDIA GeForce RTX 5090",
    f"NVIDIA RTX Blackwell GPU Architecture (sums in float32); {_GUIDE}; assumed: L2 of 3072 bytes a cycle",
    multiprocessors=170, clock_ghz=2.407, tensor=_rates(f16=512, tf32=256, f8=1024, i8=2048), mma_fraction=1.0,
    fp32=128, fp64=2, dram_bytes_per_s=1.792e12, l2_bytes_per_s=3072 * 2.407e9, l2_bytes=96 * _MIB,
)  # fmt: skip
_GB10 = dataclasses.replace(
    _RTX5090, gpu="NVIDIA GB10 (DGX Spark)",
    source=f"DGX Spark data sheet; {_GUIDE}; assumed: a multiprocessor as of the RTX 5090, L2 of 1024 bytes a cycle",
    multiprocessors=48, clock_ghz=2.418, dram_bytes_per_s=2.73e11, l2_bytes_per_s=1024 * 2.418e9, l2_bytes=24 * _MIB,
)  # fmt: skip

_TABLE = {
    (8, 0): _A100, (8, 6): _A40, (8, 7): _ORIN, (8, 9): _L40S, (9, 0): _H100, (10, 0): _B200, (10, 3): _B300,
    (12, 0): _RTX5090, (12, 1): _GB10,
}  # fmt: skip
