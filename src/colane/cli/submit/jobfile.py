"""Reads job files: YAML (one job, a list, or several documents) and paper A's JSON objects. Knows each field's line."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from colane.cli.errors import MisuseError, one_line
from colane.model.field_values import TextMap
from colane.model.job_fields import JOB_FIELDS

if TYPE_CHECKING:
    import yaml

SUFFIXES: Final = (".yaml", ".yml", ".json")

TEXT_FIELDS: Final = tuple(field.name for field in JOB_FIELDS if isinstance(field.takes, TextMap))
"""Fields whose values are texts, taken as they are written: `1.10` and `yes` mean no number and no truth here."""

OTHER_NAMES: Final = {
    name: " or ".join(field.said for field in JOB_FIELDS if name in field.other_names)
    for one in JOB_FIELDS
    for name in one.other_names
}
"""What people write for a field's name, and the name."""

SHELL_CHARACTERS: Final = "();<>|&"

Object = dict[str, Any]
_JOB_FIELD = re.compile(r"(?:jobs\[(?P<job>\d+)\]\.?)?(?P<path>.*)")


def _top(name: str) -> str:
    """The field of a job that a path begins with: `env` of `jobs[3].env.X`."""
    return re.split(r"[.\[]", re.sub(r"^jobs\[\d+\]\.", "", name), maxsplit=1)[0]


@dataclass(frozen=True, slots=True)
class JobFile:
    """Jobs as they stand in a file."""

    path: Path  # the file
    jobs: list[Object]  # the job objects in order
    # for each job, the line of each of its fields; empty where they are not known
    lines: list[dict[str, int]] = field(default_factory=list)
    is_batch: bool = False  # whether it holds a list, even of one
    overridden: frozenset[str] = frozenset()  # fields that options say in its place

    def is_typed(self, name: str) -> bool:
        """Whether what the scheduler says of a field is said of an option."""
        return self.path == Path() or _top(name) in self.overridden

    def where(self, name: str) -> tuple[str, str]:
        """Return place (`file:line`) and bare field of a field the scheduler names (`jobs[3].env.X`)."""
        match = _JOB_FIELD.fullmatch(name)
        job, path = (int(match["job"] or 0), match["path"]) if match else (0, name)
        lines = self.lines[job] if job < len(self.lines) else {}
        top = _top(path)
        line = lines.get(path, lines.get(top, lines.get("")))
        number = f", job {job + 1}" if len(self.jobs) > 1 and line is None else ""
        return (f"{self.path}:{line}" if line else f"{self.path}{number}"), path


