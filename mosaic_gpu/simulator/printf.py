"""vprintf: the format of the kernel's own text, with C's conversions."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

import numpy as np

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.simulator.memory import SHARED_WINDOW
from mosaic_gpu.simulator.ptx import Instruction

if TYPE_CHECKING:
    from mosaic_gpu.simulator.frame import Frame

_CONVERSION = re.compile(r"%(?P<flags>[-+ #0]*\d*(?:\.\d+)?)(?P<size>hh|h|ll|l|j|z|t)?(?P<kind>[diouxXeEfFgGaAcsp%])")
_LONG = ("l", "ll", "j", "z", "t")


def print_values(instruction: Instruction, frame: Frame, format_at: int, values_at: int) -> None:
    """Prints for each thread of the frame, in order; the two arguments are pointers that stand at these
    bytes of the thread's local memory."""
    local = frame.wave.local.data.reshape(frame.wave.T, -1)
    for position, thread in enumerate(frame.ids.tolist()):
        text, values = (int(local[thread, at : at + 8].view(np.uint64)[0]) for at in (format_at, values_at))
        reader = _Reader(instruction, frame, position, thread)
        frame.wave.emit(format_values(reader.text(text), values, reader))


def failed_assertion(instruction: Instruction, frame: Frame, places: list[int]) -> SimulationError:
    """The fault of the frame's first thread at `__assertfail`, whose arguments, the message, the file, the line and
    the function, stand at these bytes of its local memory."""
    thread = int(frame.ids[0])
    row = frame.wave.local.data.reshape(frame.wave.T, -1)[thread]
    reader = _Reader(instruction, frame, 0, thread)
    message, file, function = (
        reader.text(int(row[at : at + 8].view(np.uint64)[0])) for at in (places[0], places[1], places[3])
    )
    line = int(row[places[2] : places[2] + 4].view(np.uint32)[0])
    return frame.error(instruction, f"an assertion failed: {message} ({file}:{line}, {function})", 0)


class _Reader:
    """Reads memory for one thread."""

    def __init__(self, instruction: Instruction, frame: Frame, position: int, thread: int) -> None:
        self.instruction, self.frame, self.position, self.thread = instruction, frame, position, thread

    def bytes(self, address: int, size: int) -> bytes:
        """The bytes at a generic address; SimulationError where there are none."""
        wave = self.frame.wave
        region = wave.memory.find(address) if address < SHARED_WINDOW else wave.window(address)
        if region is None or address + size > region.base + region.size:
            raise self.frame.error(self.instruction, f"printf reads at address {address:#x}", self.position)
        start = address - region.base
        if region.unit:
            start += region.stride * (int(wave.block_of[self.thread]) if region.unit == "block" else self.thread)
        return region.data[start : start + size].tobytes()

    def text(self, address: int) -> str:
        """The string that ends in a zero byte."""
        found = bytearray()
        while (byte := self.bytes(address + len(found), 1)) != b"\0":
            found += byte
        return found.decode("utf-8", "replace")


def format_values(text: str, address: int, reader: _Reader) -> str:
    """`text` with its conversions filled in from the values at `address`, each naturally aligned."""

    def convert(match: re.Match[str]) -> str:
        nonlocal address
        kind, size = match["kind"], match["size"]
        if kind == "%":
            return "%"
        width = 8 if kind in "eEfFgGaAsp" or size in _LONG else 4
        address = -(-address // width) * width
        raw = reader.bytes(address, width)
        address += width
        if kind == "s":
            return str(f"%{match['flags']}s" % reader.text(int.from_bytes(raw, "little")))
        return _one(match["flags"], size, kind, raw)

    return _CONVERSION.sub(convert, text)


def _one(flags: str, size: str | None, kind: str, raw: bytes) -> str:
    if kind in "eEfFgG":
        return str(f"%{flags}{kind}" % struct.unpack("<d", raw))
    if kind in "aA":
        return _hexadecimal(struct.unpack("<d", raw)[0], kind)
    bits = {"hh": 1, "h": 2}.get(size or "", len(raw))
    number = int.from_bytes(raw[:bits], "little", signed=kind in "di")
    if kind == "p":
        return f"{number:#x}" if number else "(nil)"
    if kind == "c":
        return chr(number & 0xFF)
    return str(f"%{flags}{'d' if kind in 'iu' else kind}" % number)


def _hexadecimal(value: float, kind: str) -> str:
    """C's %a without a precision, which leaves out the zeros at the end of the fraction."""
    text = re.sub(r"\.?0*p", "p", value.hex())
    return text.upper() if kind == "A" else text
