"""The profile key of a command: jobs that run the same script with the same argument names behave alike.

The same script is the same path within its project: the git repository it lies in, else its directory.
"""

from __future__ import annotations

import hashlib
import os.path
import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
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


def derive_family(command: Sequence[str], directory: str = "") -> str:
    """Return script and sorted argument names: `python train.py --lr 0.1 -v` gives `net/train.py --lr -v`.

    Values never enter, so neither does a secret among them; of code given with `-c`, a short hash does.

    Args:
        command: Program and arguments.
        directory: Where it runs; without it scripts are told apart by name alone.
    """
    words = list(command)
    program = _skip_launchers(words)
    is_interpreter = INTERPRETER.fullmatch(_name(program)) is not None
    script = _script(_name(program), words, directory) if is_interpreter else _program(program, directory)
    names = sorted({option.group() for word in words if (option := _OPTION.match(word))})
    text = " ".join([script or "command", *names])[:FAMILY_LENGTH_MAX]
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def name_of(family: str) -> str:
    """Name for a job of a family that has none: that of its script."""
    return posixpath.basename(family.split(" ", maxsplit=1)[0]).partition("@")[0] or "command"


def _program(path: str, directory: str) -> str:
    """A program by its name, and by its project where it is a file below the working directory."""
    full = _real(posixpath.join(directory, path))
    is_own = "/" in path and full.startswith(_real(directory) + "/")
    return _in_project(path, directory) if directory and is_own else _name(path)


def _real(path: str) -> str:
    """Where a path leads; as it is written where no file can have such a name."""
    try:
        return os.path.realpath(path)
    except ValueError:
        return posixpath.normpath(path)


def _in_project(path: str, directory: str) -> str:
    """Path of a script within its project, named by that; a hash tells directories of one name apart."""
    if not directory:
        return _name(path)
    full = _real(posixpath.join(directory, path))
    folder, root = posixpath.dirname(full), posixpath.dirname(full)
    while root != "/" and not Path(root, ".git").exists():
        root = posixpath.dirname(root)
    if root != "/":
        return f"{_name(root)}/{posixpath.relpath(full, root)}".replace(" ", "_")
    code = hashlib.sha256(folder.encode(errors="replace")).hexdigest()[:DIGITS]
    return f"{_name(folder)}/{_name(full)}@{code}".replace(" ", "_")


def _skip_launchers(words: list[str]) -> str:
    program = words.pop(0)
    while _name(program) in LAUNCHERS:
        rest = _without_options(words)
        if not rest:
            return _name(program)
        words[:] = rest
        program = words.pop(0)
    return program


def _without_options(words: Sequence[str]) -> list[str]:
    """Drop options, numbers (of `timeout 5`) and assignments (of `env A=b`) before the program."""
    for position, word in enumerate(words):
        plain = not word.startswith("-") and not _ASSIGNMENT.fullmatch(word) and not word[:1].isdigit()
        if plain and word != "launch":
            return list(words[position:])
    return []


def _script(program: str, words: list[str], directory: str) -> str:
    """Take an interpreter's own options off `words` and return what it runs."""
    for word in _take(words):
        if word == "-m" and words:
            return _in_project(words.pop(0), directory)
        if word.startswith("-") and word.endswith("c") and not word.startswith("--"):
            code = words.pop(0) if words else ""
            return f"{program} -c {hashlib.sha256(code.encode(errors='replace')).hexdigest()[:DIGITS]}"
        if not word.startswith("-"):
            return _in_project(word, directory)
    return program


def _name(path: str) -> str:
    return posixpath.basename(path.rstrip("/"))


def _take(words: list[str]) -> Iterator[str]:
    while words:
        yield words.pop(0)
