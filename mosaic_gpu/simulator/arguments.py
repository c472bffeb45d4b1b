"""The arguments of a launch: NumPy arrays become regions of global memory, scalars become bytes.

An array is not copied: the region is the array's own memory.  Arrays that share memory (the same array
twice, overlapping views) share one region, so that the kernel sees them alias as a GPU would.  Only an
array that is not contiguous is copied in, and back out at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.simulator.layout import align_up
from mosaic_gpu.simulator.memory import BUFFER_BASE, PARAM_WINDOW, RED_ZONE_BYTES, GlobalMemory, Region
from mosaic_gpu.simulator.prepare import Kernel
from mosaic_gpu.simulator.ptx import TYPES, Variable
from mosaic_gpu.simulator.tensor_map import TensorMap, encode

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Arguments:
    """The parameter bytes of a launch, and the arrays to be copied back."""

    region: Region
    copies: list[tuple[Array, Array]] = field(default_factory=list)

    def finish(self) -> None:
        """Copies back the arrays that are not contiguous."""
        for original, contiguous in self.copies:
            if original.flags.writeable:
                original[...] = contiguous


def bind_arguments(kernel: Kernel, args: Sequence[Any], memory: GlobalMemory) -> Arguments:
    """Maps the arrays and writes the parameters.  Raises SimulationError where they do not fit."""
    entry, layout = kernel.entry, kernel.layout
    if len(args) != len(entry.params):
        raise SimulationError(
            f"`{entry.name}` takes {len(entry.params)} arguments", got=len(args),
            expected=", ".join(f".{p.type} {p.name}" for p in entry.params),
        )  # fmt: skip
    data = np.zeros(max(16, align_up(layout.param_bytes, 16)), np.uint8)
    region = Region("the parameters", PARAM_WINDOW, len(data), data, writable=False)
    arguments = Arguments(region)
    arrays: dict[int, Array] = {}
    for i, (arg, p) in enumerate(zip(args, entry.params, strict=True)):
        if isinstance(arg, TensorMap):
            arrays[i] = arg.array
        elif isinstance(arg, np.ndarray) and not p.is_array:
            arrays[i] = arg
    addresses = _map_arrays(arrays, [p.name for p in entry.params], memory, arguments)
    for i, (arg, param, offset) in enumerate(zip(args, entry.params, layout.params, strict=True)):
        if isinstance(arg, TensorMap):
            raw = _value(encode(arg, addresses[i]), param)
        else:
            raw = _pointer(addresses[i], param) if i in addresses else _value(arg, param)
        data[offset : offset + param.size] = np.frombuffer(raw, np.uint8)
    return arguments


def poison(
    kernel: Kernel, arguments: Arguments, memory: GlobalMemory, args: Sequence[Any], positions: Sequence[int]
) -> None:  # fmt: skip
    """The arrays at these positions count as never written."""
    for position in positions:
        if not 0 <= position < len(args) or not isinstance(args[position], np.ndarray):
            raise SimulationError(f"argument {position} is no array, so it cannot be uninitialised")
        start = kernel.layout.params[position]
        address = int.from_bytes(arguments.region.data[start : start + 8].tobytes(), "little")
        region = memory.find(address)
        if region is None:
            continue
        if region.shadow is None:
            region.shadow = np.full(region.size, 0xFF, np.uint8)
        region.shadow[address - region.base :][: args[position].nbytes] = 0


def _pointer(address: int, param: Variable) -> bytes:
    if param.size != 8:
        raise SimulationError(f"parameter {param.name} of type .{param.type} cannot hold an array's address")
    return address.to_bytes(8, "little")


def _value(arg: Any, param: Variable) -> bytes:
    """A scalar converted to the parameter's type, or the bytes of an aggregate."""
    if param.is_array:
        raw = arg if isinstance(arg, bytes | bytearray) else np.ascontiguousarray(arg).tobytes()
        if len(raw) != param.size:
            raise SimulationError(f"parameter {param.name}", got=f"{len(raw)} bytes", expected=f"{param.size} bytes")
        return bytes(raw)
    dtype = TYPES[param.type]
    scalar = np.asarray(arg)
    if scalar.ndim:
        raise SimulationError(f"parameter {param.name}", got=f"{type(arg).__name__}", expected="a scalar")
    if scalar.dtype.itemsize == dtype.itemsize and scalar.dtype.kind not in "iub" and param.type[0] == "b":
        return scalar.tobytes()
    if dtype.kind in "iu":
        if scalar.dtype.kind not in "iub":
            raise SimulationError(f"parameter {param.name}", got=repr(arg), expected=f"a value of type .{param.type}")
        return (int(arg) & ((1 << 8 * dtype.itemsize) - 1)).to_bytes(dtype.itemsize, "little")
    return scalar.astype(dtype).tobytes()


