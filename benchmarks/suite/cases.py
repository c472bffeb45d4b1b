"""What is measured: cases, read from TOML, one line each.

softmax = [
  { dtype = "float32", m = 4096, n = 4096, block = [1] },
]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mosaic_gpu.errors import KernelError

from . import ops_attention, ops_matmul, ops_rows
from .floats import SHORT
from .operation import Operation

OPERATIONS: dict[str, Operation] = {
    operation.name: operation for operation in (*ops_matmul.OPERATIONS, *ops_attention.OPERATIONS, *ops_rows.OPERATIONS)
}


@dataclass(frozen=True)
class Case:
    """One measurement.

    Attributes:
      name: unlike any other case's; an identifier.
      operation: its name.
      dtype: of the inputs.
      sizes: by name, as the operation wants them; flags such as `causal` too.
      block: sizes of the blocks of our kernel.
    """

    name: str
    operation: str
    dtype: str
    sizes: Mapping[str, int] = field(hash=False)
    block: tuple[int, ...] = ()

    @property
    def how(self) -> Operation:
        """The operation itself."""
        return OPERATIONS[self.operation]

    def __getattr__(self, name: str) -> int:
        sizes: Mapping[str, int] = object.__getattribute__(self, "sizes")
        if name not in sizes:
            raise AttributeError(f"a case of {self.operation} has no {name}")
        return sizes[name]

    def line(self) -> dict[str, Any]:
        """The case as TOML and JSON hold it."""
        return {"name": self.name, "dtype": self.dtype, **self.sizes, "block": list(self.block)}


def read_cases(path: Path) -> list[Case]:
    """The cases of a file, in its order.

    Raises KernelError for a file that cannot be read, an operation, dtype or size that does not exist, a missing size,
    or two cases of one name.
    """
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise KernelError(f"the cases cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KernelError(f"{path} is no TOML: {error}") from error
    cases = [_case(name, line, path) for name, lines in content.items() for line in _lines(name, lines, path)]
    seen: set[str] = set()
    for case in cases:
        if case.name in seen:
            raise KernelError(f"{path}: two cases are named {case.name}", hint='give one of them a name = "..."')
        seen.add(case.name)
    if not cases:
        raise KernelError(f"{path} holds no cases")
    return cases


def _lines(name: str, lines: Any, path: Path) -> list[Any]:
    if name not in OPERATIONS:
        raise KernelError(f"{path}: there is no operation {name!r}", expected=", ".join(OPERATIONS))
    if not isinstance(lines, list):
        raise KernelError(f"{path}: what follows an operation is a list of cases", got=repr(lines))
    return lines


def _case(name: str, line: Any, path: Path) -> Case:
    operation = OPERATIONS[name]
    where = f"{path}: a case of {name}"
    if not isinstance(line, dict):
        raise KernelError(f"{where} is a table", got=repr(line), expected=f"{{ {_expected(operation)} }}")
    given = dict(line)
    dtype, block, title = given.pop("dtype", None), given.pop("block", []), given.pop("name", None)
    if dtype not in operation.dtypes:
        raise KernelError(f"{where} has a wrong dtype", got=dtype, expected=" or ".join(operation.dtypes))
    sizes = {**operation.flags, **given}
    if set(sizes) != {*operation.sizes, *operation.flags}:
        raise KernelError(
            f"{where} has other sizes than it should", got=", ".join(given), expected=_expected(operation)
        )
    for key, value in sizes.items():
        is_flag = key in operation.flags
        if not isinstance(value, bool if is_flag else int) or (not is_flag and (isinstance(value, bool) or value < 1)):
            raise KernelError(
                f"{where}: {key} is out of range", got=repr(value), expected="a flag" if is_flag else "1 or more"
            )
    case = Case(_name(name, dtype, sizes, title, where), name, dtype, sizes, _block(operation, block, where))
    fault = operation.fault(case)
    if fault:
        raise KernelError(f"{where} cannot be: {fault}")
    return case


def _expected(operation: Operation) -> str:
    flags = [f"{name} (left out: {str(value).lower()})" for name, value in operation.flags.items()]
    return ", ".join(["dtype", *operation.sizes, *flags, f"block of {len(operation.block)}"])


def _block(operation: Operation, block: Any, where: str) -> tuple[int, ...]:
    is_list = isinstance(block, list) and all(isinstance(n, int) and n > 0 for n in block)
    if not is_list or len(block) != len(operation.block):
        raise KernelError(f"{where} has a wrong block", got=repr(block), expected=f"[{', '.join(operation.block)}]")
    return tuple(block)


def _name(operation: str, dtype: str, sizes: Mapping[str, int], title: Any, where: str) -> str:
    if title is not None:
        if not isinstance(title, str) or not title.isidentifier():
            raise KernelError(f"{where} has a name that is no identifier", got=repr(title))
        return title
    numbers = "x".join(str(value) for value in sizes.values() if not isinstance(value, bool))
    flags = [key for key, value in sizes.items() if value is True]
    return "_".join([operation, SHORT[dtype], numbers, *flags])


def choose(cases: Sequence[Case], only: Sequence[str], quick: bool) -> list[Case]:
    """The cases that are asked for: by operation or name; the first of each operation where it is to be quick.

    Raises KernelError for a name that nothing has.
    """
    known = {case.operation for case in cases} | {case.name for case in cases}
    for name in only:
        if name not in known:
            hint = "cases: " + ", ".join(case.name for case in cases)
            operations = ", ".join(dict.fromkeys(case.operation for case in cases))
            raise KernelError(f"there is no operation or case {name!r}", expected=operations, hint=hint)
    chosen = [case for case in cases if not only or case.operation in only or case.name in only]
    if quick:
        named_ones = {case.name for case in chosen if case.name in only}
        first = {case.operation: case.name for case in reversed(chosen)}
        chosen = [case for case in chosen if case.name in named_ones or case.name == first[case.operation]]
    return chosen
