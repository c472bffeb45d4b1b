"""What a kernel takes of the GPU, read from the cubin itself.

A cubin is a 64-bit little-endian ELF file.  Section `.nv.info` holds attributes of its functions: records of one
byte format, one byte attribute, two bytes size or value; where the format is 4 (EIFMT_SVAL) the size counts the
bytes that follow, here the function's symbol number and a value (as `cuobjdump -elf` shows them).
Spills are told by ptxas' report alone.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from mosaic_gpu.errors import ToolError

_REGISTERS, _FRAME_SIZE = 0x2F, 0x11
_SVAL = 4
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB = 2
_ENTRY = 0x10  # STO_CUDA_ENTRY in a symbol's st_other
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True)
class Resources:
    """What one kernel takes; registers and bytes are a thread's, shared and constant bytes a block's.

    Attributes:
      registers: 32-bit registers.
      shared_bytes: static shared memory as `cuobjdump -res-usage` counts it, so with the 1024 bytes that the system
        keeps of a block that uses any from sm_90 on; the dynamic part is in the launch.
      stack_bytes: local memory of the frame, spilled registers included.
      spill_store_bytes, spill_load_bytes: bytes that the code moves because registers ran out.
      constant_bytes: constant bank 0, which holds the parameters.
      code_bytes: size of the machine code.
    """

    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    constant_bytes: int
    code_bytes: int

    @property
    def spill_bytes(self) -> int:
        """Bytes spilled, stores and loads together."""
        return self.spill_store_bytes + self.spill_load_bytes


@dataclass(frozen=True)
class _Section:
    name: str
    type: int
    offset: int
    size: int

    def bytes_of(self, image: bytes) -> bytes:
        return image[self.offset : self.offset + self.size]


def read_resources(image: bytes, entry: str | None = None, report: str = "") -> Resources:
    """The resources of kernel `entry` (None: the only one) of the cubin `image`.

    `report`: what ptxas printed under -v, for the spills (0 where it does not tell them).

    Raises:
      ToolError: `image` is not a cubin, or has no such kernel.
    """
    sections = {s.name: s for s in _sections(image)}
    kernels = _kernels(image, sections)
    if entry is None and len(kernels) == 1:
        entry = kernels[0]
    if entry not in kernels:
        raise ToolError("the cubin does not hold the kernel", got=kernels, expected=entry or "one kernel")
    registers, frame = _function_facts(image, sections, entry)
    stores, loads = _spills(report)

    def size(name: str) -> int:
        return sections[name].size if name in sections else 0

    return Resources(
        registers=registers,
        shared_bytes=size(f".nv.shared.{entry}"),
        stack_bytes=frame,
        spill_store_bytes=stores,
        spill_load_bytes=loads,
        constant_bytes=size(f".nv.constant0.{entry}"),
        code_bytes=size(f".text.{entry}"),
    )


def _spills(report: str) -> tuple[int, int]:
    match = _SPILLS.search(report)
    return (0, 0) if match is None else (int(match[1]), int(match[2]))


def _sections(image: bytes) -> list[_Section]:
    if image[:5] != b"\x7fELF\x02" or len(image) < 64:
        raise ToolError("the linker's output is not a 64-bit ELF file", got=image[:8])
    (table,) = struct.unpack_from("<Q", image, 40)
    count, names_index = struct.unpack_from("<HH", image, 60)
    headers = [_SECTION.unpack_from(image, table + i * _SECTION.size) for i in range(count)]
    names = image[headers[names_index][4] :]
    return [_Section(_string(names, h[0]), h[1], h[4], h[5]) for h in headers]


def _string(table: bytes, start: int) -> str:
    return table[start : table.index(b"\0", start)].decode()


def _function_facts(image: bytes, sections: dict[str, _Section], entry: str) -> tuple[int, int]:
    """Registers and frame bytes of `entry`.

    Older tools keep the register count in the top byte of the code section's sh_info only; all that this package
    supports write EIATTR_REGCOUNT.
    """
    symbol = _symbol_number(image, sections, entry)
    facts = {attr: value for attr, number, value in _records(sections[".nv.info"].bytes_of(image)) if number == symbol}
    if _REGISTERS not in facts:
        raise ToolError(f"the cubin does not tell the registers of {entry!r}")
    return facts[_REGISTERS], facts.get(_FRAME_SIZE, 0)


def _kernels(image: bytes, sections: dict[str, _Section]) -> list[str]:
    """The entry points: other code sections hold functions that they call, such as the slow path of a division."""
    return [name for name, other in _symbols(image, sections) if other & _ENTRY and f".text.{name}" in sections]


def _symbol_number(image: bytes, sections: dict[str, _Section], name: str) -> int:
    return next(i for i, (symbol, _) in enumerate(_symbols(image, sections)) if symbol == name)


def _symbols(image: bytes, sections: dict[str, _Section]) -> list[tuple[str, int]]:
    """Name and st_other of each symbol, in order."""
    table = next((s for s in sections.values() if s.type == _SYMTAB), None)
    if table is None or ".strtab" not in sections:
        raise ToolError("the cubin has no symbols")
    strings = sections[".strtab"].bytes_of(image)
    return [(_string(strings, e[0]), e[2]) for e in _SYMBOL.iter_unpack(table.bytes_of(image))]


def _records(info: bytes) -> Iterator[tuple[int, int, int]]:
    """(attribute, symbol number, value) of each record that has this form."""
    at = 0
    while at + 4 <= len(info):
        format_, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if format_ == _SVAL:
            if size == 8:
                yield attribute, *struct.unpack_from("<II", info, at)
            at += size
