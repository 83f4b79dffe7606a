"""The same `Idempotency-Key` gives the first answer again; key and answer are durable with what they did."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from colane.server.board.turn import Turn
from colane.server.ground.problems import RefusedError
from colane.server.store.store import IDEMPOTENCY, Delete, Store, Transaction
from colane.server.store.unreadable import keyed, read_one

Answer = TypeVar("Answer", bound=Mapping[str, object])  # what a change is answered with

KEPT_S: Final = 24 * 3600.0  # a client that has not retried for a day will not

KEYS_AT_ONCE: Final = 1_000  # keys looked at in one go when old ones are removed


def fingerprint(method: str, path: str, body: bytes) -> str:
    """Return what makes two requests the same."""
    return hashlib.sha256(b"\0".join([method.encode(), path.encode(), body])).hexdigest()


def once(
    key: str, print_: str, prepare: Callable[[Turn], Answer | Awaitable[Answer]]
) -> Callable[[Turn], Answer | Awaitable[Answer]]:
    """Wrap a change so that a key that was seen gives its first answer and changes nothing.

    Raises (from the wrapped change):
        RefusedError: 422 when the key was used for another request.
    """

    def noted(turn: Turn, answer: Answer) -> Answer:
        turn.answers[key] = {"at_s": turn.now_s, "fingerprint": print_, "answer": answer}
        return answer

    async def noted_then(turn: Turn, coming: Awaitable[Answer]) -> Answer:
        return noted(turn, await coming)

    def prepare_once(turn: Turn) -> Answer | Awaitable[Answer]:
        known = turn.answers.get(key) or read_one(turn.reads, IDEMPOTENCY, key, _whole)
        if known is None:
            answer = prepare(turn)
            return noted_then(turn, answer) if isinstance(answer, Awaitable) else noted(turn, answer)
        if known["fingerprint"] != print_:
            raise RefusedError.because(422, "was used for another request", "Idempotency-Key")
        first: Answer = known["answer"]
        return first

    return prepare_once


def _whole(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in ("at_s", "fingerprint", "answer")}


def expired(store: Store, now_s: float) -> list[Transaction]:
    """Return transactions, each small, that remove keys that will not be used again."""
    transactions = []
    after = ""
    while page := store.page(IDEMPOTENCY, after, KEYS_AT_ONCE):
        asked = keyed(store, IDEMPOTENCY, page, lambda body: float(body["at_s"]))
        old = [Delete(IDEMPOTENCY, key) for key, at_s in asked if at_s + KEPT_S < now_s]
        if old:
            transactions.append(Transaction(deletes=old))
        after = page[-1][0]
    return transactions
