"""wmma: load, multiply and store of whole matrices against NumPy, for every shape, type and layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError
from tests.simulator import models
from tests.simulator.harness import launch

Array = np.ndarray[Any, np.dtype[Any]]
WIDE = [(16, 16, 16), (8, 32, 16), (32, 8, 16)]
#: type of A and B, of C and D -> registers of A, B for each shape, and of C and D (PTX ISA, wmma.load).
CASES = [
    *[(s, "f16", c, (8, 8), 8 if c == "f32" else 4) for s in WIDE for c in ("f32", "f16")],
    *[(s, "bf16", "f32", {16: (4, 4), 8: (2, 8), 32: (8, 2)}[s[0]], 8) for s in WIDE],
    *[(s, kind, "s32", {16: (2, 2), 8: (1, 4), 32: (4, 1)}[s[0]], 8) for s in WIDE for kind in ("s8", "u8")],
    ((16, 16, 8), "tf32", "f32", (4, 4), 8),
    ((8, 8, 4), "f64", "f64", (1, 1), 2),
]


def program(shape: tuple[int, int, int], kind: str, acc: str, counts: Any, layouts: tuple[str, str, str]) -> str:
    """Loads A, B and C from p0, p1, p2 with the strides p4, p5, p6, and stores D to p3."""
    name = "m{}n{}k{}".format(*shape)
    word = {"f64": "b64"}.get(kind, "b32")
    accumulator = "b64" if acc == "f64" else "b32"
    lists = [[f"%{which}{i}" for i in range(count)] for which, count in zip("abcd", counts, strict=True)]
    lines = [".reg .b64 %p<4>; .reg .b32 %s<3>;"]
    lines += [f".reg .{accumulator if i > 1 else word} {', '.join(names)};" for i, names in enumerate(lists)]
    lines += [f"ld.param.u64 %p{i}, [p{i}];" for i in range(4)] + [f"ld.param.u32 %s{i}, [p{i + 4}];" for i in range(3)]
    a, b, c, d = ("{" + ", ".join(names) + "}" for names in lists)
    types = f"{acc}.{acc}" if kind == "f16" else f"{acc}.{kind}.{kind}.{acc}"
    lines += [
        f"wmma.load.a.sync.aligned.{layouts[0]}.{name}.global.{kind} {a}, [%p0], %s0;",
        f"wmma.load.b.sync.aligned.{layouts[1]}.{name}.{kind} {b}, [%p1+0], %s1;",
        f"wmma.load.c.sync.aligned.{layouts[2]}.{name}.global.{acc} {c}, [%p2], %s2;",
        f"wmma.mma.sync.aligned.{layouts[0]}.{layouts[1]}.{name}.{types} {d}, {a}, {b}, {c};",
        f"wmma.store.d.sync.aligned.{layouts[2]}.{name}.global.{acc} [%p3], {d}, %s2;",
    ]
    return "\n".join(lines)


def padded(matrix: Array, layout: str, stride: int) -> Array:
    """The matrix in memory with a stride, in row or column order."""
    rows = matrix if layout == "row" else matrix.T
    result = np.zeros((len(rows), stride), matrix.dtype)
    result[:, : rows.shape[1]] = rows
    return result


@pytest.mark.parametrize("layouts", [("row", "col", "row"), ("col", "row", "col"), ("row", "row", "row")])
@pytest.mark.parametrize(("shape", "kind", "acc", "ab", "cd"), CASES)
def test_load_multiply_store(shape: Any, kind: str, acc: str, ab: Any, cd: int, layouts: tuple[str, str, str]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m + k)
    a, b = models.random_matrix(rng, (m, k), kind), models.random_matrix(rng, (k, n), kind)
    c = rng.integers(-50, 50, (m, n)).astype(models.DTYPES[acc])
    strides = (40, 48, 56)
    memory = [padded(x, layout, s) for x, layout, s in zip((a, b, c), layouts, strides, strict=True)]
    out = np.zeros_like(memory[2])
    launch(program(shape, kind, acc, (*ab, cd, cd), layouts), [*memory, out, *strides])
    want = padded(models.product(a, b, c).astype(models.DTYPES[acc]), layouts[2], strides[2])
    np.testing.assert_array_equal(out, want)


def test_an_address_that_differs_between_lanes_is_an_error() -> None:
    body = """.reg .b64 %a; .reg .b32 %r<10>; ld.param.u64 %a, [p0]; mov.u32 %r0, %tid.x; mul.wide.u32 %a, %r0, 2;
    wmma.load.a.sync.aligned.row.m16n16k16.global.bf16 {%r1, %r2, %r3, %r4}, [%a], 16;"""
    with pytest.raises(SimulationError, match="different addresses"):
        launch(body, [np.zeros(512, np.uint16)])


def test_a_matrix_past_the_end_of_its_buffer_is_an_error() -> None:
    body = """.reg .b64 %a; .reg .b32 %r<10>; ld.param.u64 %a, [p0];
    wmma.load.a.sync.aligned.row.m16n16k16.global.bf16 {%r1, %r2, %r3, %r4}, [%a], 17;"""
    with pytest.raises(SimulationError, match="out-of-bounds global matrix load"):
        launch(body, [np.zeros(256, np.uint16)])
