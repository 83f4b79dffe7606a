"""Where files of settings lie. Apart from what reads them: most commands only have to know that there is none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

FILE_NAME: Final = "colane.toml"
FILE_VARIABLE: Final = "COLANE_CONFIG"
SYSTEM_FILE: Final = Path("/etc/colane") / FILE_NAME  # where root's services look, and clients of all users


def own_file(environment: Mapping[str, str]) -> Path:
    """Return the file that services read where none is named: root's is the system's, a user's in their directory."""
    if os.geteuid() == 0:
        return SYSTEM_FILE
    home = environment.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    return Path(home) / "colane" / FILE_NAME


def named_file(environment: Mapping[str, str]) -> Path | None:
    """Return the file that `COLANE_CONFIG` names, absolute."""
    named = environment.get(FILE_VARIABLE)
    return Path(named).expanduser().absolute() if named else None


def client_files(environment: Mapping[str, str]) -> list[Path]:
    """Return the files that tell clients where the scheduler is, the first to be believed first."""
    named = named_file(environment)
    wanted = [named] if named is not None else dict.fromkeys([own_file(environment), SYSTEM_FILE])
    return [path for path in wanted if os.access(path, os.R_OK) or path == named]
