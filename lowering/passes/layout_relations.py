"""What an op that moves elements says about the layouts of its operand and its result.

A relation maps the operand's layout to the one of the result in which no element changes its thread
(`forward`), and back (`backward`).  None means that there is none, or that it is not worth to look for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.lowering.passes.layout_costs import BARRIER_COST, conversion_cost

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Relation:
    """The base of them all.

    Attributes:
      operand_shape, result_shape: shapes of the two tiles.
    """

    operand_shape: Shape
    result_shape: Shape

    def forward(self, layout: Layout) -> Layout | None:
        """The result's layout that costs nothing for an operand in `layout`."""
        raise NotImplementedError

    def backward(self, layout: Layout) -> Layout | None:
        """An operand's layout that costs nothing for a result in `layout`."""
        raise NotImplementedError

    def cost(self, operand: Layout, result: Layout, element_bytes: int) -> int:
        """Bytes moved from an operand in one layout to a result in another."""
        natural = self.forward(operand)
        if natural is not None:
            return conversion_cost(natural, result, self.result_shape, element_bytes)
        return (
            BARRIER_COST
            + (result.num_threads * result.num_registers(self.result_shape) * element_bytes)
            + ((operand.num_threads >> operand.free_threads.bit_count()) * operand.num_registers(self.operand_shape))
            * element_bytes
        )


@dataclass(frozen=True)
class Reduced(Relation):
    """`mgpu.reduce` along `axes`."""

    axes: Shape

    def forward(self, layout: Layout) -> Layout:
        return layout.slice(self.axes)

    def backward(self, layout: Layout) -> None:
        return None


@dataclass(frozen=True)
class Broadcast(Relation):
    """`mgpu.broadcast`; the op takes nothing but `backward(result's layout)`."""

    dimensions: Shape

    def forward(self, layout: Layout) -> None:
        return None

    def backward(self, layout: Layout) -> Layout:
        return layout.broadcast_source(self.dimensions, self.operand_shape, self.result_shape)

    def cost(self, operand: Layout, result: Layout, element_bytes: int) -> int:
        return conversion_cost(operand, self.backward(result), self.operand_shape, element_bytes)


@dataclass(frozen=True)
class Transposed(Relation):
    """`mgpu.transpose`."""

    permutation: Shape

    def forward(self, layout: Layout) -> Layout:
        return layout.transpose(self.permutation)

    def backward(self, layout: Layout) -> Layout:
        inverse = sorted(range(len(self.permutation)), key=self.permutation.__getitem__)
        return layout.transpose(inverse)


@dataclass(frozen=True)
class Reshaped(Relation):
    """`mgpu.reshape`."""

    def forward(self, layout: Layout) -> Layout | None:
        return layout.reshape(self.operand_shape, self.result_shape)

    def backward(self, layout: Layout) -> Layout | None:
        return layout.reshape(self.result_shape, self.operand_shape)


@dataclass(frozen=True)
class Boxed(Relation):
    """`mgpu.slice`, or (with the roles of both sides exchanged) one operand of `mgpu.concatenate`.

    Free where the box starts at a multiple of what the threads span, so that only registers are counted off.
    """

    starts: Shape
    strides: Shape

    def forward(self, layout: Layout) -> Layout | None:
        return layout if _keeps_threads(layout, self.starts, self.strides) else None

    def backward(self, layout: Layout) -> Layout | None:
        return self.forward(layout)


@dataclass(frozen=True)
class Widened(Relation):
    """`mgpu.bitcast` to narrower elements: a last dimension of `factor` elements, all in one thread."""

    factor: int

    def forward(self, layout: Layout) -> Layout:
        return layout.append(self.factor)

    def backward(self, layout: Layout) -> Layout | None:
        return _without_last(layout, self.factor)


@dataclass(frozen=True)
class Narrowed(Relation):
    """`mgpu.bitcast` to wider elements; the op takes nothing but `backward(result's layout)`."""

    factor: int

    def forward(self, layout: Layout) -> Layout | None:
        return _without_last(layout, self.factor)

    def backward(self, layout: Layout) -> Layout:
        return layout.append(self.factor)

    def cost(self, operand: Layout, result: Layout, element_bytes: int) -> int:
        return conversion_cost(operand, self.backward(result), self.operand_shape, element_bytes)


@lru_cache(1024)
def _keeps_threads(layout: Layout, starts: Shape, strides: Shape) -> bool:
    for d, (start, stride) in enumerate(zip(starts, strides, strict=True)):
        span = 0
        for image in layout.thread_images:
            span |= image[d]
        if stride != 1 or start % (1 << span.bit_length()):
            return False
    return True


@lru_cache(1024)
def _without_last(layout: Layout, factor: int) -> Layout | None:
    """The layout that `append(factor)` made into `layout`."""
    if layout.rank == 1 or layout.base[-1] != factor:
        return None
    inner = layout.slice([layout.rank - 1])
    return inner if inner.append(factor) == layout else None
