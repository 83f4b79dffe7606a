"""`--format '{id} {state}'`: a line for each job or node, of the fields that `--json` has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from string import Formatter
from typing import Annotated, Any, Final

import typer

from colane.cli import output
from colane.cli.errors import MisuseError

Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="TEXT",
        show_default=False,
        help="Print a line for each, as '{id} {state} {needs.gpus}': names are those of --json.",
    ),
]

ESCAPES: Final = (("\\t", "\t"), ("\\n", "\n"))  # what shells leave as it is between plain quotes


def printed(
    template: str | None,
    as_json: bool,
    objects: Iterable[Mapping[str, Any]],
    whole: Mapping[str, Any] | None = None,
    known: Iterable[str] = (),
) -> bool:
    """Print objects as --format or --json asks; False where they are to be drawn for people.

    Raises MisuseError: the text is no such template, or names what the objects do not have.

    Args:
        template: Of --format, None without.
        as_json: Whether --json was given.
        objects: What is printed.
        whole: What --json prints in their place.
        known: Names that are known though no object has them.
    """
    if template is not None:
        print_formatted(template, objects, known)
    elif as_json:
        output.print_json(list(objects) if whole is None else whole)
    return template is not None or as_json


def print_formatted(template: str, objects: Iterable[Mapping[str, Any]], known: Iterable[str] = ()) -> None:
    """Print a line for each object.

    Args:
        template: Text with names of fields in braces, those of a field's own with a dot.
        objects: What is printed.
        known: Names that are known though no object has them.

    Raises:
        MisuseError: The text is no such template, or names what the objects do not have.
    """
    parts, late = _parts(template), {*known}
    for each in objects:
        output.say("".join(text + ("" if name is None else _value(each, name, late)) for text, name in parts))


def _parts(template: str) -> list[tuple[str, str | None]]:
    for written, meant in ESCAPES:
        template = template.replace(written, meant)
    try:
        found = list(Formatter().parse(template))
    except ValueError as error:
        raise MisuseError(f"--format: {error} in {template[:60]!r}; a brace itself is written twice") from error
    if any(name == "" for _, name, _, _ in found):
        raise MisuseError("--format: {} names no field; write for example {id}")
    if odd := next((name for _, name, spec, conversion in found if spec or conversion), None):
        raise MisuseError(f"--format: name a field alone, as {{{odd}}}, without what follows ! or :")
    return [(text, name) for text, name, _, _ in found]


def _value(whole: Mapping[str, Any], name: str, known: set[str]) -> str:
    value: Any = whole
    for step in name.split("."):
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif value is None or step in known:
            return output.UNKNOWN
        else:
            raise MisuseError(f"--format: there is no {name!r}; {_near(step, value)}")
    return _text(value)


def _near(step: str, value: Any) -> str:  # noqa: ANN401 - JSON
    names = sorted(value) if isinstance(value, Mapping) else []
    near = difflib.get_close_matches(step, names, n=2)
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names) or 'none in it'}"


def _text(value: Any) -> str:  # noqa: ANN401 - JSON
    if isinstance(value, list):
        return ",".join(map(_text, value)) or output.UNKNOWN
    if isinstance(value, Mapping):
        return ",".join(f"{name}={_text(one)}" for name, one in value.items()) or output.UNKNOWN
    if isinstance(value, bool):
        return "true" if value else "false"
    return output.text(value)
