"""cp.async.bulk and cp.reduce.async.bulk, plain and tensor (PTX ISA, "Data Movement: Bulk copy" and "Tensor copy").

`bulk.py` says when copies happen, `tensor_boxes.py` what a tensor copy moves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mosaic_gpu.errors import SimulationError, UnsupportedError
from mosaic_gpu.simulator.bulk import CopyError, Flight, GlobalSpan, Place, Reduction, SharedSpan
from mosaic_gpu.simulator.exec_mbarrier import barrier_access, barrier_indexes
from mosaic_gpu.simulator.exec_memory import access_of, access_to
from mosaic_gpu.simulator.exec_mma import take_words
from mosaic_gpu.simulator.frame import Frame
from mosaic_gpu.simulator.memory import Access, Region
from mosaic_gpu.simulator.ptx import Address, Immediate, Instruction, Vector, unsupported
from mosaic_gpu.simulator.registry import Decoder, Operation
from mosaic_gpu.simulator.tensor_boxes import TensorBox, find_array
from mosaic_gpu.simulator.tensor_map import MAP_BYTES, DecodedMap, decode

Array = np.ndarray[Any, np.dtype[Any]]
_REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
_SPACES = ("shared::cta", "shared::cluster", "global")
_MBARRIER = "mbarrier::complete_tx::bytes"
_SWIZZLE_BITS = {0: 0, 32: 1, 64: 2, 128: 3}
_BULK_ALIGN, _TENSOR_ALIGN, _MAP_ALIGN = 16, 128, 64
#: Elements that a plain reduction takes, by what it does (PTX ISA, "cp.reduce.async.bulk").
_REDUCIBLE = {
    "add": ("u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64"), "inc": ("u32",), "dec": ("u32",),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"), "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"),
}  # fmt: skip


@dataclass
class _Form:
    """The words of a bulk copy."""

    words: list[str]
    reduce: str = ""
    rank: int = 0
    to: str = ""
    of: str = ""
    hinted: bool = False
    multicast: bool = False
    masked: bool = False
    kind: str = ""
    spaces: list[str] = field(default_factory=list)

    def take(self, word: str) -> bool:
        """True if the word is there; consumes it."""
        if word in self.words:
            self.words.remove(word)
            return True
        return False


def exec_bulk(d: Decoder) -> Operation | None:
    """Any cp with .bulk."""
    form = _Form([w for w in take_words(d) if w not in ("async", "bulk", "noftz", "relaxed", "weak")])
    if form.take("commit_group"):
        d.count(0)
        return lambda slots, frame: frame.wave.bulk.commit(frame.ids)
    if form.take("wait_group"):
        return _wait(d, form.take("read"))
    reduces = form.take("reduce")
    form.hinted, form.multicast = form.take("L2::cache_hint"), form.take("multicast::cluster")
    form.masked = form.take("cp_mask")
    if form.take("tensor"):
        word = next((w for w in form.words if w in ("1d", "2d", "3d", "4d", "5d")), "")
        form.rank = int(word[:1] or 0)
        form.words = [w for w in form.words if w not in (word, "tile")]
        if not form.rank:
            raise d.fail("a number of dimensions expected")
    if form.take("prefetch"):
        return _prefetch(d, form)
    if reduces:
        form.reduce = next((w for w in form.words if w in _REDUCTIONS), "")
        form.take(form.reduce)
    return _copy(d, form)


def _wait(d: Decoder, read_only: bool) -> Operation:
    d.count(1)
    most = d.operand(0)
    if not isinstance(most, Immediate) or most.value < 0:
        raise d.fail("the number of groups must be a constant")
    return lambda slots, frame: frame.wave.bulk.wait(frame.ids, most.value, read_only=read_only)


def _prefetch(d: Decoder, form: _Form) -> Operation | None:
    """Nothing moves; a tensor map must be one."""
    if form.words != ["L2", "global"]:
        raise d.refuse()
    if not form.rank:
        d.src(1, "u32")
        return None
    tensor = _Tensor(d, 0, form.rank)

    def run(slots: list[Array], frame: Frame) -> None:
        tensor.boxes(slots, frame)

    return run


def _copy(d: Decoder, form: _Form) -> Operation:
    form.spaces = [w for w in form.words if w in _SPACES]
    group, barrier = form.take("bulk_group"), form.take(_MBARRIER)
    rest = [w for w in form.words if w not in _SPACES]
    if len(form.spaces) != 2 or group == barrier or (barrier and form.spaces[0] == "global"):
        raise d.refuse()
    form.to, form.of = form.spaces
    if form.reduce and not form.rank:
        form.kind = rest.pop() if rest else ""
        if form.kind not in _REDUCIBLE.get(form.reduce, ()):
            raise d.refuse("this reduction of this type")
    if rest:
        raise d.refuse(f"modifier .{rest[0]}")
    if form.rank:
        return _load_tensor(d, form) if form.of == "global" else _store_tensor(d, form)
    return _plain(d, form)


def _take_optional(d: Decoder, form: _Form, at: int) -> tuple[int | None, int | None]:
    """(the slot of ctaMask, the slot of the byte mask); the cache policy is a hint."""
    mask = cp_mask = None
    if form.multicast:
        mask, at = d.src(at, "b16"), at + 1
    if form.hinted:
        d.src(at, "b64")
        at += 1
    if form.masked:
        cp_mask, at = d.src(at, "b16"), at + 1
    d.count(at)
    return mask, cp_mask


class _SharedSide:
    """The end of a copy in shared memory."""

    def __init__(self, d: Decoder, index: int, space: str, align: int, what: str) -> None:
        self.instruction = d.instruction
        self.access = access_of(d, index, space, align, what)
        self.align = align

    def spans(self, frame: Frame, slots: list[Array], sizes: Array, swizzles: list[int]) -> list[SharedSpan]:
        """The bytes of each thread's copy."""
        shared = frame.wave.shared
        units = np.empty(frame.n, np.int64)
        for _, index, chosen in self.access.reach(slots, frame):
            units[... if chosen is None else chosen] = index
        block, start = np.divmod(units * self.align, shared.stride)
        over = start + sizes > shared.size
        if over.any():
            at = int(np.argmax(over))
            raise frame.error(
                self.instruction, f"out-of-bounds {self.access.what}: {int(sizes[at])} bytes at byte {int(start[at])} "
                f"of shared memory ({shared.size} bytes)", at,
            )  # fmt: skip
        return [
            SharedSpan(shared, b, s, n, w)
            for b, s, n, w in zip(block.tolist(), start.tolist(), sizes.tolist(), swizzles, strict=True)
        ]