def read_job_file(path: Path) -> JobFile:
    """Read a job file.

    Raises MisuseError: it cannot be read, or is no such file; the message names file, line and field.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise MisuseError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise MisuseError(f"{path}: is not a text file in UTF-8") from error
    return _read_json(path, text) if path.suffix == ".json" else _read_yaml(path, text)


def _read_json(path: Path, text: str) -> JobFile:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise MisuseError(f"{path}:{error.lineno}: is not valid JSON: {error.msg}") from error
    items = value["jobs"] if isinstance(value, dict) and set(value) == {"jobs"} else value
    listed = items if isinstance(items, list) else [items]
    _refuse_none(path, listed)
    for place, job in enumerate(listed):
        if not isinstance(job, dict):
            raise MisuseError(f"{path}: job {place + 1} must be an object, got {json.dumps(job)[:60]}")
    file = JobFile(path, listed, is_batch=isinstance(items, list))
    for place in range(len(listed)):
        _tidy(file, place)
    return file


def _refuse_none(path: Path, jobs: list[Any]) -> None:
    if not jobs:
        raise MisuseError(f"{path}: holds no job")


def _read_yaml(path: Path, text: str) -> JobFile:
    import yaml  # noqa: PLC0415 - for job files only

    try:
        loader = yaml.SafeLoader(text)
    except yaml.YAMLError as error:
        raise MisuseError(f"{path}: is not valid YAML: {one_line(str(error))}") from error
    try:
        found = [entry for node in _documents(loader) for entry in _entries(path, node)]
        jobs = [_construct(path, loader, node) for node, _ in found]
    except RecursionError as error:
        raise MisuseError(f"{path}: is nested too deeply") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise MisuseError(f"{path}{line}: is not valid YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise MisuseError(f"{path}: is not valid YAML: {one_line(str(error))}") from error
    finally:
        loader.dispose()
    _refuse_none(path, jobs)
    file = JobFile(path, jobs, [_lines(node) for node, _ in found], any(listed for _, listed in found) or len(jobs) > 1)
    for place in range(len(jobs)):
        _tidy(file, place)
    return file


def _documents(loader: yaml.SafeLoader) -> Iterator[yaml.Node]:
    while loader.check_node():
        node = loader.get_node()
        if node is not None:
            yield node


def _entries(path: Path, node: yaml.Node) -> Iterator[tuple[yaml.Node, bool]]:
    """Yield the jobs of a document, each with whether it stood in a list."""
    import yaml  # noqa: PLC0415 - as above

    if isinstance(node, yaml.MappingNode) and [key.value for key, _ in node.value] == ["jobs"]:
        node = node.value[0][1]
        if not isinstance(node, yaml.SequenceNode):
            raise MisuseError(f"{path}:{node.start_mark.line + 1}: jobs: must be a list of jobs")
    if isinstance(node, yaml.SequenceNode):
        yield from ((each, True) for each in node.value)
    else:
        yield node, False


def _construct(path: Path, loader: yaml.SafeLoader, node: yaml.Node) -> Object:
    import yaml  # noqa: PLC0415 - as above

    from colane.cli.submit.yaml_nodes import UnfitNodeError, judge  # noqa: PLC0415 - as above

    line = node.start_mark.line + 1
    if not isinstance(node, yaml.MappingNode):
        raise MisuseError(f"{path}:{line}: a job must be fields and values, as in 'command: python train.py'")
    _refuse_twice(path, node)
    try:
        judge(node)
    except UnfitNodeError as error:
        raise MisuseError(f"{path}:{error.line}: {error}") from error
    job: Object = loader.construct_document(node)
    for key, value in node.value:
        if key.value in TEXT_FIELDS and isinstance(value, yaml.MappingNode):
            _refuse_twice(path, value)
            pairs = [(name, entry) for name, entry in value.value if isinstance(entry, yaml.ScalarNode)]
            job[key.value] |= {
                name.value: "" if entry.tag == "tag:yaml.org,2002:null" else str(entry.value) for name, entry in pairs
            }
    return {str(name): value for name, value in job.items()}


def _refuse_twice(path: Path, node: yaml.MappingNode) -> None:
    """Refuse a field that is given twice: YAML would silently take the last."""
    seen: dict[str, int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if key.value in seen:
            raise MisuseError(f"{path}:{line}: {key.value}: is given already in line {seen[key.value]}")
        seen[str(key.value)] = line


def _lines(node: yaml.Node) -> dict[str, int]:
    """Return the lines of a job's fields and of what stands directly in them; `""` is the job itself."""
    import yaml  # noqa: PLC0415 - as above

    lines = {"": node.start_mark.line + 1}
    for key, value in node.value:
        lines[str(key.value)] = key.start_mark.line + 1
        if isinstance(value, yaml.MappingNode):
            lines |= {f"{key.value}.{name.value}": name.start_mark.line + 1 for name, _ in value.value}
    return lines


def _tidy(file: JobFile, place: int) -> None:
    """Name the field meant by a usual other name, and split a command that is given as one text."""
    job = file.jobs[place]
    for name in job:
        meant = OTHER_NAMES.get(name)
        if meant is not None:
            refuse(file, f"jobs[{place}].{name}", f"is not a known field; did you mean {meant}?")
    if isinstance(job.get("command"), str):
        try:
            job["command"] = split_command(job["command"])
        except ValueError as error:
            refuse(file, f"jobs[{place}].command", str(error))


def refuse(file: JobFile, name: str, message: str) -> None:
    """Refuse a field of a file. Raises MisuseError: always."""
    place, bare = file.where(name)
    raise MisuseError(f"{place}: {bare}: {message}")


def split_command(text: str) -> list[str]:
    """Return the words of a command line, quotes respected. No shell runs it, so what needs one is refused.

    Raises ValueError: it needs a shell, or a quote is not closed.
    """
    if "\n" in text.strip():
        raise ValueError(f"has several lines; {_WITH_SHELL}")
    words = shlex.shlex(text, posix=True, punctuation_chars=SHELL_CHARACTERS)
    words.whitespace_split = True
    words.commenters = ""
    try:
        found = list(words)
    except ValueError as error:
        raise ValueError(f"cannot be split into words: {str(error).lower()}") from error
    for word in found:
        if "$" in word or set(word) <= set(SHELL_CHARACTERS):
            raise ValueError(f"{word!r} needs a shell; {_WITH_SHELL}")
    return found


_WITH_SHELL: Final = "put it into a script, or give a list: [bash, -c, '...']"


def merged(job: Mapping[str, Any], options: Mapping[str, Any], shell: Mapping[str, Any]) -> Object:
    """Lay the command line's options over a job of a file, and both over what the submitting shell has.

    `env` and `labels` are laid over one another name by name, everything else as a whole.
    """
    # An option stands for both of a field's names: what a file says in bytes is not what `--gpu-memory` says again.
    told = {field.name: field.text for field in JOB_FIELDS if field.text}
    whole: Object = {
        **shell,
        **{name: value for name, value in job.items() if told.get(name) not in options},
        **options,
    }
    for name in TEXT_FIELDS:
        layers = [layer[name] for layer in (shell, job, options) if isinstance(layer.get(name), Mapping)]
        if layers and isinstance(whole.get(name), Mapping):
            whole[name] = {key: value for layer in layers for key, value in layer.items()}
    return whole
