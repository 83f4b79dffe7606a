"""Writing the verbs into a directory."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from colane.integrations.slurm.contact import SlurmError
from colane.integrations.slurm.main import VERBS

MARK: Final = "# Written by 'colane shims'."
SHIM: Final = """#!{python} -I
{mark} Runs Slurm's {verb} on Colane; the directory may be removed at any time.
import sys
from colane.integrations.slurm.main import main
sys.exit(main({verb!r}, {directory!r}, sys.argv[1:]))
"""
"""Python at once: some shells (dash) drop what bash has exported as functions, as `module`."""
BY_SHELL: Final = """#!/bin/sh
{mark} Runs Slurm's {verb} on Colane; the directory may be removed at any time.
exec {python} -I -c 'import sys
from colane.integrations.slurm.main import main
sys.exit(main(*sys.argv[1:3], sys.argv[3:]))' {verb} {directory} "$@"
"""


INTERPRETER_BYTES_MAX: Final = 120
"""Of a path that older kernels take behind `#!`, where it has no blanks."""


def install(directory: Path) -> list[str]:
    """Write the verbs, and return what to tell about others of their names on the path.

    Raises SlurmError: the directory cannot be written, or has a program of such a name that is not ours.
    """
    directory = directory.expanduser().absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for verb in VERBS:
            path = directory / verb
            if (path.exists() or path.is_symlink()) and not is_shim(path):
                raise SlurmError(f"{path} is there and is none of Colane's; name another directory")
        for verb in VERBS:
            _write(directory / verb, _shim(verb, str(directory)))
    except OSError as error:
        raise SlurmError(f"{error.filename or directory}: {error.strerror}") from error
    return _others(directory)


def _shim(verb: str, directory: str) -> str:
    python = sys.executable
    if len(os.fsencode(python)) <= INTERPRETER_BYTES_MAX and not any(one.isspace() for one in python):
        return SHIM.format(mark=MARK, verb=verb, python=python, directory=directory)
    quoted = {"python": shlex.quote(python), "directory": shlex.quote(directory)}
    return BY_SHELL.format(mark=MARK, verb=verb, **quoted)


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(0o755)
    draft.replace(path)


HEAD_CHARS: Final = 4_096


def is_shim(path: Path) -> bool:
    """Whether a program is one of ours."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return MARK in file.read(HEAD_CHARS)
    except OSError:
        return False


def _others(directory: Path) -> list[str]:
    """Say what stands before or behind the verbs on the path."""
    places = [Path(place) for place in os.environ.get("PATH", "").split(os.pathsep) if place]
    found = [place for place in dict.fromkeys(places) if place != directory and shutil.which("sbatch", path=str(place))]
    ours = [str(place) for place in found if is_shim(place / "sbatch")]
    slurms = [str(place) for place in found if not is_shim(place / "sbatch")]
    told = [f"Slurm's own verbs are in {', '.join(slurms)}: the directory that stands first in PATH wins"] * bool(
        slurms
    )
    return told + [f"Colane's are also in {', '.join(ours)}; one such directory is enough"] * bool(ours)
