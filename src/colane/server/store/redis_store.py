"""A store in Redis: one round trip a commit, durable where Redis is told to wait for its disk (docs/how-to/stores.md).

Any thread may call any method: each call takes a connection of a pool.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.connection import HiredisRespSerializer
from redis.retry import Retry
from redis.utils import HIREDIS_AVAILABLE

from colane.client.tls import CA_VARIABLE
from colane.server.store import redis_functions as functions
from colane.server.store.checksums import Record, checksum, decoded, document_text, json_text, text_checksum
from colane.server.store.network import ANSWER_MAX_S, CONNECT_MAX_S, SCHEMA, NetworkStore
from colane.server.store.store import (
    AUDIT_LINES_MAX,
    COLLECTIONS,
    COPIED_KEY,
    EPOCHS,
    META,
    AuditEntry,
    AuditLine,
    Document,
    Durability,
    Snapshot,
    StoreError,
    StoreWriter,
    Transaction,
)
from colane.settings.store_address import StoreAddress

# -- Whether a Redis keeps what it has acknowledged: looked at when its store is opened.

WANTED: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "appendonly": (("yes",), "appendonly is {}: all is lost at its end; set it to yes"),
    "appendfsync": (("always",), "appendfsync is {}: a power cut loses what was acknowledged last; set it to always"),
    "no-appendfsync-on-rewrite": (
        ("no",),
        (
            "no-appendfsync-on-rewrite is {}: a power cut while its file is rewritten loses what was acknowledged; "
            "set it to no"
        ),
    ),
    "maxmemory-policy": (
        ("noeviction", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"),
        "maxmemory-policy is {}: jobs are thrown away when memory is short; set it to noeviction",
    ),
}
"""Settings, which values keep all, and what another means."""
REPLICAS: Final = "min-replicas-to-write"
FEW_REPLICAS: Final = (
    "it has replicas and min-replicas-to-write is 0: one that lags may take over and lack what was acknowledged; "
    "set it to 1"
)


def durability(client: redis.Redis) -> Durability:
    """Return what may be lost there, and what was not to be found out. Raises RedisError: it does not answer."""
    risks, unchecked = [], []
    for name, (good, told) in WANTED.items():
        value = _setting(client, name)
        if value is None:
            unchecked.append(name)
        elif value not in good:
            risks.append(told.format(value))
    at_least = _setting(client, REPLICAS)
    if at_least is None:
        unchecked.append(REPLICAS)
    elif at_least == "0" and _replicas(client):
        risks.append(FEW_REPLICAS)
    return Durability("redis", tuple(risks), tuple(unchecked))


def _setting(client: redis.Redis, name: str) -> str | None:
    """A setting's value; None where it may not be asked for, as of managed servers."""
    try:
        found: Any = client.config_get(name)
    except redis.ConnectionError:
        raise
    except redis.ResponseError:  # of them, a user without the right, and a command that was renamed or left out
        return None
    value = found.get(name, found.get(name.encode()))
    return None if value is None else value.decode() if isinstance(value, bytes) else str(value)


def _replicas(client: redis.Redis) -> int:
    try:
        found: Any = client.info("replication")
    except redis.ResponseError:
        return 0
    return int(found.get("connected_slaves", 0))


LOOKED_AT_ONCE: Final = 1_000
"""Redis does nothing else meanwhile: a page is looked for among so many documents in one go."""
WORDS_AT_ONCE: Final = 500
"""A longer command is packed and sent in pieces: Python's lock is held for as long as one takes, by which the event
loop waits. A commit of 2,000 jobs in one piece took 10 ms, such a piece takes 0.3."""
SUM_DIGITS: Final = 8
ORDER: Final = (*(name for name in COLLECTIONS if name != EPOCHS), EPOCHS)
NUMBER: Final = {name: number for number, name in enumerate(ORDER)}

Answer = TypeVar("Answer")
Keyword = str | int | float


