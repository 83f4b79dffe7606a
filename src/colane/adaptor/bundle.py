"""Puts what jobs need of the adaptor into a directory of its own, and into environments that want it installed.

A job's Python may be of any version and know nothing of Colane, so it gets a copy: plain files of the standard
library's dialect under a name of their own, `_colane_adaptor`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from uuid import uuid4

DIR_ENV = "COLANE_ADAPTOR_DIR"  # tells an installed start-up file where the agent's copy is

PACKAGE = "_colane_adaptor"
_HERE = Path(__file__).parent
_AGENT_SIDE = {"__init__.py", "bundle.py", "wire.py"}
_DOC = '"""Colane\'s adaptor, as the agent puts it into a job."""\n'

START_MODULE = "_colane_start"
PTH, START = "colane-adaptor.pth", "colane-adaptor.start"
_PTH_LINE = f"import os; os.environ.get('COLANE_STEPS_FILE') and __import__('{START_MODULE}').arm()\n"


@cache
def files() -> dict[str, str]:
    """Give the texts of all files that a job's process may load, by their path in the directory.

    Read once: an agent whose package is upgraded under it goes on with the version it speaks.
    """
    inside = {f"{PACKAGE}/{path.name}": path.read_text() for path in _HERE.glob("*.py") if path.name not in _AGENT_SIDE}
    return {"sitecustomize.py": (_HERE / "shim/sitecustomize.py").read_text(), f"{PACKAGE}/__init__.py": _DOC, **inside}


def place(root: Path) -> Path:
    """Say where `unpack` puts this version of the adaptor."""
    digest = hashlib.sha256()
    for name, text in sorted(files().items()):
        digest.update(f"{name}\0{text}\0".encode())
    return root.absolute() / "adaptor" / digest.hexdigest()[:16]


def unpack(root: Path) -> Path:
    """Make the directory that goes on a job's path, and return it.

    Jobs that run keep the one they started with: each version has its own, and none is taken away. Raises OSError: it
    cannot be written.
    """
    return put_whole(place(root), _write)


def put_whole(target: Path, fill: Callable[[Path], None]) -> Path:
    """Make a directory that is there with all its files or not at all, and return it; one that is there stays.

    Args:
        target: The directory.
        fill: Makes the files in the directory it is given.

    Raises:
        OSError: It cannot be written.
    """
    if target.is_dir():
        return target
    draft = target.with_name(f".{uuid4().hex}")
    draft.mkdir(mode=0o755, parents=True)
    try:
        fill(draft)
        draft.rename(target)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not target.is_dir():  # else another was quicker
            raise
    return target


def _write(draft: Path) -> None:
    for name, text in files().items():
        (draft / name).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        (draft / name).write_text(text)


def start_files() -> dict[str, str]:
    """Give the files that arm the adaptor from inside an environment, by name.

    Python 3.15 reads `.start` files (PEP 829) in the place of import lines in `.pth` files.
    """
    module = (_HERE / "shim" / f"{START_MODULE}.py").read_text()
    return {f"{START_MODULE}.py": module, PTH: _PTH_LINE, START: f"{START_MODULE}:arm\n"}


def install(site_packages: Path) -> None:
    """Put the start-up files into an environment. Raises OSError: it cannot be written."""
    for name, text in start_files().items():
        (site_packages / name).write_text(text)


def uninstall(site_packages: Path) -> bool:
    """Take them out again; False when there were none. Raises OSError: it cannot be written."""
    found = [site_packages / name for name in start_files() if (site_packages / name).exists()]
    for path in found:
        path.unlink()
    return bool(found)


def first_on_path(directory: Path, pythonpath: str) -> str:
    """Return PYTHONPATH with the adaptor's directory before whatever the job has there."""
    return os.pathsep.join((str(directory), pythonpath)) if pythonpath else str(directory)
