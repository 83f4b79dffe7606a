"""Where the scheduler is: `COLANE_URL`, else the one on this machine by its state directory, else the default."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from colane.client.errors import BadUrl

DEFAULT_URL: Final = "http://127.0.0.1:8642"
URL_VARIABLE: Final = "COLANE_URL"
TOKEN_VARIABLE: Final = "COLANE_TOKEN"  # noqa: S105 - the name of a variable
STATE_VARIABLE: Final = "COLANE_STATE"
TOKEN_FILE_VARIABLE: Final = "COLANE_TOKEN_FILE"  # noqa: S105 - as above
SERVER_FILE: Final = "server.json"
TOKEN_FILE: Final = "token"  # noqa: S105 - the name of a file
"""What a scheduler that was given no token demands: only who may read its state directory can know it."""


def default_state_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the scheduler's state directory where none is named: `COLANE_STATE`, else the platform's."""
    named = environment.get(STATE_VARIABLE)
    if named:
        return Path(named)
    from platformdirs import user_state_path  # noqa: PLC0415 - imported late: most commands know the URL

    return user_state_path("colane", appauthor=False)


def find_url(state_dir: Path | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the scheduler's URL.

    Raises:
        BadUrl: `COLANE_URL` is none.
    """
    named = environment.get(URL_VARIABLE)
    if named:
        return judged(named)
    return _published(state_dir or default_state_dir(environment)) or DEFAULT_URL


def judged(url: str) -> str:
    """Return a URL without a slash at its end.

    Raises:
        BadUrl: No scheduler can be there.
    """
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, brackets that do not match
        is_good = False
    if not is_good or not url.isprintable() or " " in url:
        raise BadUrl(f"{URL_VARIABLE}: must be a URL such as http://head:8642, got {url[:60]!r}")
    return url.rstrip("/")


def find_token(url: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the token to send to a scheduler, None where none is known.

    It is `COLANE_TOKEN`, else what the file `COLANE_TOKEN_FILE` holds, else, for the scheduler of our own state
    directory and no other, what lies there.
    """
    named = environment.get(TOKEN_VARIABLE)
    if named:
        return named
    file = environment.get(TOKEN_FILE_VARIABLE)
    if file:
        return read_token(Path(file))
    state_dir = default_state_dir(environment)
    return read_token(state_dir / TOKEN_FILE) if _published(state_dir) == url.rstrip("/") else None


def read_token(path: Path) -> str | None:
    """Return the token in a file, None where it cannot be read or is empty."""
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _published(state_dir: Path) -> str | None:
    """Return what a scheduler has written there; a file a killed one left behind names a URL nobody answers at."""
    try:
        body = json.loads((state_dir / SERVER_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    url = body.get("url") if isinstance(body, dict) else None
    return url if isinstance(url, str) and url else None
