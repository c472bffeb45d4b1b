"""The body of a PTX function -> instructions, labels, variables."""

from __future__ import annotations

import re
from dataclasses import replace

from mosaic_gpu.errors import SourceLine
from mosaic_gpu.simulator.parse_operands import (
    Scope,
    at_line,
    parse_operand,
    parse_variable,
    split_operands,
)
from mosaic_gpu.simulator.ptx import Instruction, Operand, Register, Symbol, Variable, syntax_error

STATEMENT = re.compile(
    r"""\s*(?:
      (?:@(?P<not>!?)\s*(?P<guard>%?[\w$]+)\s+)?
          (?P<op>[a-z]\w*(?:(?:\.|::)\w+)*)(?=[\s;])(?!\s*:)\s*(?P<rest>[^;]*);
    | (?P<label>[A-Za-z_$%][\w$]*)\s*:(?!:)
    | (?P<brace>[{}])
    | (?P<dir>\.[A-Za-z_]\w*)
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_LOC = re.compile(r"\s*(\d+)\s+(\d+)\s+(\d+)[^\n]*")
_DECLARATION = re.compile(r"([^;]*);")
_REGISTERS = re.compile(r"\s*\.(\w+)\s+([^;]*);")


class Body:
    """Parses from `pos`, just inside the opening brace; `parse` returns the position after the closing one."""

    def __init__(self, text: str, pos: int, line: int, files: dict[int, str], name: str) -> None:
        self.text, self.pos, self.line, self.files, self.name = text, pos, line, files, name
        self.scopes = [Scope("", 0)]
        self.scope_count = 0
        self.variables: list[Variable] = []
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.tables: dict[str, tuple[str, ...]] = {}
        self.source: SourceLine | None = None
        self.modifiers: dict[str, tuple[str, ...]] = {}

    def parse(self) -> int:
        text, match_at, seen = self.text, STATEMENT.match, self.pos
        while self.scopes:
            match = match_at(text, self.pos)
            if match is None:
                raise syntax_error(self.line + self._blank_lines(seen), "this is not a PTX statement")
            kind = match.lastgroup or "end"
            start = match.start("op" if kind == "rest" else kind)
            self.line += text.count("\n", seen, start)
            seen = start
            self.pos = match.end()
            if kind == "rest":
                self._instruction(match)
            elif kind == "label":
                self._label(match["label"])
            elif kind == "brace":
                self._brace(match["brace"])
            elif kind == "dir":
                self._directive(match["dir"])
            else:
                raise syntax_error(self.line, f"the text ends inside `{self.name}`: `}}` expected")
        return self.pos

    def _blank_lines(self, seen: int) -> int:
        """The lines between the last statement seen and the next character that is not blank."""
        pos = self.pos
        while pos < len(self.text) and self.text[pos].isspace():
            pos += 1
        return self.text.count("\n", seen, pos)

    def _instruction(self, match: re.Match[str]) -> None:
        name = match["op"]
        words = self.modifiers.get(name)
        if words is None:
            words = self.modifiers[name] = _split_name(name)
        try:
            guard = self._guard(match["guard"]) if match["guard"] else None
            scopes = self.scopes
            cache = scopes[-1].operands
            operands = tuple(
                [cache.get(part) or parse_operand(part, scopes) for part in split_operands(match["rest"].rstrip())]
            )
        except ValueError as error:
            raise at_line(self.line, error) from None
        self.instructions.append(
            Instruction(words[0], words[1:], guard, match["not"] == "!", operands, self.line, self.source)
        )

    def _guard(self, name: str) -> Register:
        register = parse_operand(name, self.scopes)
        if not isinstance(register, Register) or register.type != "pred":
            raise ValueError(f"the guard {name} is not a predicate register")
        return register

    def _label(self, name: str) -> None:
        scope = self.scopes[-1]
        unique = name + scope.suffix
        if unique in self.labels or unique in self.tables:
            raise syntax_error(self.line, f"the label {name} is defined twice")
        if scope.suffix:
            scope.labels[name] = unique
        self.labels[unique] = len(self.instructions)

    def _brace(self, brace: str) -> None:
        if brace == "{":
            self.scope_count += 1
            self.scopes.append(Scope(f"#{self.scope_count}", len(self.instructions)))
            return
        scope = self.scopes.pop()
        for position in range(scope.start, len(self.instructions)) if scope.labels else ():
            self._rename_target(position, scope)

    def _rename_target(self, position: int, scope: Scope) -> None:
        """A branch or a call inside a scope means the scope's own label or table, also one further down."""
        instruction = self.instructions[position]
        if instruction.opcode in ("bra", "brx", "call"):
            operands: list[Operand] = [
                Symbol(scope.labels.get(o.name, o.name), 0) if isinstance(o, Symbol) else o
                for o in instruction.operands
            ]
            self.instructions[position] = instruction._replace(operands=tuple(operands))

    def _directive(self, word: str) -> None:
        if word == ".loc":
            match = self._take(_LOC, "file, line and column")
            name = self.files.get(int(match[1]))
            self.source = SourceLine(name, int(match[2])) if name and int(match[2]) else None
        elif word == ".reg":
            match = self._take(_REGISTERS, "a register declaration")
            try:
                self.scopes[-1].declare(match[1], match[2])
            except ValueError as error:
                raise at_line(self.line, error) from None
        elif word in (".shared", ".local", ".param", ".global", ".const"):
            self._variable(f"{word} {self._take(_DECLARATION, '`;`')[1]}")
        elif word in (".branchtargets", ".calltargets"):
            self._table(self._take(_DECLARATION, "`;`")[1])
        elif word in (".pragma", ".callprototype"):
            self._take(_DECLARATION, "`;`")
        else:
            raise syntax_error(self.line, f"unknown directive `{word}`")

    def _take(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        match = pattern.match(self.text, self.pos)
        if match is None:
            raise syntax_error(self.line, f"{what} expected")
        self.pos = match.end()
        return match

    def _variable(self, text: str) -> None:
        variable = parse_variable(text, self.line)
        scope = self.scopes[-1]
        unique = variable.name + scope.suffix
        scope.variables[variable.name] = unique
        scope.operands.clear()
        self.variables.append(replace(variable, name=unique))

    def _table(self, text: str) -> None:
        """`label: .branchtargets a, b;`: the label before it names the table."""
        names = [name for name, at in self.labels.items() if at == len(self.instructions)]
        if not names:
            raise syntax_error(self.line, "a table of targets needs a label")
        del self.labels[names[-1]]
        self.tables[names[-1]] = tuple(part.strip() for part in text.split(","))


def _split_name(name: str) -> tuple[str, ...]:
    """ld.global.L1::no_allocate.b32 -> (ld, global, L1::no_allocate, b32)."""
    return tuple(name.split("."))
