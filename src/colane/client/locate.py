"""Where the scheduler is: `COLANE_URL`, else the one on this machine by its state directory, else the default."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

DEFAULT_URL: Final = "http://127.0.0.1:8642"
URL_VARIABLE: Final = "COLANE_URL"
TOKEN_VARIABLE: Final = "COLANE_TOKEN"  # noqa: S105 - the name of a variable
STATE_VARIABLE: Final = "COLANE_STATE"
SERVER_FILE: Final = "server.json"


def default_state_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the scheduler's state directory where none is named: `COLANE_STATE`, else the platform's."""
    named = environment.get(STATE_VARIABLE)
    if named:
        return Path(named)
    from platformdirs import user_state_path  # noqa: PLC0415 - imported late: most commands know the URL

    return user_state_path("colane", appauthor=False)


def find_url(state_dir: Path | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the scheduler's URL."""
    named = environment.get(URL_VARIABLE)
    if named:
        return named.rstrip("/")
    return _published(state_dir or default_state_dir(environment)) or DEFAULT_URL


def find_token(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the token to send, None for none."""
    return environment.get(TOKEN_VARIABLE) or None


def _published(state_dir: Path) -> str | None:
    """Return what a scheduler has written there; a file a killed one left behind names a URL nobody answers at."""
    try:
        body = json.loads((state_dir / SERVER_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    url = body.get("url") if isinstance(body, dict) else None
    return url if isinstance(url, str) and url else None
