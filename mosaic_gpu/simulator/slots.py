"""Slots: where the operands of a kernel's instructions live.

A slot is an index into the list `V` that every operation is given.  It stands for a register seen as
one NumPy type (a register has a row of storage, and one slot per way of looking at it), a constant, or
a special register.  Registers that live inside one basic block share rows, so the storage of a kernel
with thousands of registers stays small enough for the processor's cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from mosaic_gpu.simulator.ptx import TYPES, Instruction, Register, Symbol, unsupported

#: Special registers that are the same for all threads of a launch, or differ by thread; see `wave.py`.
SPECIALS = frozenset(
    [f"%{n}.{c}" for n in ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid",
                           "cluster_nctaid") for c in "xyzw"]
    + [f"%lanemask_{n}" for n in ("eq", "lt", "le", "gt", "ge")]
    + ["%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%gridid", "%dynamic_smem_size",
       "%total_smem_size", "%aggr_smem_size", "%cluster_ctarank", "%cluster_nctarank",
       "%is_explicit_cluster", "%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo",
       "%globaltimer_hi"]
)  # fmt: skip
#: Special registers that are read anew each time.
TIMERS = frozenset(name for name in SPECIALS if "clock" in name or "globaltimer" in name)


class Row(NamedTuple):
    """A row of storage: `dtype` is bool for predicates, else unsigned of the register's width."""

    dtype: str
    number: int


class View(NamedTuple):
    """A row seen as `dtype`, taking every `step`-th piece from `start`."""

    row: Row
    dtype: np.dtype[Any]
    step: int
    start: int


@dataclass
class Slots:
    """The slots of a kernel, filled while its instructions are prepared."""

    addresses: dict[str, int]
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    views: list[View | tuple[str, np.dtype[Any]] | Any] = field(default_factory=list)
    index: dict[Any, int] = field(default_factory=dict)
    local_rows: set[Row] = field(default_factory=set)
    function: str = ""

    def _slot(self, key: Any, what: Any) -> int:
        slot = self.index.get(key)
        if slot is None:
            slot = self.index[key] = len(self.views)
            self.views.append(what)
        return slot

    def new_row(self, dtype: str) -> Row:
        """A fresh row of storage."""
        count = self.counts.get(dtype, 0)
        self.counts[dtype] = count + 1
        return Row(dtype, count)

    def row_of(self, register: Register) -> Row:
        """The row of a register of the current function."""
        key = (self.function, register.name)
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = self.new_row(storage_type(register))
        return row

    def view(self, register: Register, dtype: np.dtype[Any], step: int, start: int) -> int:
        """The slot of a register seen as `dtype`."""
        return self.row_view(View(self.row_of(register), dtype, step, start))

    def row_view(self, view: View) -> int:
        """The slot of a view of a row."""
        return self._slot(view, view)

    def constant(self, value: Any, dtype: np.dtype[Any]) -> int:
        """The slot of a constant."""
        array = np.asarray(value, dtype).reshape(1)
        array.flags.writeable = False
        return self._slot((dtype.str, array.tobytes()), array)

    def special(self, name: str, dtype: np.dtype[Any]) -> int | None:
        """The slot of a special register read as `dtype`, or None if there is none of that name."""
        if name not in SPECIALS or name in TIMERS:
            return None
        return self._slot((name, dtype.str), (name, dtype))

    def sink(self, dtype: np.dtype[Any]) -> int:
        """The slot of a destination that nobody reads."""
        kind = storage_of(dtype)
        key = ("", f"_{kind}")
        if key not in self.rows:
            self.rows[key] = self.new_row(kind)
        return self.row_view(View(self.rows[key], dtype, 1, 0))

    def link(self, function: str) -> int:
        """The slot of the block that a device function returns to."""
        key = (function, "return")
        if key not in self.rows:
            self.rows[key] = self.new_row("u4")
        return self.row_view(View(self.rows[key], np.dtype(np.uint32), 1, 0))

    def condition_code(self) -> int:
        """The slot of the carry of add.cc and its like."""
        return self.view(Register("CC", "pred"), np.dtype(np.bool_), 1, 0)

    def address_of(self, symbol: Symbol, instruction: Instruction) -> int:
        """The address of a variable; names are looked up in the function first."""
        for key in (f"{self.function}/{symbol.name}", symbol.name):
            if key in self.addresses:
                return self.addresses[key] + symbol.offset
        raise unsupported(instruction, f"the address of `{symbol.name}`, which is not a variable here")


def storage_type(register: Register) -> str:
    """The storage of a register: one row of bool, u1, u2, u4, u8 or V16 per register."""
    return storage_of(TYPES[register.type])


def storage_of(dtype: np.dtype[Any]) -> str:
    """The storage of values of a type."""
    return {"b": "?", "V": "V16"}.get(dtype.kind, f"u{dtype.itemsize}")
