"""Operands, constants and variable declarations of PTX."""

from __future__ import annotations

import re
import struct

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.simulator.ptx import (
    TYPES,
    Address,
    Immediate,
    Negated,
    Operand,
    Pair,
    Register,
    Relocation,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
    syntax_error,
)

NAME = r"[A-Za-z_$%][\w$]*"
_OPERAND = re.compile(r"\s*((?:[^,{}\[\]()]|\{[^{}]*\}|\[[^\[\]]*\]|\([^()]*\))+?)\s*(,|\Z)")
_RANGE = re.compile(rf"({NAME}?)<(\d+)>\Z")
# PTX ISA, "Special Registers".
_SPECIAL = re.compile(
    r"%(?:(?:n?tid|n?ctaid|n?clusterid|cluster_n?ctaid)(?:\.[xyzw])?|laneid|n?warpid|n?smid|gridid|cluster_n?ctarank"
    r"|is_explicit_cluster|lanemask_(?:eq|l[et]|g[et])|clock(?:_hi|64)?|globaltimer(?:_lo|_hi)?|envreg\d+|pm\d+(?:_64)?"
    r"|(?:dynamic|total|aggr)_smem_size|reserved_smem_\w+|current_graph_exec)\Z"
)
_INTEGER = re.compile(r"([-~+]?)\s*(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?\Z")
_BITS = re.compile(r"(-?)0([fFdD])([0-9a-fA-F]+)\Z")
_DECIMAL = re.compile(r"[-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)\Z")
# Offsets are added, negative ones too: `%r-4` is no address to ptxas (PTX ISA, "Addresses as Operands").
_SYMBOL = re.compile(rf"({NAME})\s*(?:\+\s*(-?\w+))?\Z")
_ADDRESS = re.compile(rf"({NAME}|-?\w+)\s*(?:\+\s*(-?\w+))?\s*(?:,(.*))?\Z", re.DOTALL)
_VARIABLE = re.compile(
    rf"""\s*(?P<attributes>(?:\.(?:global|shared|const|local|param|attribute|align|v2|v4|v8)\b
        (?:\s*\([^()]*\))?(?:\s*\d+)?\s*)*)
    \.(?P<type>\w+)\s+
    (?P<pointer>(?:\.(?:ptr|global|shared|const|local)\s*|\.align\s+\d+\s*)*)
    (?P<name>{NAME})\s*(?P<dims>(?:\[\s*\w*\s*\]\s*)*)(?:=\s*(?P<init>.*))?\Z""",
    re.VERBOSE | re.DOTALL,
)
_ALIGN = re.compile(r"\.align\s*(\d+)")
_SPACE = re.compile(r"\.(global|shared|const|local|param)\b")
_BYTES = {name: dtype.itemsize for name, dtype in TYPES.items()}


class Scope:
    """The names that one pair of braces declares; `start` is the index of its first instruction."""

    def __init__(self, suffix: str, start: int) -> None:
        self.suffix = suffix
        self.start = start
        self.registers: dict[str, Register] = {}
        self.ranges: dict[str, tuple[int, str]] = {}
        self.variables: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.operands: dict[str, Operand] = {}

    def declare(self, type_name: str, names: str) -> None:
        """`.reg .type names`, where a name may be a range %r<8>; raises ValueError for a bad one."""
        if type_name not in _BYTES:
            raise ValueError(f"unknown register type .{type_name}")
        self.operands.clear()
        for name in names.split(","):
            name = name.strip()
            if match := _RANGE.match(name):
                self.ranges[match[1]] = (int(match[2]), type_name)
            elif re.fullmatch(NAME, name):
                self.registers[name] = Register(name + self.suffix, type_name)
            else:
                raise ValueError(f"bad register name {name!r}")

    def find(self, name: str) -> Register | Symbol | None:
        """What `name` means here, or None if this scope does not declare it."""
        if found := self.registers.get(name):
            return found
        if name in self.variables:
            return Symbol(self.variables[name], 0)
        prefix = name.rstrip("0123456789")
        if prefix in self.ranges and prefix != name:
            count, type_name = self.ranges[prefix]
            if int(name[len(prefix) :]) < count:
                return self.registers.setdefault(name, Register(name + self.suffix, type_name))
        return None