class _GlobalSide:
    """The end of a plain copy in global memory."""

    def __init__(self, d: Decoder, index: int, what: str) -> None:
        self.access = access_of(d, index, "global", _BULK_ALIGN, what)

    def spans(self, frame: Frame, slots: list[Array], sizes: Array, writes: bool, masks: Array) -> list[GlobalSpan]:
        """The bytes of each thread's copy."""
        found: list[GlobalSpan] = [None] * frame.n  # type: ignore[list-item]
        for region, index, chosen in self.access.reach(slots, frame):
            positions = np.arange(frame.n) if chosen is None else chosen
            starts = np.broadcast_to(index, len(positions)) * _BULK_ALIGN
            if writes:
                self.access.written(region, frame)
            for position, start in zip(positions.tolist(), starts.tolist(), strict=True):
                size = int(sizes[position])
                if start + size > region.size:
                    raise self.access.error(
                        f"out-of-bounds {self.access.what}: {size} bytes at byte {start} of {region.name} "
                        f"({region.size} bytes)", frame, position,
                    )  # fmt: skip
                found[position] = GlobalSpan(region, start, size, int(masks[position]))
        return found


class _Tensor:
    """[tensor map, {coordinates}]."""

    def __init__(self, d: Decoder, index: int, rank: int) -> None:
        address = d.address(index)
        self.instruction, self.rank = d.instruction, rank
        items = address.extra[0] if len(address.extra) == 1 else None
        if not isinstance(items, Vector) or len(items.items) != rank:
            raise d.fail(f"{rank} coordinates in braces expected after the tensor map")
        self.coordinates = [d.source(item, "s32") for item in items.items]
        bare = Address(address.base, address.offset, ())
        self.access = access_to(d, bare, "", _MAP_ALIGN, "tensor map")

    def boxes(self, slots: list[Array], frame: Frame) -> list[TensorBox]:
        """Each thread's box."""
        maps = read_maps(self.access, slots, frame)
        coordinates = np.stack([np.broadcast_to(slots[c], frame.n) for c in self.coordinates], axis=1)
        boxes = []
        for position, (tensor, at) in enumerate(zip(maps, coordinates.tolist(), strict=True)):
            if len(tensor.dims) != self.rank:
                what = f"a copy of {self.rank} dimensions through a tensor map of {len(tensor.dims)}"
                raise frame.error(self.instruction, what, position)
            _check_map(tensor, self.instruction)
            try:
                boxes.append(TensorBox(tensor, tuple(at), find_array(frame.wave, tensor)))
            except CopyError as error:
                raise frame.error(self.instruction, f"the copy {error}", position) from None
        return boxes


