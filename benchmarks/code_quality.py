"""What the machine code of the inner loops of matmul and attention is made of; beside it Triton's, where installed.

    python benchmarks/code_quality.py [--save FOLDER]

For each compiler, from the SASS of the bf16 matmul 128x256x64 and of attention 128x128 with a head dimension of 128:

  mma        warpgroup matrix instructions in a step of the loop, for each warp
  other/mma  all other instructions that are issued in a step, of all warps, for each of those; where warps of their own
             start the copies, the instructions of their loop are counted too
  ld/st      loads and stores in the loops that are not TMA's
  barriers   bar.sync, mbarrier instructions and waits for matrix instructions in the loops
  tma        copies that TMA is told to do in a step
  registers  a thread's, as launched and, where warps exchange them, of the warps with the matrix instructions
  spills     loads and stores of local memory in the whole kernel
  stages     of the operands that shared memory holds: its size over that of a stage

Compiling needs no GPU.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kernels import ATTENTION_BLOCK, MATMUL_BLOCK, Benchmark, attention, matmul

import mosaic_gpu
from mosaic_gpu.lowering.resources import read_resources
from mosaic_gpu.lowering.sass import disassemble

MMA = ("HGMMA", "IGMMA", "QGMMA", "BGMMA")
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
    """One row of the table; `other` is for each matrix instruction (see the file's head)."""

    mma: int
    other: float
    memory: int
    barriers: int
    tma: int
    registers: str
    spills: int
    stages: int


def quality(cubin: bytes, sass: str, warps: int, shared_bytes: int, stage_bytes: int) -> Quality:
    """Counts what a kernel's loops are made of.

    Arguments:
      warps: that run the loop with the matrix instructions.
      shared_bytes: what of shared memory is for the operands of that loop.
      stage_bytes: what the operands of a step take of it.
    """
    found = [loop for loop in loops(sass) if loop.count(MMA) or loop.count(TMA)]
    main = max(found, key=lambda loop: (loop.count(MMA), -loop.opcodes.total()))
    copies = [loop for loop in found if not loop.count(MMA)]
    beside = [min(copies, key=lambda loop: loop.opcodes.total())] if copies else []
    mma = main.count(MMA)
    # One warp of those that start copies does so: the others have left.
    issued = (main.opcodes.total() - mma) * warps + sum(loop.opcodes.total() for loop in beside)
    both = [main, *beside]
    exchanged = _REGISTERS.search(sass)
    return Quality(
        mma=mma,
        other=issued / (mma * warps),
        memory=sum(loop.count(MEMORY) for loop in both),
        barriers=sum(loop.count(BARRIERS) for loop in both),
        tma=sum(loop.count(TMA) for loop in both),
        registers=f"{read_resources(cubin).registers}" + (f" ({int(exchanged[1], 16)})" if exchanged else ""),
        spills=len(re.findall(r"\s(?:LDL|STL)[.\s]", sass)),
        stages=shared_bytes // stage_bytes,
    )


def operand_bytes(name: str) -> tuple[int, int]:
    """Of a kernel's shared memory: what is kept through the loop, and what one step needs."""
    if name == "matmul":
        m, n, step = MATMUL_BLOCK
        return 0, 2 * step * (m + n)
    queries, keys, d = ATTENTION_BLOCK
    return 2 * queries * d, 2 * 2 * keys * d


def ours(benchmark: Benchmark, folder: Path | None) -> Quality:
    """The kernel compiled by this package."""
    kernel = mosaic_gpu.compile(benchmark.call, *benchmark.arguments, target="sm_90a")
    launch, sass = kernel.launch_facts, kernel.sass
    _save(folder, f"{benchmark.name}.sass", sass)
    kept, stage = operand_bytes(benchmark.name)
    warps = launch.block[0] // 32
    warps -= 4 if "USETMAXREG" in sass else 0  # a warpgroup that starts the copies
    return quality(kernel.cubin, sass, warps, launch.shared_bytes - kept, stage)


def tritons(name: str, folder: Path | None) -> Quality:
    """The same tile compiled by Triton."""
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    from triton_kernels import compiler

    compiled = compiler(name)()
    cubin = compiled.asm["cubin"]
    sass = disassemble(cubin)
    _save(folder, f"{name}.triton.sass", sass)
    kept, stage = operand_bytes(name)
    return quality(cubin, sass, compiled.metadata.num_warps, compiled.metadata.shared - kept, stage)


def _save(folder: Path | None, name: str, sass: str) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(sass)


def main() -> None:
    """Prints a row for each kernel and compiler."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write the machine code there")
    folder = parser.parse_args().save
    columns = ("mma", "other/mma", "ld/st", "barriers", "tma", "registers", "spills", "stages")
    print(f"{'':20}" + "".join(f"{c:>11}" for c in columns))
    for benchmark in (matmul(), attention()):
        rows = {"": ours(benchmark, folder)}
        if find_spec("triton") is not None:
            rows[" (Triton)"] = tritons(benchmark.name, folder)
        for name, row in rows.items():
            cells = (
                row.mma,
                f"{row.other:.2f}",
                row.memory,
                row.barriers,
                row.tma,
                row.registers,
                row.spills,
                row.stages,
            )
            print(f"{benchmark.name + name:20}" + "".join(f"{c:>11}" for c in cells), flush=True)


if __name__ == "__main__":
    main()
