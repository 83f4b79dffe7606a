"""Scripts given to `colane submit` as `sbatch` takes them: how they are run, and what their `#SBATCH` lines say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from colane.cli.errors import MisuseError
from colane.cpu.category import category_of
from colane.model.field_values import BYTES, Amount, GpuSizes
from colane.model.job_fields import JOB_FIELDS, JobField
from colane.model.job_spec import Category

HEAD_BYTES: Final = 64 * 1024  # what of a script is looked at: its directives stand before its first command

INTERPRETERS: Final[Mapping[str, Sequence[str]]] = {
    ".py": ("python", "python3"),
    ".sh": ("bash", "sh"),
    ".bash": ("bash",),
}
"""Programs that run a script without a first line that names one, by the end of its name, the first of them found."""

SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh"})

OURS: Final[Mapping[str, JobField]] = {name: field for field in JOB_FIELDS for name in field.slurm}
"""Slurm's options that have a counterpart here."""

_DIRECTIVE: Final = re.compile(r"#(?P<mark>SBATCH|COLANE)\s+(?P<words>-.*)")
_GPUS: Final = re.compile(r"(?:gpu:)?(?:[A-Za-z][^:]*:)?(?P<count>[0-9]+)(?:\(.*\))?")


def runnable(words: Sequence[str], workdir: str | None = None) -> list[str]:
    """Return the command that runs these words: a script named as `sbatch` takes it, by its bare name, is run.

    Raises MisuseError: the first word is a file here that Colane does not know how to run.
    """
    script = Path(workdir or ".").expanduser() / words[0]
    if script.is_dir() and ("/" in words[0] or not shutil.which(words[0])):
        raise MisuseError(f"{words[0]} is a directory and no program; name what runs: colane submit -- python FILE")
    if "/" in words[0] or shutil.which(words[0]) or not script.is_file():
        return list(words)
    first = _head(script).partition("\n")[0]
    able = [name for name in INTERPRETERS.get(script.suffix, ()) if shutil.which(name)]
    named = first[2:].split() if first.startswith("#!") else able[:1]
    if not named:
        raise MisuseError(f"{words[0]} is a file and no program; name what runs it: colane submit -- bash {words[0]}")
    return [*named, *words]


def dos_breaks(command: object, workdir: object) -> str | None:
    """Return what keeps a shell from reading the script of a command; None where nothing is seen to."""
    words = [str(word) for word in command] if isinstance(command, list) else []
    script = _script(words)
    if script is None or (words[0] != script and words[0].rpartition("/")[2] not in SHELLS):
        return None
    head = _head(Path(str(workdir)) / script)
    if "\r\n" not in head or (words[0] == script and not head.startswith("#!")):
        return None
    return f"{script} has DOS line breaks, which shells do not read: sed -i 's/\\r$//' {shlex.quote(script)}"


def missing_program(command: object, env: object, workdir: object) -> str | None:
    """Return what keeps a command from being started on this machine; None where nothing is seen to."""
    if not isinstance(command, list) or not command or not isinstance(env, Mapping) or not isinstance(workdir, str):
        return None
    word = str(command[0])
    if "/" not in word:
        found = shutil.which(word, path=env.get("PATH", os.defpath))
        return None if found else _not_found(word)
    place = Path(workdir) / word
    if not place.exists():
        return f"there is no {word} in {workdir}" if not place.is_absolute() else f"there is no {word} here"
    if place.is_file() and not os.access(place, os.X_OK):
        return f"{word} may not be run: chmod +x {word}, or name what runs it, as bash {word}"
    return None


