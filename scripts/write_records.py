#!/usr/bin/env python3
"""Write the `__init__` of records out, in a copy of the source that is to be compiled.

mypyc calls an `__init__` that stands in the source directly, and one that `dataclasses` makes by way of the interpreter
(docs/decisions/0007-records.md). A record is a class with `@dataclass(unsafe_hash=True, slots=True)`. Its `copied`,
which gives an equal one, is written out too.

usage: write_records.py FILE...
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import NamedTuple

MARK = "@dataclass(unsafe_hash=True, slots=True)"


class Field(NamedTuple):
    """One of a record.

    Attributes:
        name: Its name.
        type: Its type.
        default: The text of its default; empty for none.
        is_named: Whether calls have to name it.
        made: What makes its default, where that is made anew for each record; then its default is None.
        is_taken: Whether it is an argument: others are worked out in `__post_init__`.
        kept: What is left of it in the body of the class, after its type.
    """

    name: str
    type: str
    default: str = ""
    is_named: bool = False
    made: str = ""
    is_taken: bool = True
    kept: str = ""


def field_of(node: ast.AnnAssign) -> Field:
    """What a line of a record's body declares."""
    name, annotation = ast.unparse(node.target), ast.unparse(node.annotation)
    inner = annotation.removeprefix("Final[").removesuffix("]") if annotation.startswith("Final[") else annotation
    value = node.value
    if not (isinstance(value, ast.Call) and ast.unparse(value.func) == "field"):
        return Field(name, inner, "" if value is None else ast.unparse(value))
    told = {keyword.arg or "": ast.unparse(keyword.value) for keyword in value.keywords}
    if not told.keys() <= {"default", "default_factory", "kw_only", "init", "repr", "compare"}:
        raise ValueError(f"line {node.lineno}: {ast.unparse(value)} cannot be written out")
    rest = ", ".join([f"{word}={told[word]}" for word in ("init", "repr", "compare") if word in told])
    made, is_taken = told.get("default_factory", ""), told.get("init") != "False"
    default = "None" if made else told.get("default", "")
    kept = f" = field({rest})" if rest else ""
    return Field(
        name, f"{inner} | None" if made else inner, default, told.get("kw_only") == "True", made, is_taken, kept
    )


def init_of(fields: list[Field], *, works_out: bool) -> str:
    """Lines of the `__init__` of these; it works the rest out where there is a `__post_init__`."""
    given = [one for one in fields if one.is_taken]
    told = [(one, f"{one.name}: {one.type}" + (f" = {one.default}" if one.default else "")) for one in given]
    by_place = [text for one, text in told if not one.is_named]
    by_name = [text for one, text in told if one.is_named]
    taken = ", ".join(["self", *by_place, *(["*", *by_name] if by_name else [])])
    kept = [f"{one.made}() if {one.name} is None else {one.name}" if one.made else one.name for one in given]
    return "\n".join(
        [
            f"    def __init__({taken}) -> None:",
            *[f"        self.{one.name} = {value}" for one, value in zip(given, kept, strict=True)],
            *(["        self.__post_init__()"] if works_out else []),
        ]
    )


def copy_of(record: str, fields: list[Field]) -> str:
    """The line that returns an equal record."""
    given = [
        f"self.{one.name}" if not one.is_named else f"{one.name}=self.{one.name}" for one in fields if one.is_taken
    ]
    return f"        return {record}({', '.join(given)})"


def written_out(text: str) -> str:
    """The same module, with the `__init__` of its records."""
    lines = text.splitlines()
    for node in reversed(ast.parse(text).body):
        if not isinstance(node, ast.ClassDef) or MARK not in (lines[one.lineno - 1] for one in node.decorator_list):
            continue
        declared = [one for one in node.body if isinstance(one, ast.AnnAssign)]
        last = declared[-1].end_lineno or declared[-1].lineno
        fields = {one: field_of(one) for one in declared}
        for one in node.body:
            if isinstance(one, ast.FunctionDef) and one.name == "copied":
                lines[one.body[-1].lineno - 1 : one.body[-1].end_lineno] = [copy_of(node.name, list(fields.values()))]
        works_out = any(isinstance(one, ast.FunctionDef) and one.name == "__post_init__" for one in node.body)
        lines[last:last] = ["", init_of(list(fields.values()), works_out=works_out)]
        for one, told in reversed(fields.items()):
            text = f"    {ast.unparse(one.target)}: {ast.unparse(one.annotation)}{told.kept}"
            lines[one.lineno - 1 : one.end_lineno] = [text]
        place = next(k for k in range(node.lineno - 1, 0, -1) if lines[k] == MARK)
        lines[place] = MARK.replace("(", "(init=False, ")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        text = path.read_text()
        if MARK in text:
            path.write_text(written_out(text))