def _map_arrays(
    arrays: dict[int, Array], names: list[str], memory: GlobalMemory, arguments: Arguments
) -> dict[int, int]:
    """The address of each array."""
    flat: dict[int, Array] = {}
    copied: dict[int, Array] = {}
    for i, array in arrays.items():
        if array.flags.c_contiguous:
            flat[i] = array
        else:
            copied.setdefault(id(array), np.ascontiguousarray(array))
            flat[i] = copied[id(array)]
    for i, array in arrays.items():
        if id(array) in copied and array.size:
            _refuse_overlap(array, [arrays[j] for j in arrays if arrays[j] is not array], names[i])
            arguments.copies.append((array, copied.pop(id(array))))
    return _place(flat, names, memory)


def _refuse_overlap(array: Array, others: list[Array], name: str) -> None:
    if any(np.may_share_memory(array, other) for other in others):
        raise SimulationError(
            f"the array of {name} is not contiguous and overlaps another argument",
            hint="pass contiguous arrays, or copies",
        )


def _place(flat: dict[int, Array], names: list[str], memory: GlobalMemory) -> dict[int, int]:
    addresses: dict[int, int] = {}
    base = BUFFER_BASE
    spans = sorted((a.__array_interface__["data"][0], a.nbytes, i) for i, a in flat.items())
    group: list[tuple[int, int, int]] = []
    end = -1
    for start, size, i in [*spans, (1 << 63, 0, -1)]:
        if group and start >= end:
            base = _add_group(group, flat, names, memory, base, addresses)
            group = []
        if i >= 0:
            end = max(end if group else 0, start + max(size, 1))
            group.append((start, size, i))
    return addresses


def _add_group(
    group: list[tuple[int, int, int]], flat: dict[int, Array], names: list[str], memory: GlobalMemory, base: int,
    addresses: dict[int, int],
) -> int:  # fmt: skip
    """Maps arrays that overlap as one region; returns the base for the next."""
    start = group[0][0]
    size = max(at + nbytes for at, nbytes, _ in group) - start
    writable = all(flat[i].flags.writeable for _, _, i in group)
    data = _bytes_of([flat[i] for _, _, i in group], start, size, writable)
    name = " and ".join(f"`{names[i]}`" for _, _, i in group)
    memory.add(Region(f"buffer {name}", base, size, data, writable=writable))
    for at, _, i in group:
        addresses[i] = base + at - start
    return align_up(base + size + RED_ZONE_BYTES, RED_ZONE_BYTES)


def _bytes_of(arrays: list[Array], start: int, size: int, writable: bool) -> Array:
    """The bytes from address `start` on, which the arrays together cover."""
    for array in arrays:
        if array.nbytes == size and array.__array_interface__["data"][0] == start:
            return array.reshape(-1).view(np.uint8) if size else np.zeros(0, np.uint8)
    owner = arrays[0]
    holder = _Span(start, size, writable, owner)
    return np.asarray(holder)


class _Span:
    """An address range as NumPy's array interface, keeping the owner of the memory alive."""

    def __init__(self, start: int, size: int, writable: bool, owner: Array) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3, "shape": (size,), "typestr": "|u1", "data": (start, not writable),
        }  # fmt: skip