class RedisStore(NetworkStore):
    """A store in Redis; see `colane.server.store.store.Store` for the methods.

    Args:
        address: Where the server is, and the name of the cluster there.
        password: To log in with; None where none is needed.
        made_before: Id of the store that was there when it was opened last; None where none is known of.
        may_make: Whether one is made where there is none, and was none.

    Raises:
        StoreError: There is no such server, it refuses us, has a newer Colane's store or another than before, or none
            where there was one before.
    """

    copies = "its append-only file, a replica or a copy"

    def __init__(
        self,
        address: StoreAddress,
        password: str | None = None,
        *,
        made_before: str | None = None,
        may_make: bool = True,
    ) -> None:
        super().__init__()
        self.address = address
        self._redis = _client(address, password)
        tag = f"{{{address.name}}}"
        self._head, self._audit = f"{tag}:head", f"{tag}:audit"
        self._hashes = {name: f"{tag}:{name}" for name in ORDER}
        self._sets = {name: f"{tag}:{name}:keys" for name in ORDER}
        places = ((self._hashes[name], self._sets[name]) for name in ORDER)
        self._keys = [self._head, self._audit, *(place for both in places for place in both)]
        try:
            self.id = self._opened(made_before, may_make=may_make and made_before is None)
            if made_before not in {None, self.id}:
                self._judge_other(str(made_before), self.get(META, COPIED_KEY))
            self._durability: Durability = self._ask("opened", lambda: durability(self._redis))
        except StoreError:
            self._redis.close()
            raise

    def _opened(self, made_before: str | None, *, may_make: bool) -> str:
        fresh = uuid.uuid4().hex if may_make else ""
        found = self._call("opened", functions.OPEN, [self._head, self._audit], SCHEMA, fresh, AUDIT_LINES_MAX)
        return self._judge_opened((int(found[0]), found[1].decode()) if found else None, made_before)

    def commit(self, transaction: Transaction, writer: StoreWriter | None = None) -> int:
        said = [] if writer is None else ["" if one is None else one for one in writer]
        values: list[Keyword] = [self.id, *(said or ["", "", ""])]
        values += map(len, (transaction.clears, transaction.deletes, transaction.puts, transaction.audit))
        values += [NUMBER[name] for name in transaction.clears]
        for delete in transaction.deletes:
            values += [NUMBER[delete.collection], delete.key]
        for put in transaction.puts:
            text = document_text(put.collection, put.document)
            values += [NUMBER[put.collection], put.key, f"{text_checksum(put.collection, put.key, text):08x}{text}"]
        values += [_line(entry) for entry in transaction.audit]
        word, number = self._call("written", functions.COMMIT, self._keys, *values)
        self._judge_commit(word.decode(), int(number or 0), writer)
        self._forget_unreadable(transaction)
        return int(number)

    def get(self, collection: str, key: str) -> Document | None:
        def together() -> list[Any]:
            with self._redis.pipeline(transaction=False) as asked:
                asked.hget(self._hashes[collection], key)
                asked.hget(self._head, "id")
                return list(asked.execute())

        value, id_ = self._ask("read", together)
        if value is None and (id_ is None or id_.decode() != self.id):
            raise self._gone()
        if value is None:
            return None
        return self._document(self._decoded(collection, key.encode(), value))

    def count(self, collection: str) -> int:
        return int(self._ask("read", lambda: self._redis.hlen(self._hashes[collection])))

    def read_all(self, collection: str) -> Iterator[tuple[str, Document]]:
        """Read in one go, decoded one by one."""
        rows = self._ask("read", lambda: self._redis.hgetall(self._hashes[collection]))
        return self._all(collection, sorted(rows.items()), self._decoded)

    def page(self, collection: str, after: str, limit: int) -> list[tuple[str, Document]]:
        return self._page(collection, "up", after, limit, ())

    def page_back(
        self, collection: str, before: str | None, limit: int, containing: Sequence[str] = ()
    ) -> list[tuple[str, Document]]:
        return [] if before == "" else self._page(collection, "down", before or "", limit, containing)

    def _page(
        self, collection: str, way: str, begin: str, limit: int, containing: Sequence[str]
    ) -> list[tuple[str, Document]]:
        """A short page is the end only where nothing is left to look at."""
        page: list[tuple[str, Document]] = []
        keys, at = [self._hashes[collection], self._sets[collection]], begin.encode()
        while len(page) < limit:
            values = (way, at, limit - len(page), LOOKED_AT_ONCE, *containing)
            at, *found = self._call("read", functions.PAGE, keys, *values, reads=True)
            page += self._records(collection, zip(found[::2], found[1::2], strict=True))
            if not at:
                break
        return page

    def _records(self, collection: str, rows: Any) -> Iterator[tuple[str, Document]]:  # noqa: ANN401 - pairs of bytes
        return self._noted(self._decoded(collection, key, value) for key, value in rows)

    @staticmethod
    def _decoded(collection: str, key: bytes, value: bytes) -> Record:
        """One record and its key, or what is wrong with it."""
        known, body = value[:SUM_DIGITS], value[SUM_DIGITS:]
        return decoded(collection, key, body, is_whole=b"%08x" % checksum(collection, key, body) == known)

    def audit(self, after: int, limit: int) -> list[AuditLine]:
        if limit <= 0:
            return []
        rows = self._ask("read", lambda: self._redis.xrange(self._audit, f"{after + 1}-0", count=limit))
        return [self._audit_line(int(id_.partition(b"-")[0]), fields[b"line"]) for id_, fields in rows]

    def _audit_line(self, number: int, text: bytes) -> AuditLine:
        known, body = text[:SUM_DIGITS], text[SUM_DIGITS:]
        if b"%08x" % checksum(body) == known:
            return AuditLine(number, *json.loads(body))
        return self._altered_line(number)

    def snapshot(self) -> Snapshot:
        """A copy of all records: Redis does nothing else for as long as it takes to read all of it."""

        def together() -> list[Any]:
            with self._redis.pipeline(transaction=True) as asked:
                asked.hmget(self._head, ["id", "events"])
                for name in ORDER:
                    asked.hgetall(self._hashes[name])
                return list(asked.execute())

        (id_, events), *found = self._ask("read", together)
        if id_ is None or id_.decode() != self.id or events is None:
            raise self._gone()
        rows = zip(ORDER, found, strict=True)
        return Snapshot(int(events), {name: list(self._records(name, sorted(all_.items()))) for name, all_ in rows})

    def take_lines(self, lines: Sequence[AuditLine]) -> None:
        def add() -> None:
            with self._redis.pipeline(transaction=True) as together:
                for number, at_s, kind, body in lines:
                    together.xadd(self._audit, {"line": _line(AuditEntry(at_s, kind, body))}, id=f"{number}-0")
                together.hset(self._head, "events", lines[-1].number)
                together.execute()

        if lines:
            self._ask("written", add)

    def last_audit_number(self) -> int:
        return self._counter("events")

    def version(self) -> int:
        return self._counter("version")

    def _counter(self, name: str) -> int:
        id_, number = self._ask("read", lambda: self._redis.hmget(self._head, ["id", name]))
        if id_ is None or id_.decode() != self.id or number is None:
            raise self._gone()
        return int(number)

    def note_missing(self) -> None:
        def together() -> list[Any]:
            with self._redis.pipeline(transaction=True) as asked:
                asked.hgetall(self._head)
                for name in ORDER:
                    asked.hlen(self._hashes[name])
                    asked.zcard(self._sets[name])
                return list(asked.execute())

        head, *found = self._ask("read", together)
        if head.get(b"counted") == b"%s:%s" % (head.get(b"events", b""), head.get(b"version", b"")):
            counts = {name: int(head.get(b"n:%d" % number, 0)) for name, number in NUMBER.items()}
            self._note_fewer(counts, {name: min(found[2 * at : 2 * at + 2]) for name, at in NUMBER.items()})

    def scrub(self) -> None:
        """Do nothing: Redis rewrites its file by itself once it has doubled."""

    def close(self) -> None:
        self._redis.close()

    def _call(self, deed: str, name: str, keys: Sequence[str], *values: Any, reads: bool = False) -> Any:  # noqa: ANN401
        """Call a function of ours; one that the server has lost, or never had, is loaded first and has done nothing."""
        fcall = self._redis.fcall_ro if reads else self._redis.fcall

        def called() -> Any:  # noqa: ANN401 - as Redis answers
            try:
                return fcall(name, len(keys), *keys, *values)
            except redis.ResponseError as error:
                if "function not found" not in str(error).lower():
                    raise
            self._redis.function_load(functions.LUA, replace=True)
            return fcall(name, len(keys), *keys, *values)

        return self._ask(deed, called)

    def _ask(self, deed: str, call: Callable[[], Answer]) -> Any:  # noqa: ANN401 - the client's answers have no types
        try:
            return call()
        except (redis.RedisError, OSError) as error:
            raise StoreError(f"the store {self.address} could not be {deed}: {said(error)}") from error


