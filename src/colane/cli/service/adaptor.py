"""`colane adaptor`: start-up files for environments whose jobs the agent cannot reach through PYTHONPATH."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from colane.cli import output
from colane.cli.errors import MisuseError, writing

PythonOption = Annotated[
    str,
    typer.Option("--python", metavar="PATH", help="Interpreter of the environment; the first on PATH if not given."),
]

ASK = "import sys, sysconfig; print(*sys.version_info[:2], sysconfig.get_path('purelib'))"
ANSWER_MAX_S = 30.0
OLDEST = (3, 8)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    example = "Example: [bold]colane adaptor install --python ~/venv/bin/python[/bold]"
    group = typer.Typer(no_args_is_help=True, help="Let an environment find steps by itself.", epilog=example)
    group.command("install", epilog=example)(install)
    group.command("uninstall", epilog="Example: [bold]colane adaptor uninstall[/bold]")(uninstall)
    app.add_typer(group, name="adaptor")


def install(python: PythonOption = "python") -> None:
    """Install start-up files in an environment, for jobs that set PYTHONPATH themselves or run python -I or -E.

    Other jobs need nothing installed. Outside of jobs the files do nothing.
    """
    from colane.adaptor import bundle  # noqa: PLC0415 - imported late

    place = _site_packages(python)
    with writing(str(place)):
        bundle.install(place)
    output.say(f"installed in {place}")


def uninstall(python: PythonOption = "python") -> None:
    """Take the start-up files out of an environment again."""
    from colane.adaptor import bundle  # noqa: PLC0415 - imported late

    place = _site_packages(python)
    with writing(str(place)):
        found = bundle.uninstall(place)
    output.say(f"removed from {place}" if found else f"there was nothing to remove in {place}")


def _site_packages(python: str) -> Path:
    """Ask an interpreter where its packages are."""
    program = shutil.which(Path(python).expanduser())
    if program is None:
        raise MisuseError(f"--python: there is no program {python}; give the path of an interpreter")
    try:
        told = subprocess.run(
            [program, "-I", "-c", ASK], capture_output=True, text=True, check=True, timeout=ANSWER_MAX_S
        ).stdout.split(maxsplit=2)
        version, place = (int(told[0]), int(told[1])), Path(told[2].strip())
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise MisuseError(f"--python: {program} is no Python of version 3.8 or later") from error
    if version < OLDEST:
        raise MisuseError(f"--python: {program} is Python {version[0]}.{version[1]}; the adaptor needs 3.8 or later")
    return place
