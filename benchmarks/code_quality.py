"""What the machine code of the inner loops of matmul and attention is made of; beside it Triton's, where installed.

    python benchmarks/code_quality.py [--save FOLDER]

For each compiler, from the SASS of the bf16 matmul 128x256x64 and of attention 128x128 with a head dimension of 128:

  mma        matrix instructions in a step of the loop, for each warp
  other/mma  all other instructions that are issued in a step, of all warps, for each of those; where warps of their own
             start the copies, the instructions of their loop are counted too
  loop       instructions of a step: of the loop with the matrix instructions and of that with the copies; of a kernel
             without matrix instructions its longest loop, or all of it where it has no loop
  ld/st      loads and stores in the loops that are not TMA's
  barriers   bar.sync, mbarrier instructions and waits for matrix instructions in the loops
  tma        copies that TMA is told to do in a step
  registers  a thread's, as launched and, where warps exchange them, of the warps with the matrix instructions
  spills     loads and stores of local memory in the whole kernel
  shared     bytes of shared memory, the dynamic part
  stages     of the operands that shared memory holds: its size over that of a stage

Compiling needs no GPU.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kernels import Benchmark, attention, matmul

import mosaic_gpu
from mosaic_gpu.errors import MosaicGpuError
from mosaic_gpu.lowering.resources import read_resources
from mosaic_gpu.lowering.sass import disassemble

MMA = ("HGMMA", "IGMMA", "QGMMA", "BGMMA", "HMMA", "IMMA", "DMMA", "QMMA")
TMA = ("UTMALDG", "UTMASTG", "UTMAREDG")
MEMORY = ("LD", "ST", "LDG", "STG", "LDS", "STS", "LDSM", "STSM", "LDGSTS", "LDL", "STL", "ATOM", "ATOMS", "RED")
BARRIERS = ("BAR", "SYNCS", "WARPGROUP", "DEPBAR")
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\d\s+)?([A-Z0-9]+)\S*(.*)")
_LABEL = re.compile(r"^(\.L\w+):")
_TARGET = re.compile(r"`\((\.L\w+)\)")
_REGISTERS = re.compile(r"USETMAXREG\.(?:TRY_)?ALLOC\S* .*?(0x[0-9a-f]+)")


@dataclass(frozen=True)
class Loop:
    """Instructions from the target of a jump back to the jump: how many there are of each opcode."""

    opcodes: Counter[str]

    def count(self, kinds: tuple[str, ...]) -> int:
        """The instructions with one of these opcodes."""
        return sum(self.opcodes[kind] for kind in kinds)


def loops(sass: str) -> Iterator[Loop]:
    """The loops of a kernel in machine code as nvdisasm prints it."""
    labels: dict[str, int] = {}
    opcodes: list[str] = []
    for line in sass.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(opcodes)
        elif found := _INSTRUCTION.match(line):
            opcodes.append(found[2])
            target = _TARGET.search(found[3])
            if found[2] == "BRA" and target and target[1] in labels:
                yield Loop(Counter(opcodes[labels[target[1]] :]))


@dataclass(frozen=True)
class Quality:
    """One row of the table; `other` is for each matrix instruction (see the file's head), None where there are none.

    `stages` is None of a kernel that loads nothing ahead.
    """

    mma: int
    other: float | None
    loop: int
    memory: int
    barriers: int
    tma: int
    registers: str
    spills: int
    shared: int
    stages: int | None

    def cells(self) -> tuple[str, ...]:
        """As text, in the order of `COLUMNS`."""
        other = "-" if self.other is None else f"{self.other:.2f}"
        stages = "-" if self.stages is None else str(self.stages)
        numbers = (self.loop, self.memory, self.barriers, self.tma)
        return (str(self.mma), other, *map(str, numbers), self.registers, str(self.spills), str(self.shared), stages)


COLUMNS = ("mma", "other/mma", "loop", "ld/st", "barriers", "tma", "registers", "spills", "shared", "stages")


def counted_loops(sass: str) -> list[Loop]:
    """The loops that are counted, the main one first."""
    every = list(loops(sass))
    with_mma = [loop for loop in every if loop.count(MMA)]
    if not with_mma:
        whole = Loop(Counter(found[2] for line in sass.splitlines() if (found := _INSTRUCTION.match(line))))
        # Behind its end a kernel has a jump to itself, which nothing reaches.
        real = [loop for loop in every if loop.opcodes.total() > 1]
        return [max(real, key=lambda loop: loop.opcodes.total(), default=whole)]
    main = max(with_mma, key=lambda loop: (loop.count(MMA), -loop.opcodes.total()))
    copies = [loop for loop in every if loop.count(TMA) and not loop.count(MMA)]
    return [main, min(copies, key=lambda loop: loop.opcodes.total())] if copies else [main]


def quality(cubin: bytes, sass: str, warps: int, shared_bytes: int, in_flight_bytes: tuple[int, int]) -> Quality:
    """Counts what a kernel's loops are made of.

    Arguments:
      warps: that run the main loop.
      shared_bytes: dynamic shared memory.
      in_flight_bytes: what of it the operands of a step take, and what is kept beside them.
    """
    main, *beside = counted_loops(sass)
    both = [main, *beside]
    mma, (stage, kept) = main.count(MMA), in_flight_bytes
    # One warp of those that start copies does so: the others have left.
    issued = (main.opcodes.total() - mma) * warps + sum(loop.opcodes.total() for loop in beside)
    exchanged = _REGISTERS.search(sass)
    return Quality(
        mma=mma,
        other=issued / (mma * warps) if mma else None,
        loop=sum(loop.opcodes.total() for loop in both),
        memory=sum(loop.count(MEMORY) for loop in both),
        barriers=sum(loop.count(BARRIERS) for loop in both),
        tma=sum(loop.count(TMA) for loop in both),
        registers=f"{read_resources(cubin).registers}" + (f" ({int(exchanged[1], 16)})" if exchanged else ""),
        spills=len(re.findall(r"\s(?:LDL|STL)[.\s]", sass)),
        shared=shared_bytes,
        stages=(shared_bytes - kept) // stage if stage else None,
    )


def ours(benchmark: Benchmark, folder: Path | None) -> Quality:
    """The kernel compiled by this package.  Raises MosaicGpuError where it is refused."""
    kernel = mosaic_gpu.compile(benchmark.call, *benchmark.arguments, target="sm_90a")
    launch, sass = kernel.launch_facts, kernel.sass
    _save(folder, f"{benchmark.name}.sass", sass)
    warps = launch.block[0] // 32
    warps -= 4 if "USETMAXREG" in sass else 0  # a warpgroup that starts the copies
    return quality(kernel.cubin, sass, warps, launch.shared_bytes, benchmark.in_flight_bytes)


def tritons(benchmark: Benchmark, folder: Path | None) -> Quality:
    """The same tile compiled by Triton."""
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    from triton_kernels import compiler

    compiled = compiler(benchmark.name)()
    cubin = compiled.asm["cubin"]
    sass = disassemble(cubin)
    _save(folder, f"{benchmark.name}.triton.sass", sass)
    warps, shared = compiled.metadata.num_warps, compiled.metadata.shared
    return quality(cubin, sass, warps, shared, benchmark.in_flight_bytes)


def _save(folder: Path | None, name: str, sass: str) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(sass)


def table(chosen: Sequence[Benchmark], folder: Path | None = None, with_triton: bool = True) -> list[dict[str, Any]]:
    """Prints a row for each kernel and compiler as it is made, and returns them.

    `with_triton`: whether Triton compiles a kernel of each name too.  A kernel that is refused has its "error" alone.
    """
    width = max(20, *(len(b.name) for b in chosen)) + 1
    print(f"{'':{width}}" + "".join(f"{c:>11}" for c in COLUMNS))
    rows: list[dict[str, Any]] = []
    for benchmark in chosen:
        compilers = {"": ours}
        if with_triton and find_spec("triton") is not None:
            compilers[" (Triton)"] = tritons
        for mark, compiler in compilers.items():
            name = benchmark.name + mark
            try:
                row = compiler(benchmark, folder)
            except MosaicGpuError as error:
                print(f"{name:{width}}{type(error).__name__}: {error.what.splitlines()[0]}", flush=True)
                rows.append({"name": name, "error": str(error)})
                continue
            print(f"{name:{width}}" + "".join(f"{cell:>11}" for cell in row.cells()), flush=True)
            rows.append({"name": name, **asdict(row)})
    return rows


def main() -> None:
    """Prints a row for each kernel and compiler."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write the machine code there")
    table((matmul(), attention()), parser.parse_args().save)


if __name__ == "__main__":
    main()
