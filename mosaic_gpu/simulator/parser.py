"""PTX text -> `Program`.

One compiled regular expression recognises a statement at the current position; names are resolved
while parsing, because PTX scopes them by braces.  A text that does not fit raises SimulationError with
its line; nothing here knows what an instruction does.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache

from mosaic_gpu.simulator.parse_body import STATEMENT, Body
from mosaic_gpu.simulator.parse_operands import NAME, parse_variable, parse_variables
from mosaic_gpu.simulator.ptx import Function, Program, Register, Variable, syntax_error

_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LINE = re.compile(r"[^\n]*")
_FILE = re.compile(r'\s*(\d+)\s+"((?:[^"\\\n]|\\.)*)"[^\n]*')
_DECLARATION = re.compile(r"[^;]*;")
_FUNCTION_HEAD = re.compile(rf"\s*(?:\((?P<returns>[^()]*)\))?\s*(?P<name>{NAME})\s*(?:\((?P<params>[^()]*)\))?\s*")
_FUNCTION_DIRECTIVE = re.compile(r"\s*\.(\w+)((?:\s*\d+\s*,?)*)(?:\"[^\"]*\"\s*;?)?\s*")
_LINKAGE = {".visible", ".extern", ".weak", ".common"}
_VARIABLE_SPACES = {".global", ".shared", ".const", ".local", ".param"}
_HEADER = {".version", ".target", ".address_size"}


def _blank(match: re.Match[str]) -> str:
    """A comment becomes blanks with the same number of lines; a string stays."""
    text = match.group()
    return text if text[0] == '"' else "\n" * text.count("\n") + " "


@lru_cache(maxsize=256)
def parse(text: str) -> Program:
    """The program of a PTX text; raises SimulationError with the PTX line where it cannot be read."""
    return _Parser(text).program()


class _Parser:
    """Walks the text once; `pos` is the start of the next statement."""

    def __init__(self, text: str) -> None:
        self.text = _COMMENT.sub(_blank, text)
        self.pos = 0
        self.newlines = [m.start() for m in re.finditer("\n", self.text)]
        self.files: dict[int, str] = {}
        self.version = self.target = ""
        self.functions: dict[str, Function] = {}
        self.variables: dict[str, Variable] = {}

    def line_at(self, pos: int) -> int:
        return bisect_right(self.newlines, pos - 1) + 1 if pos else 1

    def here(self) -> int:
        """The line of the next character that is not blank."""
        pos = self.pos
        while pos < len(self.text) and self.text[pos].isspace():
            pos += 1
        return self.line_at(pos)

    def take(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        match = pattern.match(self.text, self.pos)
        if match is None:
            raise syntax_error(self.here(), f"{what} expected")
        self.pos = match.end()
        return match

    def program(self) -> Program:
        linkage: list[str] = []
        while True:
            line = self.here()
            match = STATEMENT.match(self.text, self.pos)
            if match is None or match.lastgroup not in ("dir", "end"):
                raise syntax_error(line, "a directive expected outside a function")
            self.pos = match.end()
            if match.lastgroup == "end":
                break
            linkage = self._module_directive(match["dir"], line, linkage)
        if not self.target:
            raise syntax_error(1, "no `.target` directive: is this PTX?")
        return Program(self.version, self.target, self.functions, self.variables)

    def _module_directive(self, word: str, line: int, linkage: list[str]) -> list[str]:
        if word in _LINKAGE:
            return [*linkage, word]
        if word in (".entry", ".func"):
            self._function(word == ".entry", line)
        elif word in _VARIABLE_SPACES or word in (".align", ".attribute"):
            text = self.take(_DECLARATION, "`;`").group()[:-1]
            variable = parse_variable(f"{word} {text}", line, extern=".extern" in linkage)
            self.variables[variable.name] = variable
        elif word in _HEADER:
            value = self.take(_LINE, "a value").group().strip()
            if word == ".version":
                self.version = value
            elif word == ".target":
                self.target = value.split(",")[0].strip()
        elif word == ".file":
            self._file()
        elif word == ".section":
            self._section(line)
        elif word in (".pragma", ".alias"):
            self.take(_DECLARATION, "`;`")
        else:
            raise syntax_error(line, f"unknown directive `{word}`")
        return []

    def _file(self) -> None:
        match = self.take(_FILE, "a file number and name")
        self.files[int(match[1])] = match[2]

    def _section(self, line: int) -> None:
        """Debug sections hold nothing that runs."""
        opening, closing = self.text.find("{", self.pos), self.text.find("}", self.pos)
        if opening < 0 or closing < opening:
            raise syntax_error(line, "the section is not closed")
        self.pos = closing + 1

    def _function(self, is_entry: bool, line: int) -> None:
        head = self.take(_FUNCTION_HEAD, "a function's name and parameters")
        directives: dict[str, tuple[int, ...]] = {}
        while match := _FUNCTION_DIRECTIVE.match(self.text, self.pos):
            self.pos = match.end()
            directives[match[1]] = tuple(int(n) for n in re.findall(r"\d+", match[2]))
        returns = parse_variables(head["returns"], line)
        params = parse_variables(head["params"], line)
        rest = self.text[self.pos : self.pos + 1]
        if rest == ";":
            self.pos += 1
            function = Function(head["name"], is_entry, returns, params, (), (), {}, {}, directives, line, True)
            self.functions.setdefault(function.name, function)
            return
        if rest != "{":
            raise syntax_error(self.here(), f"the body of `{head['name']}` expected")
        self.pos += 1
        body = Body(self.text, self.pos, self.line_at(self.pos), self.files, head["name"])
        for variable in (*returns, *params):
            if variable.space == "reg":
                body.scopes[0].registers[variable.name] = Register(variable.name, variable.type)
        self.pos = body.parse()
        self.functions[head["name"]] = Function(
            head["name"], is_entry, returns, params, tuple(body.variables), tuple(body.instructions),
            body.labels, body.tables, directives, line,
        )  # fmt: skip
