"""Where a store over the network is, as it is written in a setting: never with its password."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from colane.settings.setting import Raw

DEFAULT_NAME: Final = "colane"
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,40}")
EXAMPLE: Final = "redis://HOST[:PORT][/DB], postgres://[USER@]HOST[:PORT]/DATABASE, or unix:///PATH?db=DB"
POSTGRES: Final = "postgres"
DEFAULT_PORTS: Final = {"redis": 6379, "rediss": 6379, "unix": 0, POSTGRES: 5432}
OTHER_WORDS: Final = {"postgresql": POSTGRES}
OPTIONS: Final = {POSTGRES: ("host", "name", "sslmode")}
SSL_MODES: Final = ("disable", "prefer", "require", "verify-ca", "verify-full")
DATABASE_MAX: Final = 65_535


class StoreAddress(NamedTuple):
    """Where a store is."""

    scheme: str  # what its server speaks, and how it is reached
    host: str = ""  # name or address; empty for a socket
    port: int = 0  # 0 for a socket of Redis
    path: str = ""  # of a socket; of Postgres, of the directory that it lies in
    database: str = "0"  # redis's number, or Postgres's name
    user: str = ""  # the user to log in as; empty for the server's default user
    name: str = DEFAULT_NAME  # of the cluster: several may share a database
    sslmode: str = ""  # postgres's word for how it is encrypted; empty for its default

    def __str__(self) -> str:
        """As it is written."""
        user = f"{self.user}@" if self.user else ""
        options = [f"db={self.database}"] * (self.scheme == "unix")
        options += [f"host={self.path}"] * (self.scheme == POSTGRES and bool(self.path))
        options += [f"name={self.name}"] * (self.name != DEFAULT_NAME)
        options += [f"sslmode={self.sslmode}"] * bool(self.sslmode)
        query = f"?{'&'.join(options)}" if options else ""
        if self.scheme == "unix":
            return f"unix://{user}{self.path}{query}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.host or self.port != DEFAULT_PORTS[self.scheme] else ""
        return f"{self.scheme}://{user}{host}{port}/{self.database}{query}"


def store_address(raw: Raw) -> StoreAddress:
    """Return the address of a store over the network. Raises ValueError: it is none, or holds a password."""
    text = str(raw).strip()
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"must be {EXAMPLE}: {error}") from None
    scheme = OTHER_WORDS.get(parts.scheme, parts.scheme)
    if scheme not in DEFAULT_PORTS:
        raise ValueError(f"must be {EXAMPLE}, got {text[:60]!r}")
    if parts.password is not None:  # it would be seen in lists of processes, in histories and in logs
        raise ValueError("must hold no password: it goes into a file (--store-password-file) or COLANE_STORE_PASSWORD")
    options = _options(parts, text, OPTIONS.get(scheme, ("db", "name")))
    user = unquote(parts.username or "")
    name = options.pop("name", DEFAULT_NAME)
    if NAME.fullmatch(name) is None:
        raise ValueError(f"name must be 1 to 40 letters, digits, '.', '_' or '-', got {name[:50]!r}")
    if scheme == POSTGRES:
        return _postgres(parts, options, user, name)
    if scheme == "unix":
        if parts.hostname or not parts.path.strip("/"):
            raise ValueError(f"must be unix:///PATH, with three slashes, got {text[:60]!r}")
        database = _database(options.get("db", "0"))
        return StoreAddress("unix", path=unquote(parts.path), database=database, user=user, name=name)
    if not parts.hostname:
        raise ValueError(f"must name a host: {EXAMPLE}, got {text[:60]!r}")
    database = _database(parts.path.strip("/") or options.get("db", "0"))
    port = DEFAULT_PORTS[scheme] if port is None else port
    return StoreAddress(scheme, parts.hostname, port, "", database, user, name)


def _postgres(parts: SplitResult, options: dict[str, str], user: str, name: str) -> StoreAddress:
    host, path, database = parts.hostname or "", options.get("host", ""), unquote(parts.path.strip("/"))
    if bool(host) == bool(path) or (path and not path.startswith("/")):
        raise ValueError("must name a host, or else the directory of a socket: postgres:///DATABASE?host=/DIRECTORY")
    if not database or "/" in database:
        raise ValueError("must name a database: postgres://HOST/DATABASE")
    sslmode = options.get("sslmode", "")
    if sslmode not in {"", *SSL_MODES}:
        raise ValueError(f"sslmode must be {', '.join(SSL_MODES)}, got {sslmode[:40]!r}")
    port = DEFAULT_PORTS[POSTGRES] if parts.port is None else parts.port
    return StoreAddress(POSTGRES, host, port, path, database, user, name, sslmode)


def _options(parts: SplitResult, text: str, known: tuple[str, ...]) -> dict[str, str]:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = options.keys() - set(known)
    if unknown or parts.fragment:
        odd = ", ".join(sorted(unknown)) or f"#{parts.fragment}"
        raise ValueError(f"has options {' and '.join(known)} alone, not {odd}: got {text[:60]!r}")
    return options


def _database(text: str) -> str:
    if not (text.isascii() and text.isdecimal() and int(text) <= DATABASE_MAX):
        raise ValueError(f"the database must be a number, got {text[:40]!r}")
    return str(int(text))
