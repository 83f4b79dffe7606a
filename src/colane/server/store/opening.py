"""The store of a scheduler opened: a file in its state directory, or one over the network that a setting names."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from colane.client.locate import read_token
from colane.server.store.sqlite import SqliteStore
from colane.server.store.store import Snapshot, Store, StoreError
from colane.settings.store_address import POSTGRES, StoreAddress

STORE_FILE: Final = "colane.db"
MADE_FILE: Final = "stores.json"
"""Ids of the stores over the network that were opened from a state directory, by their addresses."""
PASSWORD_VARIABLE: Final = "COLANE_STORE_PASSWORD"  # noqa: S105 - the name of a variable


def open_store(address: StoreAddress | None, state_dir: Path, password_file: Path | None = None) -> Store:
    """Open a scheduler's store, and make it where there was none.

    Args:
        address: Over the network; None for the file in the state directory.
        state_dir: Exists.
        password_file: Holds the password of the store's server; None for `COLANE_STORE_PASSWORD`, where that is set.

    Raises:
        StoreError: It cannot be used.
    """
    if address is None:
        return SqliteStore(state_dir / STORE_FILE)
    path = state_dir / MADE_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read ({error}): it tells which store is this scheduler's") from error
    if not (isinstance(found, dict) and all(isinstance(id_, str) for id_ in found.values())):
        raise StoreError(f"{path} is not as it was written: it tells which store is this scheduler's")
    known = found
    store = connect(address, password_of(password_file), made_before=known.get(str(address)))
    try:
        _note(state_dir, {**known, str(address): store.id})
    except StoreError:
        store.close()
        raise
    return store


class IdentifiedStore(Store, Protocol):
    """A store over the network, which has an id that was made with it."""

    id: str

    def snapshot(self) -> Snapshot:
        """Return all documents as they were at one moment, while others write. Raises StoreError: it cannot be read."""


def connect(
    address: StoreAddress, password: str | None = None, *, made_before: str | None = None, may_make: bool = True
) -> IdentifiedStore:
    """Open a store over the network.

    Args:
        address: Where it is.
        password: Of its server.
        made_before: Id of the store that has to be there; None where none is known of.
        may_make: Whether one is made where there is none, and was none.

    Raises:
        StoreError: It cannot be used, or what it needs is not installed.
    """
    extra = "postgres" if address.scheme == POSTGRES else "redis"
    try:
        kind = _postgres() if extra == "postgres" else _redis()
    except ImportError as error:
        raise StoreError(f"{address} needs more than is installed ({error}): pip install 'colane[{extra}]'") from error
    return kind(address, password, made_before=made_before, may_make=may_make)


def _redis() -> Callable[..., IdentifiedStore]:
    from colane.server.store.redis_store import RedisStore  # noqa: PLC0415 - an extra

    return RedisStore


def _postgres() -> Callable[..., IdentifiedStore]:
    from colane.server.store.postgres_store import PostgresStore  # noqa: PLC0415 - an extra

    return PostgresStore


def password_of(file: Path | None) -> str | None:
    """Return the password of a store's server; None where none is given.

    Raises StoreError: the file cannot be read, or is empty.
    """
    if file is None:
        return os.environ.get(PASSWORD_VARIABLE)
    found = read_token(file)
    if found is None:
        raise StoreError(f"--store-password-file {file}: cannot be read, or is empty")
    return found


def _note(state_dir: Path, known: dict[str, str]) -> None:
    path = state_dir / MADE_FILE
    fresh = path.with_suffix(".new")
    try:
        fresh.write_text(json.dumps(known) + "\n", encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
