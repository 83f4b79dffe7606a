"""One setting, and the values of those of a service with where each came from.

Read by hand with what Python brings: pydantic-settings takes 210 ms of CPU at each start (300 modules; the agent and
`colane up` need none of them), and tells neither where a value came from nor the line of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from colane.model.nearest import nearest

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
Raw = str | int | float | bool  # a value as it is given: what fits into JSON and TOML


class SettingError(ValueError):
    """A value cannot be; the message names the flag, the variable or the line of the file, and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Generic[T]):
    """One setting."""

    name: str  # key in `colane.toml`; with dashes, the flag
    read: Callable[[Raw], T]  # returns the value of what is given, or raises ValueError with "must be ..."
    default: Raw | Enum | None = None  # what counts where nothing is given; None leaves the value None
    takes: type = str  # type of the flag's value: str, int, float, bool, Path, or an enum of choices
    help: str = ""  # of the flag
    metavar: str | None = None  # word for the value in the help
    default_told: str | bool = True  # what the help says of the default, where that is not the default itself
    variables: tuple[str, ...] = ()  # variables that set it besides `COLANE_SECTION_NAME`
    at_least: float | None = None  # of a number
    at_most: float | None = None  # of a number
    letter: str = ""  # the flag's short form, without its dash; empty for none

    @property
    def flag(self) -> str:
        """The flag."""
        return f"--{self.name.replace('_', '-')}"


class Section(NamedTuple):
    """The settings of one service, a table of `colane.toml`."""

    name: str
    settings: tuple[Setting[Any], ...]

    def variables(self, setting: Setting[Any]) -> tuple[str, ...]:
        """Return the variables that set it; the first that is set counts."""
        return (*setting.variables, f"COLANE_{self.name}_{setting.name}".upper())


class Given(NamedTuple):
    """A value as it was given (None: by no default), and where: a flag, a variable, a file; empty for the default."""

    raw: Raw | None
    origin: str = ""


class Values:
    """What the settings of a section are: `values[GUARD]` is that setting's value."""

    def __init__(self, section: Section, given: Mapping[str, Given]) -> None:
        """Read all that is given. Raises SettingError: one of them cannot be."""
        self.section = section
        self.given: Final = {
            setting.name: given.get(setting.name) or Given(plain(setting.default)) for setting in section.settings
        }
        self._values = {setting.name: self._read(setting) for setting in section.settings}

    def __getitem__(self, setting: Setting[T]) -> T:
        return cast("T", self._values[setting.name])

    def fault(self, setting: Setting[Any], reason: object) -> SettingError:
        """Return what to raise where a value turns out not to be possible only later."""
        return SettingError(f"{self.given[setting.name].origin or setting.flag}: {reason}")

    def is_given(self, setting: Setting[Any]) -> bool:
        """Whether it is set anywhere, so that it is not the default."""
        return bool(self.given[setting.name].origin)

    def document(self) -> dict[str, Given]:
        """Return what was given, for a child process."""
        return {name: given for name, given in self.given.items() if given.origin}

    def raw(self) -> dict[str, Raw]:
        """Return what was given, as it was, for another service."""
        return {name: given.raw for name, given in self.document().items() if given.raw is not None}

    def _read(self, setting: Setting[Any]) -> Any:  # noqa: ANN401 - as each setting says
        raw = self.given[setting.name].raw
        if raw is None:
            return None
        try:
            return setting.read(raw)
        except ValueError as error:
            raise self.fault(setting, error) from error


def plain(value: object) -> Raw | None:
    """Return a value as a flag gives it, as one that fits into JSON."""
    if isinstance(value, Enum):
        return str(value.value)
    return str(value) if isinstance(value, Path) else cast("Raw | None", value)


def text(raw: Raw) -> str:
    """Read text."""
    return str(raw)


def path(raw: Raw) -> Path:
    """Read a path: of this directory, or of a home directory."""
    return Path(str(raw)).expanduser().absolute()


def switch(raw: Raw) -> bool:
    """Read yes or no. Raises ValueError: it is neither."""
    found = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(str(raw).lower())
    if found is None:
        raise ValueError(f"must be true or false, got {raw!r}")
    return found


def one_of(choices: type[E]) -> Callable[[Raw], E]:
    """Return what reads one of these choices."""

    def read(raw: Raw) -> E:
        known = {str(choice.value): choice for choice in choices}
        if str(raw) not in known:
            near = nearest(str(raw), known)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise ValueError(f"must be {', '.join(known)}, got {raw!r}{hint}")
        return known[str(raw)]

    return read


def number(kind: type[int | float], at_least: float, at_most: float | None = None) -> Callable[[Raw], Any]:
    """Return what reads a number within bounds."""

    def read(raw: Raw) -> int | float:
        told = f"must be a {'whole ' if kind is int else ''}number from {at_least:g}" + (
            " up" if at_most is None else f" to {at_most:g}"
        )
        try:
            found = kind(str(raw))
        except ValueError:
            raise ValueError(f"{told}, got {raw!r}") from None
        if not (found >= at_least and (at_most is None or found <= at_most)):
            raise ValueError(f"{told}, got {raw!r}")
        return found

    return read
