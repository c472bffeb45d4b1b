"""Integers in a GPU's memory, where kernels read the bounds of their grid and the sizes of their arrays.

A number is written once, to a place of its own that stays: launches copy nothing, and a CUDA graph may keep the
address.
"""

from __future__ import annotations

import threading

import numpy as np

from mosaic_gpu.runtime import driver
from mosaic_gpu.runtime.device_array import DeviceArray
from mosaic_gpu.runtime.devices import Device
from mosaic_gpu.runtime.gpu_kernel import POINTER_ALIGNMENT

_PLACES_AT_ONCE = 4096


class _Numbers:
    """The numbers in the memory of one GPU."""

    def __init__(self, place: Device) -> None:
        self._place = place
        self._addresses: dict[int, int] = {}
        self._chunks: list[DeviceArray] = []

    def address(self, number: int) -> int:
        if number not in self._addresses:
            used = len(self._addresses) % _PLACES_AT_ONCE
            if used == 0:
                self._chunks.append(DeviceArray((_PLACES_AT_ONCE, POINTER_ALIGNMENT), np.uint8, self._place))
            address = self._chunks[-1].pointer + used * POINTER_ALIGNMENT
            self._write(number, address)
            self._addresses[number] = address
        return self._addresses[number]

    def _write(self, number: int, address: int) -> None:
        """On a stream of its own: the default one must stay alone while another stream is captured."""
        value = np.array(number, np.int32)
        with self._place.active(), driver.relaxed_capture():
            stream = driver.call("cuStreamCreate", int(driver.bindings().CUstream_flags.CU_STREAM_NON_BLOCKING))
            try:
                driver.call("cuMemcpyHtoDAsync", address, value.ctypes.data, value.nbytes, stream)
                driver.call("cuStreamSynchronize", stream)
            finally:
                driver.call("cuStreamDestroy", stream)


_numbers: dict[int, _Numbers] = {}
_lock = threading.Lock()


def address_of(number: int, place: Device) -> int:
    """Where `number` lies in the memory of `place`, as an int32; nobody may write there."""
    with _lock:
        return _numbers.setdefault(place.ordinal, _Numbers(place)).address(number)