FIXES: Final = (
    (redis.AuthenticationError, "give the right password in a file (--store-password-file) or COLANE_STORE_PASSWORD"),
    (redis.exceptions.NoPermissionError, "let this user call functions and touch the cluster's keys (ACL SETUSER)"),
    (redis.ReadOnlyError, "it is a replica: name the one that takes writes"),
    (redis.exceptions.OutOfMemoryError, "raise its maxmemory, or remove what is not needed there"),
    (redis.BusyLoadingError, "it still reads its files: wait a moment"),
    (redis.TimeoutError, "whether it was done is not known"),
    (redis.ConnectionError, "is it running, and is its address right?"),
)
"""What a person can do, by the kind of error; the first that fits counts."""

OTHER_FIXES: Final = (
    ("NOAUTH", FIXES[0][1]),
    ("MISCONF", "it cannot write its files: make room on its disk"),
    ("NOREPLICAS", "too few of its replicas are connected (min-replicas-to-write): bring them back"),
    ("unknown command", "Redis 7.0 or newer is needed"),
    ("DB index is out of range", "name a database that it has"),
)


def said(error: Exception) -> str:
    """Return what a server, or the way to it, says, in one line with the fix."""
    text = " ".join(str(error).split()).rstrip(".")
    fixes = [fix for kind, fix in FIXES if isinstance(error, kind)]
    fixes = [fix for word, fix in OTHER_FIXES if word.lower() in text.lower()] or fixes
    return f"{text}; {fixes[0]}" if fixes else text


