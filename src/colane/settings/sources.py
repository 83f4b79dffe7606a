"""Where values come from: flags, a document from a parent process, variables, and `colane.toml`."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from colane.model.nearest import nearest
from colane.settings.places import named_file, own_file
from colane.settings.setting import Given, Raw, Section, Setting, SettingError, Values, plain
from colane.settings.table import SECTIONS

_SECRET: Final = "token"  # noqa: S105 - the name of a key
_HEADER = re.compile(r"\s*\[\s*([\w-]+)\s*\]")
_KEY = re.compile(r"\s*([\w-]+)\s*=")


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """What a file says: by section and name. `problems` are its keys that are none, a line each."""

    path: Path
    given: Mapping[str, Mapping[str, Given]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def find_file(named: Path | None, environment: Mapping[str, str] = os.environ) -> SettingsFile:
    """Read the file that is named, by a flag or `COLANE_CONFIG`, else the default one where there is one.

    Raises SettingError: it cannot be read, or is no TOML.
    """
    path = named_file(environment) if named is None else named.expanduser().absolute()
    if path is not None:
        return read_file(path)
    own = own_file(environment)
    return read_file(own) if own.exists() else SettingsFile(own)


def read_file(path: Path, wanted: Sequence[Section] = SECTIONS) -> SettingsFile:
    """Read the tables of a file that are wanted; what others say is not judged.

    Raises SettingError: it cannot be read, or is no TOML.
    """
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except OSError as error:
        raise SettingError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # of TOML, or of UTF-8
        raise SettingError(f"{path}: {error}") from error
    lines = _lines(text)
    sections = {section.name: section for section in wanted}
    given: dict[str, dict[str, Given]] = {}
    problems: list[str] = []
    for name, table in tables.items():
        if name not in sections or not isinstance(table, dict):
            if wanted is not SECTIONS:
                continue
            where = f"{path}:{lines.get((name, ''), lines.get(('', name), 1))}"
            problems.append(f"{where}: {_unknown(name, sections, 'table')}")
            continue
        known = {setting.name: setting for setting in sections[name].settings}
        for key, value in table.items():
            origin = f"{path}:{lines.get((name, key), 1)}: {name}.{key}"
            try:
                setting = known[_known(key, known)]
                given.setdefault(name, {})[setting.name] = Given(_raw(value, setting, path.parent), origin)
            except ValueError as error:
                problems.append(f"{origin}: {error}")
    return SettingsFile(path, given, tuple(problems))


def _lines(text: str) -> dict[tuple[str, str], int]:
    """Where each table and each key of one stands; (table, "") is the table's own line."""
    found: dict[tuple[str, str], int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            section = header[1]
            found.setdefault((section, ""), number)
        elif key := _KEY.match(line):
            found.setdefault((section, key[1]), number)
    return found


def _known(key: str, known: Mapping[str, Any]) -> str:
    name = key.replace("-", "_")
    if name in known:
        return name
    if name == _SECRET:
        raise ValueError("a token does not belong here, where others may read it; name its file: token_file")
    raise ValueError(_unknown(key, known, "key"))


def _unknown(name: str, known: Mapping[str, Any], what: str) -> str:
    near = nearest(name, sorted(known))
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(sorted(known))}"
    return f"there is no such {what}; {hint}"


def _raw(value: object, setting: Setting[Any], folder: Path) -> Raw:
    """Return a value of a file; the paths in it are meant from where it lies."""
    if setting.takes is Path and isinstance(value, str):
        return str(folder / Path(value).expanduser())
    if isinstance(value, list) and all(isinstance(part, (int, float, str)) for part in value):
        return ",".join(str(part) for part in value)
    if not isinstance(value, (str, int, float, bool)):
        raise ValueError(f"must be text, a number, true or false, got {value!r:.40}")  # noqa: TRY004 - a user's mistake
    return value


def gather(
    section: Section,
    flags: Mapping[str, object],
    *,
    file: SettingsFile | None = None,
    document: Mapping[str, Given] | None = None,
    told: Mapping[str, Given] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Values:
    """Return what the settings of a section are: of flags, else a parent's document, else variables, else the file.

    Last counts what another service has told. Raises SettingError: a value cannot be, or the file has keys that are
    none.
    """
    if file is not None and file.problems:
        raise SettingError("; ".join(file.problems))
    sources = [document or {}, _of_variables(section, environment)]
    sources += [] if file is None else [file.given.get(section.name, {})]
    sources.append(told or {})
    given: dict[str, Given] = {}
    for setting in section.settings:
        if flags.get(setting.name) is not None:
            given[setting.name] = Given(plain(flags[setting.name]), setting.flag)
            continue
        found = next((source[setting.name] for source in sources if setting.name in source), None)
        if found is not None:
            given[setting.name] = found
    return Values(section, given)


def _of_variables(section: Section, environment: Mapping[str, str]) -> dict[str, Given]:
    found = ((setting, _of_variable(section, setting, environment)) for setting in section.settings)
    return {setting.name: given for setting, given in found if given is not None}


def _of_variable(section: Section, setting: Setting[Any], environment: Mapping[str, str]) -> Given | None:
    """Return what its variable says; an empty one says nothing."""
    name = next((name for name in section.variables(setting) if environment.get(name)), None)
    return None if name is None else Given(environment[name], name)
