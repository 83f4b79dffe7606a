"""Pages that are written from the source: commands from themselves, a job's fields from their table.

python -m colane.cli.reference > docs/reference/commands.md
python -m colane.cli.reference fields > docs/reference/job-fields.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from typer.main import get_command

from colane.cli.app import make_app
from colane.model.field_values import (
    Amount,
    Flag,
    GpuSizes,
    Number,
    OneOf,
    SomeOf,
    Text,
    TextList,
    TextMap,
    Values,
    Whole,
    bounds,
)
from colane.model.job_fields import JOB_FIELDS, JobField, Shelf

Click = Any  # a command or parameter of the click that Typer carries inside; it has no public name there

HEAD = """# Commands

Written by `python -m colane.cli.reference`; a test keeps it true. Every command that prints a table takes
`--json`. Exit code 0 is success, 1 a failure, 2 a misuse, named in one line. Before any command, `colane --url URL`,
`--token-file FILE` and `--ca-file FILE` say which scheduler is meant.
"""


def reference() -> str:
    """The page as Markdown."""
    root = get_command(make_app())
    sections = (line for name, command in _commands(root) for line in _section(name, command))
    return "\n".join([HEAD, *sections]).rstrip() + "\n"


def _commands(group: Click, prefix: str = "") -> Iterator[tuple[str, Click]]:
    for name, command in getattr(group, "commands", {}).items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _section(name: str, command: Click) -> Iterator[str]:
    yield f"## {name}"
    yield from ("", _plain(command.help or ""), "")
    if command.epilog:
        yield from (_plain(command.epilog), "")
    arguments = " ".join((param.name or "").upper() for param in command.params if _is_argument(param))
    yield from (f"    colane {name} [OPTIONS] {arguments}".rstrip(), "")
    options = [param for param in command.params if not _is_argument(param) and not getattr(param, "hidden", False)]
    if options:
        yield from ("| option | meaning |", "| --- | --- |")
        yield from (_row(option) for option in options)
        yield ""


def _is_argument(param: Click) -> bool:
    return bool(param.param_type_name == "argument")


def _row(option: Click) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    return f"| {names} | {_plain(getattr(option, 'help', '') or '')} |"


def _plain(text: str) -> str:
    """One paragraph without Rich markup and without bars that would end a cell."""
    bare = re.sub(r"\[(bold|/bold|dim|/dim|cyan|/cyan)\]", "`", text)
    return " ".join(bare.replace("|", "or").split())


FIELDS_HEAD: Final = """# Fields of a job

Written by `python -m colane.cli.reference fields`; a test keeps it true. A job request (`POST /job`), an
entry of a job file and a row of a trace name these fields; unknown ones are refused, with the nearest known. An amount
is a number in the unit that its field's name ends in, or text in the field beside it: `gpu_memory: 2GB` or
`gpu_memory_bytes: 2000000000`, not both.

Under "job object" stands where `/job/{id}` has it, under "trace" the column of [Colane's own trace](traces.md), which
is what `colane export` writes. Fields marked with * decide where a job may run.

| field | takes | default | what it is | option | job object | trace |
| --- | --- | --- | --- | --- | --- | --- |
"""


def job_fields() -> str:
    """The page of a job's fields as Markdown."""
    return FIELDS_HEAD + "".join(f"| {' | '.join(_cells(field))} |\n" for field in JOB_FIELDS)


def _cells(field: JobField) -> Iterator[str]:
    names = dict.fromkeys((field.name, field.said))
    yield ", ".join(f"`{name}`" for name in names) + (" *" if field.in_need else "")
    yield _takes(field.takes)
    yield _default(field.default)
    yield field.meaning + ("; of jobs with GPUs only" if field.needs_gpu else "")
    yield "" if field.option is None else ", ".join(f"`{name}`" for name in field.option.names)
    path = f"needs.{field.name}" if field.shelf is Shelf.NEEDS else field.name
    yield "" if field.shelf is Shelf.NONE else f"`{path}`"
    yield f"`{field.column}`" if field.column else ""


def _takes(takes: Values) -> str:
    match takes:
        case OneOf(of) | SomeOf(of):
            return ("" if isinstance(takes, OneOf) else "some of ") + ", ".join(f"`{one}`" for one in of)
        case Whole() | Number() | Amount():
            kind = "amount" if isinstance(takes, Amount) else "whole number" if isinstance(takes, Whole) else "number"
            return ", ".join(filter(None, (kind, bounds(takes))))
        case _:
            return TAKES[type(takes)]


TAKES: Final[Mapping[type, str]] = {
    Flag: "true or false",
    GpuSizes: "a number, `1..4`, `1,2,4`, or a list of numbers",
    Text: "text",
    TextList: "list of texts",
    TextMap: "names with texts",
}


def _default(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if default is None or default in ("", (), {}):
        return ""
    return f"`{default[0] if isinstance(default, tuple) else default}`"


if __name__ == "__main__":
    sys.stdout.write(job_fields() if sys.argv[1:] == ["fields"] else reference())