def _client(address: StoreAddress, password: str | None) -> redis.Redis:
    # Nothing is sent again by itself: a commit that was made, sent again, would be refused as another's.
    given: dict[str, Any] = {
        "db": int(address.database),
        "username": address.user or None,
        "password": password,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": ANSWER_MAX_S,
        "client_name": "colane",
    }
    if address.scheme == "unix":
        given["unix_socket_path"] = address.path
    else:
        given |= {"host": address.host, "port": address.port, "socket_connect_timeout": CONNECT_MAX_S}
    if address.scheme == "rediss":
        given |= {"ssl": True, "ssl_ca_certs": os.environ.get(CA_VARIABLE)}
    made = redis.Redis(**given)
    if HIREDIS_AVAILABLE:  # else the client packs word by word, in Python, which gives way by itself
        made.connection_pool.connection_kwargs["command_packer"] = InPieces()
    return made


class InPieces(HiredisRespSerializer):
    """Packs commands of many words piece by piece; see `WORDS_AT_ONCE`."""

    def pack(self, *args: Any) -> list[bytes]:  # noqa: ANN401 - words as Redis takes them
        """Return a command as it is sent, piece after piece."""
        if len(args) <= WORDS_AT_ONCE:
            return list(super().pack(*args))
        pieces = [b"*%d\r\n" % len(args)]
        for begin in range(0, len(args), WORDS_AT_ONCE):
            (piece,) = super().pack(_PIECE, *args[begin : begin + WORDS_AT_ONCE])
            pieces.append(piece[piece.index(_PIECE_PACKED) + len(_PIECE_PACKED) :])
        return pieces


_PIECE: Final[Any] = b"-"  # a piece is packed as a command of this name, which is cut off
_PIECE_PACKED: Final = b"$1\r\n-\r\n"


def _line(entry: AuditEntry) -> str:
    text = json_text([float(entry.at_s), entry.kind, entry.body])
    return f"{text_checksum(text):08x}{text}"
