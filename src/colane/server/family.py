"""The profile key of a command: jobs that run the same script with the same argument names behave alike."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Final

INTERPRETER: Final = re.compile(r"(python|pypy|bash|sh|dash|zsh|perl|ruby|node|julia|Rscript)[0-9.]*(-config)?")
"""Programs that run the script named in their arguments."""

LAUNCHERS: Final = frozenset({"env", "nice", "nohup", "time", "timeout", "torchrun", "accelerate", "stdbuf"})
"""Programs that run the program named in their arguments."""

FAMILY_LENGTH_MAX: Final = 200
DIGITS: Final = 8
"""Of the hash that stands for code given on the command line: two programs of one shell do not behave alike."""

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]*")


def derive_family(command: Sequence[str]) -> str:
    """Return script and sorted argument names: `python train.py --lr 0.1 -v` gives `train.py --lr -v`.

    Values never enter, so neither does a secret among them; of code given with `-c`, a short hash does.
    """
    words = list(command)
    program = _skip_launchers(words)
    script = _script(program, words) if INTERPRETER.fullmatch(program) else program
    names = sorted({option.group() for word in words if (option := _OPTION.match(word))})
    text = " ".join([script or "command", *names])[:FAMILY_LENGTH_MAX]
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _skip_launchers(words: list[str]) -> str:
    program = _name(words.pop(0))
    while program in LAUNCHERS:
        rest = _without_options(words)
        if not rest:
            return program
        words[:] = rest
        program = _name(words.pop(0))
    return program


def _without_options(words: Sequence[str]) -> list[str]:
    """Drop options, numbers (of `timeout 5`) and assignments (of `env A=b`) before the program."""
    for position, word in enumerate(words):
        plain = not word.startswith("-") and not _ASSIGNMENT.fullmatch(word) and not word[:1].isdigit()
        if plain and word != "launch":
            return list(words[position:])
    return []


def _script(program: str, words: list[str]) -> str:
    """Take an interpreter's own options off `words` and return what it runs."""
    for word in _take(words):
        if word == "-m" and words:
            return words.pop(0)
        if word.startswith("-") and word.endswith("c") and not word.startswith("--"):
            code = words.pop(0) if words else ""
            return f"{program} -c {hashlib.sha256(code.encode(errors='replace')).hexdigest()[:DIGITS]}"
        if not word.startswith("-"):
            return _name(word)
    return program


def _name(path: str) -> str:
    return posixpath.basename(path.rstrip("/"))


def _take(words: list[str]) -> Iterator[str]:
    while words:
        yield words.pop(0)
