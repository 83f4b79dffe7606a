"""SlurmOptions of the verbs that look and change, as getopt reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from colane.integrations.slurm.contact import SlurmError


class VerbWords(NamedTuple):
    """What a command line says: values by long name, as often as each was given, and the other words."""

    said: Mapping[str, list[str]]
    rest: list[str]

    def has(self, name: str) -> bool:
        """Whether an option was given."""
        return name in self.said

    def last(self, name: str) -> str | None:
        """Return the value that was given last."""
        return self.said[name][-1] if name in self.said else None

    def all(self, name: str) -> list[str]:
        """Return all values, those with commas apart."""
        return [part for value in self.said.get(name, []) for part in value.split(",") if part]


def read(words: Sequence[str], valued: str, flags: str, *, refused: Mapping[str, str] | None = None) -> VerbWords:
    """Return what a command line says; options may stand behind other words.

    Args:
        words: The command line.
        valued: SlurmOptions with a value, as `-j,--jobs -o,--format`.
        flags: Those without.
        refused: What to say of those that are known and not done, by long name.

    Raises:
        SlurmError: An option is not known, or lacks its value.
    """
    takes = {name: (_long(names), True) for names in valued.split() for name in names.split(",")}
    takes |= {name: (_long(names), False) for names in flags.split() for name in names.split(",")}
    said, rest, left = dict[str, list[str]](), list[str](), list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            rest += left
            break
        if not word.startswith("-") or word == "-":
            rest.append(word)
            continue
        name, joined, value = name_and_value(word)
        if name in (refused or {}):
            raise SlurmError(f"{name} is not done here: {(refused or {})[name]}")
        long, has_value = _find(takes, name)
        if not has_value and joined and not name.startswith("--"):
            left.insert(0, f"-{value}")
            value = ""
        elif has_value and not joined:
            if not left:
                raise SlurmError(f"{name} needs a value")
            value = left.pop(0)
        if long == "clusters" and value not in {"all", "colane"}:
            raise SlurmError(f"{name} {value} is not done here: there is one cluster, that of COLANE_URL")
        said.setdefault(long, []).append(value)
    return VerbWords(said, rest)


def _long(names: str) -> str:
    return names.rpartition(",")[2].lstrip("-")


def name_and_value(word: str) -> tuple[str, bool, str]:
    """Return an option's name, whether a value is joined to it, and that."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, bool(equals), value
    return word[:2], len(word) > 2, word[2:].removeprefix("=")


def _find(takes: Mapping[str, tuple[str, bool]], name: str) -> tuple[str, bool]:
    if name in takes:
        return takes[name]
    begun = {takes[other] for other in takes if name.startswith("--") and other.startswith(name)}
    if len(begun) == 1:
        return begun.pop()
    raise SlurmError(f"{name} is no option that Colane knows; it knows {' '.join(sorted(takes))}")
