"""Where a kernel's variables live: offsets in shared and local memory, addresses of module variables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.simulator.memory import FUNCTION_BASE, LOCAL_WINDOW, MODULE_BASE, PARAM_WINDOW
from mosaic_gpu.simulator.ptx import Function, Operand, Program, Variable

if TYPE_CHECKING:
    from mosaic_gpu.simulator.memory import Access

#: The widest access, and so the widest unit that memory is divided into.
WIDEST_ACCESS = 32


@dataclass
class Layout:
    """Addresses by name; a function's own variables have the key "function/name".

    `functions` are the addresses that stand for the functions, `params` gives the byte offset of each
    parameter of the entry, `shared_bytes` the static shared memory of a block (dynamic shared memory begins
    there), `local_bytes` the local memory of a thread.
    `accesses` are the kernel's accesses to memory, numbered from 1 by place; `shared_unit` and `global_unit` the
    bytes of the narrowest one; `fenced` says that blocks may pass data to one another; `swapped` are the
    functions' address operands of a compare-and-swap.
    """

    addresses: dict[str, int] = field(default_factory=dict)
    spaces: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)
    params: list[int] = field(default_factory=list)
    param_bytes: int = 0
    shared_bytes: int = 0
    local_bytes: int = 0
    accesses: list[Access] = field(default_factory=list)
    shared_unit: int = 16
    global_unit: int = WIDEST_ACCESS
    fenced: bool = False
    swapped: set[tuple[str, Operand]] = field(default_factory=set)

    def note_access(self, access: Access) -> Access:
        """Numbers an access of the kernel."""
        self.accesses.append(access)
        access.number = len(self.accesses)
        if access.space in ("", "shared"):
            self.shared_unit = min(self.shared_unit, access.total)
        if access.space in ("", "global", "const"):
            self.global_unit = min(self.global_unit, access.total)
        return access

    def _put(self, key: str, space: str, address: int, variable: Variable) -> None:
        self.addresses[key], self.spaces[key], self.variables[key] = address, space, variable

    def find(self, function: str, name: str) -> str | None:
        """The key of a name used in a function."""
        own = f"{function}/{name}"
        return own if own in self.addresses else name if name in self.addresses else None


def align_up(offset: int, align: int) -> int:
    """The next multiple of `align`."""
    return -(-offset // align) * align


def lay_out(program: Program, entry: Function, functions: list[Function]) -> Layout:
    """The layout of the entry and of the device functions that it reaches."""
    layout = Layout()
    layout.functions = {name: FUNCTION_BASE + 16 * number for number, name in enumerate(program.functions)}
    _module_variables(layout, program)
    offset = 0
    for variable in entry.params:
        offset = align_up(offset, variable.align)
        layout.params.append(offset)
        layout._put(f"{entry.name}/{variable.name}", "param", PARAM_WINDOW + offset, variable)
        offset += variable.size
    layout.param_bytes = offset
    dynamic: list[tuple[str, Variable]] = []
    for key, variable in _shared(program, functions):
        if variable.extern and not variable.size:
            dynamic.append((key, variable))
            continue
        start = align_up(layout.shared_bytes, variable.align)
        layout._put(key, "shared", start, variable)
        layout.shared_bytes = start + variable.size
    for _, variable in dynamic:
        layout.shared_bytes = align_up(layout.shared_bytes, variable.align)
    for key, variable in dynamic:
        layout._put(key, "shared", layout.shared_bytes, variable)
    for function in functions:
        _locals(layout, function)
        layout.swapped.update(
            (function.name, i.operands[1])
            for i in function.instructions
            if i.opcode == "atom" and "cas" in i.modifiers and len(i.operands) > 1
        )
    return layout


def _module_variables(layout: Layout, program: Program) -> None:
    address = MODULE_BASE
    for name, variable in program.variables.items():
        if variable.space in ("global", "const") and not variable.extern:
            address = align_up(address, max(variable.align, 256))
            layout._put(name, variable.space, address, variable)
            address += variable.size + 4096


def _shared(program: Program, functions: list[Function]) -> list[tuple[str, Variable]]:
    found = [(name, v) for name, v in program.variables.items() if v.space == "shared"]
    for function in functions:
        found += [(f"{function.name}/{v.name}", v) for v in function.variables if v.space == "shared"]
    return found


def _locals(layout: Layout, function: Function) -> None:
    """Local variables, and the .param variables of calls, are local memory of the thread."""
    own = list(function.variables) if function.is_entry else [*function.returns, *function.params, *function.variables]
    for variable in own:
        if variable.space in ("global", "const"):
            raise UnsupportedError(
                f"PTX line {variable.line}: `{variable.name}`: a .{variable.space} variable inside a function"
            )
        if variable.space not in ("local", "param"):
            continue
        start = align_up(layout.local_bytes, max(variable.align, 8))
        is_param = variable.space == "param"
        base = LOCAL_WINDOW if is_param else 0
        layout._put(f"{function.name}/{variable.name}", variable.space, base + start, variable)
        layout.local_bytes = start + variable.size