def _check_map(tensor: DecodedMap, instruction: Instruction) -> None:
    inner = tensor.extents()[0] * tensor.element_bytes
    if tensor.swizzle and inner != tensor.swizzle:
        raise unsupported(instruction, f"a box of rows of {inner} bytes under a swizzle of {tensor.swizzle}")
    if tensor.element_type.startswith("tf32") or tensor.element_type.endswith(".ftz"):
        raise unsupported(instruction, f"a tensor map of type .{tensor.element_type}")


def read_maps(access: Access, slots: list[Array], frame: Frame) -> list[DecodedMap]:
    """The tensor map that each thread's address names."""
    found: list[DecodedMap] = [None] * frame.n  # type: ignore[list-item]
    cache: dict[tuple[str, int], DecodedMap] = {}
    for region, index, chosen in access.reach(slots, frame):
        positions = np.arange(frame.n) if chosen is None else chosen
        starts = np.broadcast_to(index, len(positions)) * _MAP_ALIGN
        for position, start in zip(positions.tolist(), starts.tolist(), strict=True):
            key = (region.name, start)
            if key not in cache:
                cache[key] = _decode_map(access, region, start, frame, position)
            found[position] = cache[key]
    return found


def _decode_map(access: Access, region: Region, start: int, frame: Frame, position: int) -> DecodedMap:
    try:
        return decode(region.data[start : start + MAP_BYTES].tobytes().ljust(MAP_BYTES, b"\0"))
    except SimulationError as error:
        raise access.error(str(error), frame, position) from None
    except UnsupportedError as error:
        raise unsupported(access.instruction, str(error)) from None


def _load_tensor(d: Decoder, form: _Form) -> Operation:
    """[destination], [map, {..}], [mbarrier]{, ctaMask}{, policy}"""
    if form.to == "global" or form.reduce:
        raise d.refuse()
    side = _SharedSide(d, 0, form.to, _TENSOR_ALIGN, "tensor copy to shared memory")
    tensor = _Tensor(d, 1, form.rank)
    barrier = barrier_access(d, 2, form.to)
    mask, _ = _take_optional(d, form, 3)

    def run(slots: list[Array], frame: Frame) -> None:
        boxes = tensor.boxes(slots, frame)
        sizes = np.array([_box_bytes(box) for box in boxes])
        spans = side.spans(frame, slots, sizes, [_SWIZZLE_BITS[b.tensor.swizzle] for b in boxes])
        _start(d, frame, boxes, spans, barrier_indexes(barrier, slots, frame), None if mask is None else slots[mask])

    return run


def _box_bytes(box: TensorBox) -> int:
    total = box.tensor.element_bytes
    for extent in box.tensor.extents():
        total *= extent
    return total


def _start(
    d: Decoder, frame: Frame, sources: Any, spans: list[SharedSpan], barriers: Array, mask: Array | None,
    reduction: Reduction | None = None,
) -> None:  # fmt: skip
    """Starts copies to shared memory; with a mask, to the same place in each block that it names."""
    wave, flights = frame.wave, []
    masks = None if mask is None else np.broadcast_to(mask, frame.n).tolist()
    words = wave.shared.stride // 8
    for i, (source, span) in enumerate(zip(sources, spans, strict=True)):
        targets, indexes = [span], [int(barriers[i])]
        if masks is not None:
            blocks = _members(d, frame, i, masks[i])
            targets = [SharedSpan(span.region, b, span.start, span.size, span.swizzle) for b in blocks]
            indexes = [indexes[0] % words + b * words for b in blocks]
        places: tuple[Place, ...] = tuple(targets)
        thread = int(frame.ids[i])
        flights.append(Flight(d.instruction, thread, span.size, source, places, tuple(indexes), reduction))
    wave.bulk.start(flights)


