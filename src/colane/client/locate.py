"""Where the scheduler is: by `COLANE_URL` or `colane.toml`, else on this machine by its state directory.

On its own machine a scheduler is called through its socket where that can be reached: the kernel then names the caller,
and no token is needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from colane.client.errors import BadUrl
from colane.settings.places import client_files

DEFAULT_URL: Final = "http://127.0.0.1:8642"
URL_VARIABLE: Final = "COLANE_URL"
TOKEN_VARIABLE: Final = "COLANE_TOKEN"  # noqa: S105 - the name of a variable
STATE_VARIABLE: Final = "COLANE_STATE"
TOKEN_FILE_VARIABLE: Final = "COLANE_TOKEN_FILE"  # noqa: S105 - as above
SYSTEM_STATE: Final = Path("/var/lib/colane")
"""The state directory of a scheduler that root runs, where every user of the machine looks for one."""
UNIX: Final = "unix://"  # how the URL of a socket begins; its path follows
SERVER_FILE: Final = "server.json"
SOCKET_FILE: Final = "socket"
TOKEN_FILE: Final = "token"  # noqa: S105 - the name of a file
"""What a scheduler that was given no token demands: only readers of its state directory can know it."""


def default_state_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the scheduler's state directory: `COLANE_STATE`, else root's is the system's, a user's the platform's."""
    named = environment.get(STATE_VARIABLE)
    if named:
        return Path(named)
    if os.geteuid() == 0:
        return SYSTEM_STATE
    from platformdirs import user_state_path  # noqa: PLC0415 - imported late: most commands know the URL

    return user_state_path("colane", appauthor=False)


def surroundings(environment: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """Return the variables that tell of the scheduler, with what `[client]` of `colane.toml` says where none is set.

    Raises BadUrl: a file of settings cannot be.
    """
    files = client_files(environment)
    if not files:
        return environment
    from colane.settings.setting import SettingError  # noqa: PLC0415 - imported late: most have no file
    from colane.settings.sources import gather, read_file  # noqa: PLC0415
    from colane.settings.table import CLIENT  # noqa: PLC0415

    found: dict[str, str] = {}
    for path in reversed(files):
        try:
            values = gather(CLIENT, {}, file=read_file(path, (CLIENT,)), environment={})
        except SettingError as error:
            raise BadUrl(str(error)) from error
        found |= {each.variables[0]: str(values[each]) for each in CLIENT.settings if values.is_given(each)}
    return {**environment, **{name: value for name, value in found.items() if not environment.get(name)}}


def find_url(state_dir: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Return the scheduler's URL; `unix:///PATH` is the socket of one on this machine.

    Raises BadUrl: what is said of it cannot be.
    """
    environment = surroundings() if environment is None else environment
    named = environment.get(URL_VARIABLE)
    places = list(dict.fromkeys([state_dir or default_state_dir(environment), SYSTEM_STATE]))
    if named:
        url = judged(named)
        has_token = any(environment.get(name) for name in (TOKEN_VARIABLE, TOKEN_FILE_VARIABLE))
        sockets = (found.socket for place in places if (found := _published(place)) is not None and found.url == url)
        return url if has_token else next(filter(None, sockets), url)
    found = next(filter(None, map(_published, places)), None)
    return DEFAULT_URL if found is None else found.socket or found.url


def web_url(url: str) -> str:
    """Return the URL that a browser takes for a scheduler's: of a socket, what its scheduler wrote beside it.

    Raises BadUrl: nothing is written there.
    """
    if not url.startswith(UNIX):
        return url
    found = _published(Path(url.removeprefix(UNIX)).parent)
    if found is None:
        raise BadUrl(f"{url} is a socket, which no browser opens: set {URL_VARIABLE} to the scheduler's http URL")
    return found.url.rstrip("/")


def judged(named: str) -> str:
    """Return URLs, one or several with commas between, without slashes at their ends.

    Raises BadUrl: no scheduler can be there.
    """
    return ",".join([_judged(url.strip()) for url in named.split(",")])


def urls_of(url: str) -> list[str]:
    """Return the schedulers that a URL names: the one that leads, and its standbys."""
    return [each.rstrip("/") for each in url.split(",")]


def _judged(url: str) -> str:
    try:
        parts = urlsplit(url)
        if url.startswith(f"{UNIX}/") and url.isprintable():
            return url
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, brackets that do not match
        is_good = False
    if not is_good or not url.isprintable() or " " in url:
        raise BadUrl(f"{URL_VARIABLE}: must be a URL such as http://head:8642, got {url[:60]!r}")
    return url.rstrip("/")


def find_token(url: str, environment: Mapping[str, str] | None = None) -> str | None:
    """Return the token to send to a scheduler, None where none is known.

    It is `COLANE_TOKEN`, else what the file `COLANE_TOKEN_FILE` holds, else, for the scheduler of our own state
    directory and no other, what lies there.
    """
    environment = surroundings() if environment is None else environment
    named = environment.get(TOKEN_VARIABLE)
    if named:
        return named
    file = environment.get(TOKEN_FILE_VARIABLE)
    if file:
        return read_token(Path(file))
    state_dir = default_state_dir(environment)
    found = _published(state_dir)
    is_ours = found is not None and found.url == url.rstrip("/")
    return read_token(state_dir / TOKEN_FILE) if is_ours else None


def read_token(path: Path) -> str | None:
    """Return the token in a file, None where it cannot be read or is empty."""
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


class _Published(NamedTuple):
    """Where a scheduler listens: its URL, and that of its socket where it can be reached, else empty."""

    url: str
    socket: str


def _published(state_dir: Path) -> _Published | None:
    """Return what a scheduler has written there; a file a killed one left behind names a dead URL."""
    try:
        body = json.loads((state_dir / SERVER_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    url = body.get("url") if isinstance(body, dict) else None
    path = state_dir.absolute() / SOCKET_FILE
    return _Published(url, f"{UNIX}{path}" if path.is_socket() else "") if isinstance(url, str) and url else None
