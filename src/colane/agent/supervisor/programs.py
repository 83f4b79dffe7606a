"""The programs that stand between the agent and its jobs: compiled copies in a directory of their own.

Compiled once, for they read no `__pycache__` there. Each version has its own directory,
and none is taken away, so that a supervisor that is just starting finds the parts it belongs to, though the package is
upgraded and the agent started anew meanwhile.
"""

from __future__ import annotations

import hashlib
import py_compile
import sys
from functools import cache
from pathlib import Path
from typing import Final

from colane.adaptor.bundle import put_whole

FORK_SERVER: Final = "fork_server.pyc"
RANKS: Final = "ranks.pyc"
REMOVAL: Final = "removal.pyc"

_PACKAGE: Final = Path(__file__).parents[2]
_FILES: Final = {
    "agent/supervisor/fork_server.py": FORK_SERVER,
    "agent/supervisor/ranks.py": RANKS,
    "agent/files/removal.py": REMOVAL,
    "agent/__init__.py": "colane/agent/__init__.pyc",
    "agent/supervisor/__init__.py": "colane/agent/supervisor/__init__.pyc",
    "agent/supervisor/shim.py": "colane/agent/supervisor/shim.pyc",
    "agent/supervisor/shim_copy.py": "colane/agent/supervisor/shim_copy.pyc",
    "agent/supervisor/shim_ending.py": "colane/agent/supervisor/shim_ending.pyc",
    "agent/supervisor/shim_files.py": "colane/agent/supervisor/shim_files.pyc",
    "agent/supervisor/shim_halt.py": "colane/agent/supervisor/shim_halt.pyc",
    "agent/supervisor/shim_mps.py": "colane/agent/supervisor/shim_mps.pyc",
    "agent/supervisor/shim_system.py": "colane/agent/supervisor/shim_system.pyc",
    "agent/supervisor/shim_terminal.py": "colane/agent/supervisor/shim_terminal.pyc",
}
"""Sources, and where their copies go."""


@cache
def _version() -> str:
    """Of this Python and of all sources, read once: an agent whose package is upgraded goes on with its own."""
    digest = hashlib.sha256(sys.version.encode())
    for source in _FILES:
        digest.update((_PACKAGE / source).read_bytes())
    return digest.hexdigest()[:16]


def folder(state_root: Path) -> Path:
    """Where an agent's programs are, of whatever version."""
    return state_root.absolute() / "programs"


def place(state_root: Path) -> Path:
    """Put the programs of this version below an agent's directory, and return where they are.

    Raises OSError: they cannot be written.
    """
    return put_whole(folder(state_root) / _version(), _compile)


def _compile(draft: Path) -> None:
    for source, copy in _FILES.items():
        (draft / copy).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        py_compile.compile(str(_PACKAGE / source), str(draft / copy), doraise=True)
