"""The scripts a newcomer starts with: they name what is missing, and do their work once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"


def bash(line: str, path: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash behind `venv.sh`, with the programs of `path` before all others."""
    search = f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"]
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f'. "{SCRIPTS}/venv.sh"; {line}'],
        env={**os.environ, "PYTHON": sys.executable, **variables, "PATH": search},
        capture_output=True,
        text=True,
        check=False,
    )


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "script", ["scripts/demo", "scripts/test", "scripts/wheels", "scripts/wheels-arm64", "scripts/venv.sh", ".ci/run"]
)
def test_they_are_sound_bash(script: str) -> None:
    subprocess.run(["bash", "-n", ROOT / script], check=True)
    assert os.access(ROOT / script, os.X_OK) == (script != "scripts/venv.sh")


def test_a_group_is_read_from_pyproject() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert bash("find_python; group test").stdout.splitlines() == groups["test"]


def test_a_release_has_a_wheel_for_each_python_and_processor_that_is_named() -> None:
    """On Linux; each is compiled as `scripts/compile` does it, and tried."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheels = project["tool"]["cibuildwheel"]
    named = [
        re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", one) for one in project["project"]["classifiers"]
    ]
    assert wheels["build"] == [f"cp3{one[1]}-manylinux_*" for one in named if one]
    compile_ = (SCRIPTS / "compile").read_text()
    for name, value in wheels["environment"].items():
        assert f"{name}={value}" in compile_ or f"{{{name}:-{value}}}" in compile_
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "wheels.yml").read_text())
    matrix = workflow["jobs"]["compiled"]["strategy"]["matrix"]["include"]
    assert [one["architecture"] for one in matrix] == ["x86_64", "aarch64"]


def test_a_wheel_that_is_not_compiled_does_not_pass_for_one() -> None:
    command = [sys.executable, "-I", str(SCRIPTS / "try_wheel.py")]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == "the Colane that is installed has no compiled module\n"


def test_an_old_python_is_refused_with_the_fix(tmp_path: Path) -> None:
    old = program(tmp_path, "python3.9", 'if [ "$1" = --version ]; then echo Python 3.9.2; else exit 1; fi')
    said = bash("ensure_venv", PYTHON=str(old))
    assert said.returncode == 1
    assert "is Python 3.9.2, and 3.11 or newer is needed; name another: PYTHON=python3.12" in said.stderr


WITHOUT_PIP = f'[ "$1 $2" = "-m pip" ] && exit 1; exec {sys.executable} "$@"'
WITH_PIP = '[ "$1 $2 $3" = "-m pip --version" ] && exit 0; '
OF_DEBIAN = '[ "$2" = "import sys; print(sys.base_prefix)" ] && exec echo /usr; '


def test_missing_packages_are_named_to_a_user(tmp_path: Path) -> None:
    program(tmp_path, "id", "echo 1000")
    said = bash("ensure_venv", tmp_path, PYTHON=str(program(tmp_path, "python3", OF_DEBIAN + WITHOUT_PIP)))
    assert said.returncode == 1
    assert "please install python3-pip (Debian: sudo apt-get install python3-pip)" in said.stderr


def test_missing_packages_are_installed_by_root(tmp_path: Path) -> None:
    program(tmp_path, "id", "echo 0")
    program(tmp_path, "apt-get", f'echo "$@" >> {tmp_path}/asked; exit 0')
    text = f'[ "$1 $2" = "-m pip" ] && {{ [ -e {tmp_path}/asked ]; exit; }}; exec {sys.executable} "$@"'
    python = program(tmp_path, "python3", OF_DEBIAN + text)
    assert bash("find_python", tmp_path, PYTHON=str(python)).returncode == 0
    assert "install -yq --no-install-recommends python3-pip" in (tmp_path / "asked").read_text()


def test_what_pythons_lack_that_are_not_debians_is_said_at_once(tmp_path: Path) -> None:
    program(tmp_path, "id", "echo 0")
    program(tmp_path, "apt-get", f"touch {tmp_path}/asked")
    python = program(tmp_path, "python3.12", OF_DEBIAN.replace("/usr", "/opt") + WITHOUT_PIP)
    said = bash("find_python; echo compiling", tmp_path, PYTHON=str(python))
    assert said.returncode == 1
    assert f"{python} has no pip: {python} -m ensurepip gives it one, or name another" in said.stderr
    assert not said.stdout
    assert not (tmp_path / "asked").exists(), "Debian's pip is not of this Python"


def test_a_debian_python_that_has_no_pip_even_then_is_refused(tmp_path: Path) -> None:
    program(tmp_path, "id", "echo 0")
    program(tmp_path, "apt-get", "exit 0")
    said = bash("find_python", tmp_path, PYTHON=str(program(tmp_path, "python3", OF_DEBIAN + WITHOUT_PIP)))
    assert said.returncode == 1
    assert "still has no pip; name another: PYTHON=/usr/bin/python3" in said.stderr


def test_the_environment_is_filled_once(tmp_path: Path) -> None:
    """pip is called for the first run, and again when pyproject.toml is another."""
    calls = tmp_path / "calls"
    fill = WITH_PIP + (
        f'if [ "$1 $2" = "-m pip" ]; then echo "$@" >> {calls}; '
        f'touch "$COLANE_VENV/bin/colane"; chmod +x "$COLANE_VENV/bin/colane"; exit 0; fi; exec {sys.executable} "$@"'
    )
    variables = {"PYTHON": str(program(tmp_path, "python3", fill)), "COLANE_VENV": str(tmp_path / "venv")}
    for _ in range(2):
        said = bash("ensure_venv test", None, **variables)
        assert said.returncode == 0, said.stderr
    assert len(calls.read_text().splitlines()) == 1
    assert "torch==2.13.0 -e" in calls.read_text()
    assert "pytest" in calls.read_text()
    stamp = tmp_path / "venv" / ".colane-stamp-test"
    stamp.write_text("of another pyproject.toml\n")
    assert bash("ensure_venv test", None, **variables).returncode == 0
    assert len(calls.read_text().splitlines()) == 2


def test_installing_shows_progress_and_what_went_wrong(tmp_path: Path) -> None:
    fill = WITH_PIP + (
        'if [ "$1 $2" = "-m pip" ]; then echo "Collecting torch==2.13.0"; '
        'echo "Installing collected packages: torch"; echo "ERROR: no room on the disk" >&2; exit 1; fi; '
        f'exec {sys.executable} "$@"'
    )
    said = bash("ensure_venv", None, PYTHON=str(program(tmp_path, "python3", fill)), COLANE_VENV=str(tmp_path / "venv"))
    assert said.returncode == 1
    assert "1 packages, collecting torch==2.13.0" in said.stderr
    assert "ERROR: no room on the disk" in said.stderr
    assert "pip could not install what is needed; see above" in said.stderr
    assert not list((tmp_path / "venv").glob(".colane-stamp*"))
