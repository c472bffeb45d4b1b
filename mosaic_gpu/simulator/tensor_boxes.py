"""The box of an array in global memory that one tensor copy moves, tile mode (PTX ISA, "Tensors").

Element (i0, .., i4) of the box, innermost index first, is element (c_d + i_d * element stride_d) of the array, where
c are the copy's coordinates, which may be negative.  In shared memory the box is dense, innermost first, whatever
part of it lies inside the array; outside, a load finds the fill value and a store writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mosaic_gpu.simulator.bulk import CopyError, Needed, Reduction
from mosaic_gpu.simulator.memory import Region
from mosaic_gpu.simulator.tensor_map import DecodedMap

if TYPE_CHECKING:
    from mosaic_gpu.simulator.wave import Wave

Array = np.ndarray[Any, np.dtype[Any]]
_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}


@dataclass(frozen=True)
class TensorBox:
    """The box at `coordinates` (innermost first) of the array that `tensor` describes, which lies in `region`."""

    tensor: DecodedMap
    coordinates: tuple[int, ...]
    region: Region

    def _inside(self) -> tuple[tuple[slice, ...], Array] | None:
        """(the part of the box that is inside the array, that part of the array), outermost first."""
        m = self.tensor
        steps, strides = (m.element_bytes, *m.strides_bytes), m.element_strides or (1,) * len(m.dims)
        start, parts, shape, pitches = m.address, [], [], []
        for c, extent, dim, step, stride in zip(self.coordinates, m.extents(), m.dims, steps, strides, strict=True):
            low = max(0, -(c // stride))
            high = min(extent, -(-(dim - c) // stride))
            if high <= low:
                return None
            start += (c + low * stride) * step
            parts.append(slice(low, high))
            shape.append(high - low)
            pitches.append(step * stride)
        return tuple(reversed(parts)), self._view(start, shape[::-1], pitches[::-1])

    def _view(self, start: int, shape: list[int], pitches: list[int]) -> Array:
        offset = start - self.region.base
        last = sum((n - 1) * p for n, p in zip(shape, pitches, strict=True)) + self.tensor.element_bytes
        if offset < 0 or offset + last > self.region.size:
            raise CopyError(
                f"reaches bytes {offset} to {offset + last - 1} of {self.region.name} ({self.region.size} bytes): its "
                f"tensor map says the array has dims {self.tensor.dims} and strides {self.tensor.strides_bytes} bytes"
            )
        dtype = np.dtype(f"u{self.tensor.element_bytes}")
        return np.ndarray(tuple(shape), dtype, self.region.data, offset, tuple(pitches))

    def needed(self) -> Array | None:
        """The bytes of the box that lie inside the array."""
        extents = self.tensor.extents()[::-1]
        mask, inside = np.zeros(extents, np.bool_), self._inside()
        if inside is not None:
            mask[inside[0]] = True
        return None if mask.all() else np.repeat(mask.reshape(-1), self.tensor.element_bytes)

    def read(self, needed: Needed | None = None) -> Array:
        m = self.tensor
        fill = _NAN[m.element_type.removesuffix(".ftz")] if m.fill_nan else 0
        box = np.full(m.extents()[::-1], fill, f"u{m.element_bytes}")
        inside = self._inside()
        if inside is not None:
            box[inside[0]] = inside[1]
        return box.reshape(-1).view(np.uint8)

    def write(self, data: Array, reduction: Reduction | None) -> None:
        inside = self._inside()
        if inside is None:
            return
        if not self.region.writable:
            raise CopyError(f"to {self.region.name}, which is read-only")
        where, view = inside
        box = data.view(view.dtype).reshape(self.tensor.extents()[::-1])[where]
        if reduction is not None:
            box = reduction.combine(np.ascontiguousarray(view), np.ascontiguousarray(box))
        view[...] = box


def find_array(wave: Wave, tensor: DecodedMap) -> Region:
    """The region of global memory that a map's array lies in; CopyError if there is none."""
    region = wave.memory.find(tensor.address)
    if region is None or tensor.address >= region.base + max(region.size, 1):
        raise CopyError(f"goes through a tensor map whose address {tensor.address:#x} is in no buffer")
    return region