def _members(d: Decoder, frame: Frame, position: int, mask: int) -> list[int]:
    """The resident blocks that a ctaMask names."""
    wave = frame.wave
    peers = wave.cluster_blocks[wave.cluster_of[wave.block_of[frame.ids[position]]]].tolist()
    if not mask or mask >> len(peers):
        raise frame.error(d.instruction, f"ctaMask {mask:#x} in a cluster of {len(peers)} blocks", position)
    return [block for rank, block in enumerate(peers) if mask >> rank & 1]


def _store_tensor(d: Decoder, form: _Form) -> Operation:
    """[map, {..}], [source]{, policy}"""
    if form.to != "global" or form.multicast:
        raise d.refuse()
    tensor = _Tensor(d, 0, form.rank)
    side = _SharedSide(d, 1, form.of, _TENSOR_ALIGN, "tensor copy from shared memory")
    _take_optional(d, form, 2)

    def run(slots: list[Array], frame: Frame) -> None:
        boxes = tensor.boxes(slots, frame)
        sizes = np.array([_box_bytes(box) for box in boxes])
        spans = side.spans(frame, slots, sizes, [_SWIZZLE_BITS[b.tensor.swizzle] for b in boxes])
        reductions = [_tensor_reduction(d, form.reduce, b.tensor, frame, i) for i, b in enumerate(boxes)]
        frame.wave.bulk.store([
            Flight(d.instruction, int(thread), span.size, span, (box,), (), reduction)
            for thread, span, box, reduction in zip(frame.ids, spans, boxes, reductions, strict=True)
        ])  # fmt: skip

    return run


def _tensor_reduction(d: Decoder, name: str, tensor: DecodedMap, frame: Frame, position: int) -> Reduction | None:
    if not name:
        return None
    kind = tensor.element_type
    kind = f"b{kind[1:]}" if name in ("and", "or", "xor") and kind[0] in "us" else kind
    if kind not in _REDUCIBLE[name]:
        raise frame.error(d.instruction, f".{name} of a tensor map of type .{tensor.element_type}", position)
    return Reduction(name, kind)


def _plain(d: Decoder, form: _Form) -> Operation:
    """[destination], [source], size{, [mbarrier]}{, ctaMask}{, policy}{, byte mask}"""
    to_shared = form.to != "global"
    target: Any = (
        _SharedSide(d, 0, form.to, _BULK_ALIGN, "bulk copy to shared memory") if to_shared
        else _GlobalSide(d, 0, "bulk copy to global memory")
    )  # fmt: skip
    source: Any = (
        _GlobalSide(d, 1, "bulk copy from global memory") if form.of == "global"
        else _SharedSide(d, 1, form.of, _BULK_ALIGN, "bulk copy from shared memory")
    )  # fmt: skip
    size = d.src(2, "u32")
    barrier = barrier_access(d, 3, form.to) if to_shared else None
    mask, byte_mask = _take_optional(d, form, 4 if to_shared else 3)
    reduction = Reduction(form.reduce, form.kind) if form.reduce else None

    def spans(side: Any, frame: Frame, slots: list[Array], sizes: Array, writes: bool) -> Any:
        if isinstance(side, _SharedSide):
            return side.spans(frame, slots, sizes, [0] * frame.n)
        masks = np.full(frame.n, 0xFFFF) if byte_mask is None else np.broadcast_to(slots[byte_mask], frame.n)
        return side.spans(frame, slots, sizes, writes, masks)

    def run(slots: list[Array], frame: Frame) -> None:
        sizes = np.broadcast_to(slots[size], frame.n).astype(np.int64)
        if (sizes % _BULK_ALIGN).any():
            position = int(np.argmax(sizes % _BULK_ALIGN != 0))
            raise frame.error(d.instruction, f"a size of {int(sizes[position])} bytes, not a multiple of 16", position)
        sources = spans(source, frame, slots, sizes, False)
        targets = spans(target, frame, slots, sizes, True)
        if barrier is not None:
            indexes = barrier_indexes(barrier, slots, frame)
            _start(d, frame, sources, targets, indexes, None if mask is None else slots[mask], reduction)
            return
        frame.wave.bulk.store([
            Flight(d.instruction, int(thread), int(n), s, (t,), (), reduction)
            for thread, n, s, t in zip(frame.ids, sizes, sources, targets, strict=True)
        ])  # fmt: skip

    return run