def split_operands(text: str) -> list[str]:
    """The operands of an instruction, split at the commas outside brackets."""
    if "{" not in text and "[" not in text and "(" not in text:
        return [part.strip() for part in text.split(",")] if text else []
    parts, pos = [], 0
    while pos < len(text):
        match = _OPERAND.match(text, pos)
        if match is None:
            raise ValueError(f"cannot read the operands {text!r}")
        parts.append(match[1])
        pos = match.end()
    return parts


def parse_constant(text: str) -> Immediate | None:
    """An integer or a float constant, or None."""
    if match := _INTEGER.match(text):
        digits = match[2]
        octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
        value = int(digits, 8) if octal else int(digits, 0)
        return Immediate({"-": -value, "~": ~value}.get(match[1], value), "int")
    if match := _BITS.match(text):
        kind = "f32" if match[2] in "fF" else "f64"
        sign = 1 << (31 if kind == "f32" else 63)
        bits = int(match[3], 16)
        if len(match[3]) != (8 if kind == "f32" else 16):
            raise ValueError(f"the float constant {text!r} has the wrong number of digits")
        return Immediate(bits ^ sign if match[1] else bits, kind)
    if _DECIMAL.match(text):
        return Immediate(int.from_bytes(struct.pack("<d", float(text)), "little"), "f64")
    return None


def _offset(digits: str | None) -> int:
    return 0 if digits is None else int(digits, 0)


def parse_operand(text: str, scopes: list[Scope]) -> Operand:
    """One operand with its names resolved; raises ValueError where there is none such."""
    cache = scopes[-1].operands
    found = cache.get(text)
    if found is None:
        found = cache[text] = _parse_operand(text, scopes)
    return found


def _parse_operand(text: str, scopes: list[Scope]) -> Operand:
    first = text[:1]
    if first == "[":
        return _parse_address(text[1:-1].strip(), scopes)
    if first in "{(":
        items = split_operands(text[1:-1].strip())
        return Vector(tuple(parse_operand(item, scopes) for item in items))
    if text == "_":
        return Sink()
    if first == "!":
        inner = parse_operand(text[1:].strip(), scopes)
        if not isinstance(inner, Register):
            raise ValueError(f"a predicate expected after `!`, got {text!r}")
        return Negated(inner)
    if "|" in text:
        left, right = text.split("|", 1)
        return Pair(parse_operand(left.strip(), scopes), parse_operand(right.strip(), scopes))
    if text == "WARP_SZ":
        return Immediate(32, "int")
    constant = parse_constant(text)
    return constant if constant is not None else _parse_name(text, scopes)


def _parse_name(text: str, scopes: list[Scope]) -> Operand:
    for scope in reversed(scopes):
        if (found := scope.find(text)) is not None:
            return found
    if _SPECIAL.match(text):
        return Special(text)
    if match := _SYMBOL.match(text):
        if match[1].startswith("%"):
            raise ValueError(f"the register {match[1]} is not declared")
        base = _parse_name(match[1], scopes) if match[2] else Symbol(match[1], 0)
        if isinstance(base, Symbol):
            return Symbol(base.name, base.offset + _offset(match[2]))
    raise ValueError(f"cannot read the operand {text!r}")


def _parse_address(text: str, scopes: list[Scope]) -> Address:
    match = _ADDRESS.match(text)
    if match is None:
        raise ValueError(f"cannot read the address [{text}]")
    extra = tuple(parse_operand(item, scopes) for item in split_operands((match[3] or "").strip()))
    base = parse_operand(match[1], scopes)
    if not isinstance(base, Register | Symbol | Immediate):
        raise ValueError(f"cannot read the address [{text}]")
    return Address(base, _offset(match[2]), extra)


