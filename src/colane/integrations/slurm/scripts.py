"""Batch scripts: their `#SBATCH` lines, their `#COLANE` lines, and what surprises people about both."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from colane.integrations.slurm.errors import SlurmError
from colane.integrations.slurm.options import SlurmOptions, merged, parse
from colane.model.field_values import Flag, Number, TextMap, Whole
from colane.model.job_fields import JOB_FIELDS, JobField

_LINE: Final = re.compile(r"#(?P<mark>SBATCH|COLANE)(?P<gap>\s*)(?P<words>.*)")

OURS: Final = {name: field for field in JOB_FIELDS if field.option is not None for name in field.option.names}


class BatchScript(NamedTuple):
    """A batch script that has been read."""

    name: str  # of its file, for complaints
    text: str  # the whole of it
    options: SlurmOptions  # what its `#SBATCH` lines say
    fields: dict[str, Any]  # what its `#COLANE` lines say, as fields of a job request
    notes: list[str]  # what to tell its owner

    @property
    def interpreter(self) -> str:
        """What its first line names."""
        return self.text.partition("\n")[0][2:].strip()


def read_script(name: str, text: str) -> BatchScript:
    """Return a script with what it says of itself.

    Raises:
        SlurmError: It is none, or a line of it cannot be; the line is named.
    """
    if "\0" in text:
        raise SlurmError(f"{name} is a program and no script; run it from one: sbatch --wrap {shlex.quote(name)}")
    if "\r\n" in text:
        raise SlurmError(f"{name} has DOS line breaks, which shells do not read: sed -i 's/\\r$//' {name}")
    if not text.startswith("#!"):
        raise SlurmError(f"{name} does not say what runs it: its first line must be #!/bin/bash or the like")
    parts, fields, notes = list[SlurmOptions](), dict[str, Any](), list[str]()
    for mark, place, words in _directives(name, text, notes):
        if mark == "SBATCH":
            found = parse("sbatch", words, place)
            if found.rest:
                raise SlurmError(f"{place}: {found.rest[0]} is no option")
            parts.append(found)
        else:
            for field, value in _ours(words, place):
                fields[field] = {**fields.get(field, {}), **value} if isinstance(value, dict) else value
    return BatchScript(name, text, merged(parts), fields, notes)


def _directives(name: str, text: str, notes: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    is_head, late = True, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.match(line)
        if match is None:
            is_head = is_head and (not line.strip() or line.lstrip().startswith("#"))
            continue
        place = f"{name}:{number}"
        if not is_head:
            late.append(str(number))
            continue
        if not match["gap"] and match["words"]:
            if not match["words"].startswith("-"):  # another word that begins alike
                continue
            notes.append(f"{place}: a blank is missing behind #{match['mark']}; it is read all the same")
        try:
            yield match["mark"], place, shlex.split(match["words"], comments=True)
        except ValueError as error:
            raise SlurmError(f"{place}: a quotation mark has no partner") from error
    if late:
        notes.append(f"{name}: lines behind the first command are not read: {', '.join(late)}")


def _ours(words: list[str], place: str) -> Iterator[tuple[str, Any]]:
    """Yield fields of a job request from options of `colane submit`."""
    left = list(words)
    while left:
        name, equals, value = left.pop(0).partition("=")
        field = OURS.get(name)
        if field is None:
            raise SlurmError(f"{place}: {name} is no option of colane submit (see colane submit --help)")
        if isinstance(field.takes, Flag):
            yield from ((one, True) for one in field.takes.implies)
            yield field.name, not field.default
            continue
        if not equals:
            if not left:
                raise SlurmError(f"{place}: {name} needs a value")
            value = left.pop(0)
        yield field.said, _value(field, name, value, place)


def _value(field: JobField, name: str, value: str, place: str) -> Any:  # noqa: ANN401 - JSON
    try:
        match field.takes:
            case Whole():
                return int(value)
            case Number():
                return float(value)
            case TextMap():
                key, equals, text = value.partition("=")
                if not equals:
                    raise SlurmError(f"{place}: {name} must be NAME=VALUE, got {value!r}")
                return {key: text}
            case _:
                return value
    except ValueError as error:
        raise SlurmError(f"{place}: {name} must be a number, got {value!r}") from error
