"""The command reference, from the commands: `python -m colane.cli.reference > docs/reference/commands.md`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from colane.cli.app import make_app

Click = Any
"""A command or parameter of the click that Typer carries inside; it has no public name there."""

HEAD = """# Commands

Written by `python -m colane.cli.reference`; a test keeps it true. Every command that prints a table takes `--json`.
Exit code 0 is success, 1 a failure, 2 a misuse, named in one line.
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


if __name__ == "__main__":
    sys.stdout.write(reference())