def parse_variables(text: str | None, line: int) -> tuple[Variable, ...]:
    """The parameters between the parentheses of a function's head."""
    if text is None or not text.strip():
        return ()
    return tuple(parse_variable(part, line) for part in text.split(","))


def parse_variable(text: str, line: int, *, extern: bool = False) -> Variable:
    """One declaration without its semicolon; raises SimulationError where it cannot be read."""
    match = _VARIABLE.match(text.strip())
    if match is None or match["type"] not in _BYTES:
        if text.strip().startswith(".reg"):
            return _register_parameter(text, line)
        raise syntax_error(line, f"cannot read the declaration `{' '.join(text.split())[:120]}`")
    attributes, type_name = match["attributes"], match["type"]
    space = _SPACE.search(attributes)
    element = _BYTES[type_name]
    vector = re.search(r"\.v([248])\b", attributes)
    if vector:
        element *= int(vector[1])
    align = _ALIGN.search(attributes)
    if align and (not int(align[1]) or int(align[1]) & (int(align[1]) - 1)):
        raise syntax_error(line, f"an alignment of {align[1]} bytes")
    dims = re.findall(r"\[\s*(\w*)\s*\]", match["dims"])
    data, count = b"", 1
    relocations: list[Relocation] = []
    if match["init"] is not None:
        data, relocations = _initialiser(match["init"], type_name, line)
    for dim in dims:
        if dim and not dim.isdigit() and not _INTEGER.match(dim):
            raise syntax_error(line, f"`{match['name']}`: cannot read the size [{dim}]")
        count *= int(dim, 0) if dim else len(data) // _BYTES[type_name]
    size = count * element
    if len(data) > size:
        raise syntax_error(line, f"the initialiser of `{match['name']}` is longer than the variable")
    return Variable(
        match["name"], space[1] if space else "param", type_name, int(align[1]) if align else element,
        size, line, data, tuple(relocations), extern, bool(dims),
    )  # fmt: skip


def _register_parameter(text: str, line: int) -> Variable:
    match = re.fullmatch(rf"\s*\.reg\s+\.(\w+)\s+({NAME})\s*", text)
    if match is None or match[1] not in _BYTES:
        raise syntax_error(line, f"cannot read the parameter `{text.strip()}`")
    return Variable(match[2], "reg", match[1], _BYTES[match[1]], _BYTES[match[1]], line)


def _initialiser(text: str, type_name: str, line: int) -> tuple[bytes, list[Relocation]]:
    """The bytes of an initialiser, and the addresses to be filled in at launch."""
    width, data, relocations = _BYTES[type_name], bytearray(), []
    for item in re.sub(r"[{}]", " ", text).split(","):
        item = item.strip()
        try:
            constant = parse_constant(item) if item else Immediate(0, "int")
        except ValueError as error:
            raise syntax_error(line, str(error)) from None
        if constant is not None:
            data += _constant_bytes(constant, type_name, width)
            continue
        generic = re.fullmatch(r"generic\s*\(\s*([^()]*?)\s*\)(.*)", item)
        match = _SYMBOL.match(generic[1] + generic[2] if generic else item)
        if match is None:
            raise syntax_error(line, f"cannot read the initialiser `{item}`")
        symbol = Symbol(match[1], _offset(match[2]))
        relocations.append(Relocation(len(data), width, symbol, generic is not None))
        data += bytes(width)
    return bytes(data), relocations


def _constant_bytes(constant: Immediate, type_name: str, width: int) -> bytes:
    if type_name in ("f32", "f64"):
        number = constant_float(constant)
        return struct.pack("<f" if type_name == "f32" else "<d", number)
    return (constant.value & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def constant_float(constant: Immediate) -> float:
    """The value of a constant as a Python float."""
    if constant.kind == "int":
        return float(constant.value)
    width, code = (4, "<f") if constant.kind == "f32" else (8, "<d")
    value: float = struct.unpack(code, constant.value.to_bytes(width, "little"))[0]
    return value


def at_line(line: int, error: ValueError) -> SimulationError:
    """The same fault with its PTX line."""
    return syntax_error(line, str(error))