def missing_directory(workdir: object) -> str | None:
    """Return why no process can be started in a directory of this machine; None where it can, as far as is seen."""
    if not isinstance(workdir, str):
        return None
    try:
        is_directory = stat.S_ISDIR(Path(workdir).stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return f"there is no directory {workdir} here: make it (mkdir -p {shlex.quote(workdir)}), or name another"
    except OSError as error:
        return f"{workdir} cannot be entered here ({error.strerror}): name another"
    if not is_directory:
        return f"{workdir} is no directory here: name another"
    return None if os.access(workdir, os.X_OK) else f"{workdir} may not be entered here: name another"


def directives(command: object, workdir: str) -> str | None:
    """Return what to say of the `#SBATCH` and `#COLANE` lines of the script that a command runs; None without any."""
    words = [str(word) for word in command] if isinstance(command, list) else []
    script = _script(words)
    if script is None:
        return None
    marks, options, late, is_head = set[str](), list[str](), list[str](), True
    for number, line in enumerate(_head(Path(workdir) / script).splitlines(), 1):
        match = _DIRECTIVE.match(line)
        if match is None:
            is_head = is_head and (not line.strip() or line.lstrip().startswith("#"))
        elif is_head:
            marks.add(f"#{match['mark']}")
            options.append(_translated(match["words"]) if match["mark"] == "SBATCH" else _bare(match["words"]))
        else:
            late.append(str(number))
    ignored = f"lines behind the first command of {script} are not read by Slurm either: {', '.join(late)}"
    if not marks:
        return ignored if late else None
    given = " ".join(filter(None, options))
    advice = f"what of it Colane knows, as options: colane submit {given} {script}" if given else "give options instead"
    if marks == {"#COLANE"}:
        advice = f"sbatch does (colane shims); as options: colane submit {given} {script}"
    told = f"{script} has {' and '.join(sorted(marks))} lines, which colane submit does not read; {advice}"
    return f"{told}; {ignored}" if late else told


def category(command: object, workdir: object, model_name: object) -> Category:
    """Return what a job works on: built-in models see images, a Python script is told by what it imports."""
    if model_name is not None:
        return Category.CV
    words = [str(word) for word in command] if isinstance(command, list) else []
    script = next((word for word in words if word.endswith(".py")), None)
    if script is None:
        return Category.UNKNOWN
    try:
        text = (Path(str(workdir)) / script).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Category.UNKNOWN
    return category_of(text)


def _script(words: Sequence[str]) -> str | None:
    """Return the script among the words: the first, or the one a shell is given."""
    if not words:
        return None
    rest = words[1:] if words[0].rpartition("/")[2] in SHELLS else words
    return next((word for word in rest if not word.startswith("-")), None)


def _bare(line: str) -> str:
    """Return the options of a `#COLANE` line without what is said behind them."""
    try:
        return shlex.join(shlex.split(line, comments=True))
    except ValueError:
        return line


def _translated(line: str) -> str:
    """Return one directive's options as ours; empty for one without a counterpart."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return ""
    if not words:
        return ""
    name, _, value = words[0].partition("=")
    if not value and not name.startswith("--") and len(name) > 2:
        name, value = name[:2], name[2:]
    value = value or (words[1] if len(words) > 1 else "")
    ours = OURS.get(name)
    return "" if ours is None or not value else _option(ours, value)


def _option(field: JobField, value: str) -> str:
    """Return an option as ours: what Slurm counts in units of its own is given them."""
    name = "" if field.option is None else field.option.names[0]
    if isinstance(field.takes, GpuSizes):
        match = _GPUS.fullmatch(value)
        return "" if match is None else f"{name} {match['count']}"
    if isinstance(field.takes, Amount) and value.isdecimal():
        value += field.takes.slurm_unit
    elif isinstance(field.takes, Amount) and field.takes.unit is BYTES and value[-1:] in BINARY:
        value += "iB"
    return f"{name} {shlex.quote(value)}"


BINARY: Final = frozenset("KMGT")  # Slurm's units of memory, each 1024 of the one before


def _head(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _not_found(word: str) -> str:
    if len(word.split()) > 1:
        line = f"as its words, -- {word}, or as a line of a shell, -- sh -c {shlex.quote(word)}"
        return f"there is no program {word!r} in PATH here: give the command without the quotes, {line}"
    return f"there is no program {word!r} in PATH here; name its path, or what runs it"
