#!/usr/bin/env python3
"""Write the `__init__` of records out, in a copy of the source that is to be compiled.

mypyc calls an `__init__` that stands in the source directly, and one that `dataclasses` makes by way of the interpreter
(docs/decisions/0007-records.md). A record is a class with `@dataclass(unsafe_hash=True, slots=True)`.

usage: write_records.py FILE...
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import NamedTuple

MARK = "@dataclass(unsafe_hash=True, slots=True)"


class Field(NamedTuple):
    """One of a record: its type, the text of its default (empty for none), and whether calls have to name it."""

    name: str
    type: str
    default: str
    is_named: bool


def field_of(node: ast.AnnAssign) -> Field:
    """What a line of a record's body declares."""
    name, annotation = ast.unparse(node.target), ast.unparse(node.annotation)
    inner = annotation.removeprefix("Final[").removesuffix("]") if annotation.startswith("Final[") else annotation
    value = node.value
    if not (isinstance(value, ast.Call) and ast.unparse(value.func) == "field"):
        return Field(name, inner, "" if value is None else ast.unparse(value), is_named=False)
    told = {keyword.arg: ast.unparse(keyword.value) for keyword in value.keywords}
    if not told.keys() <= {"default", "kw_only"}:
        raise ValueError(f"line {node.lineno}: {ast.unparse(value)} cannot be written out")
    return Field(name, inner, told.get("default", ""), told.get("kw_only") == "True")


def init_of(fields: list[Field]) -> str:
    """Lines of the `__init__` of these."""
    told = [(one, f"{one.name}: {one.type}" + (f" = {one.default}" if one.default else "")) for one in fields]
    by_place = [text for one, text in told if not one.is_named]
    by_name = [text for one, text in told if one.is_named]
    taken = ", ".join(["self", *by_place, *(["*", *by_name] if by_name else [])])
    return "\n".join(
        [f"    def __init__({taken}) -> None:", *[f"        self.{one.name} = {one.name}" for one in fields]]
    )


def written_out(text: str) -> str:
    """The same module, with the `__init__` of its records."""
    lines = text.splitlines()
    for node in reversed(ast.parse(text).body):
        if not isinstance(node, ast.ClassDef) or MARK not in (lines[one.lineno - 1] for one in node.decorator_list):
            continue
        declared = [one for one in node.body if isinstance(one, ast.AnnAssign)]
        last = declared[-1].end_lineno or declared[-1].lineno
        lines[last:last] = ["", init_of([field_of(one) for one in declared])]
        for one in reversed(declared):
            lines[one.lineno - 1 : one.end_lineno] = [f"    {ast.unparse(one.target)}: {ast.unparse(one.annotation)}"]
        place = next(k for k in range(node.lineno - 1, 0, -1) if lines[k] == MARK)
        lines[place] = MARK.replace("(", "(init=False, ")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        text = path.read_text()
        if MARK in text:
            path.write_text(written_out(text))
