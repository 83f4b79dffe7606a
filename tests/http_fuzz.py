"""Random requests, most of them nearly right, and what a server says to each over real connections."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any
from urllib.parse import quote, urlsplit

TIMEOUT_S, NO_ANSWER_S = 60.0, 0.02
"""For the answer to a whole request, and to what may be none."""
METHODS = ("GET", "GET", "POST", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW")
ODD: Sequence[Any] = (
    None, True, -1, 0, 2**63, 1e308, "", "\x00", "\x1b[2J", "\u202e", "\u00f1" * 300, [], {}, [[]], {"a": {"b": [1]}},
    "../..", 1.5,
)  # fmt: skip
TYPES = ("application/json",) * 6 + ("text/plain", "application/json; charset=latin-1", "", "\u00ff")
WORDS = ("1", "0", "-1", "99999999999999999999", "n1", "..", "%00", "%2e%2e", "a" * 5000, "ñ", "true", "1 OR 1")


class RequestMaker:
    """Draws requests around known paths and bodies."""

    def __init__(
        self,
        random: Random,
        paths: Sequence[str],
        bodies: Sequence[Any],
        tokens: Sequence[str],
        methods: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Of a path whose methods are given, each second request has one of these."""
        self._random, self._paths, self._bodies, self._tokens = random, paths, bodies, tokens
        self._methods = methods or {}

    def draw(self) -> tuple[bytes, bool]:
        """One message, sometimes no request at all; and whether it must be answered."""
        kind = self._random.random()
        if kind < 0.05:
            return self._random.randbytes(self._random.randrange(1, 300)), False
        whole, is_sound = self._request()
        if kind < 0.15:  # broken off, or with bytes that are others
            return whole[: self._random.randrange(1, len(whole))], False
        if kind < 0.25:
            broken = bytearray(whole)
            for _ in range(self._random.randrange(1, 6)):
                broken[self._random.randrange(len(broken))] = self._random.randrange(256)
            return bytes(broken), False
        return whole, is_sound

    def _request(self) -> tuple[bytes, bool]:
        pick = self._random
        body = b"" if pick.random() < 0.3 else self._body()
        is_sound = pick.random() < 0.97
        names = {
            "Host": pick.choice(("127.0.0.1",) * 8 + ("evil.example", "")),
            "Content-Type": pick.choice(TYPES),
            "Content-Length": str(len(body)) if is_sound else pick.choice(("-1", "x", "10" * 30, "0")),
        }
        token = pick.choice(self._tokens)
        names |= {"Authorization": token} if token else {}
        names |= {"Idempotency-Key": pick.choice(WORDS[:6])} if pick.random() < 0.1 else {}
        names |= {"X-Long": "y" * 70_000} if pick.random() < 0.005 else {}
        path = pick.choice(self._paths)
        known = self._methods.get(path, METHODS)
        begin = f"{pick.choice(known if pick.random() < 0.5 else METHODS)} {self._path(path)} HTTP/1.1"
        lines = [begin, *(f"{name}: {text}" for name, text in names.items()), "", ""]
        return "\r\n".join(lines).encode("latin-1", errors="replace") + body, is_sound

    def _path(self, path: str) -> str:
        pick = self._random
        while "{" in path:
            head, _, tail = path.partition("{")
            word = pick.choice(WORDS) if pick.random() < 0.7 else str(pick.randrange(1, 9))
            path = head + (word if "%" in word else quote(word)) + tail.partition("}")[2]
        if pick.random() < 0.3:
            words = (pick.choice(("limit", "after", "label", "user", "ended", "by", "since_s", "offset")) for _ in "ab")
            path += "?" + "&".join(f"{word}={quote(pick.choice(WORDS))}" for word in words)
        return path

    def _body(self) -> bytes:
        pick = self._random
        value = json.loads(json.dumps(pick.choice(self._bodies)))
        for _ in range(pick.randrange(3)):
            value = self._changed(value)
        text = json.dumps(value).encode()
        return text if pick.random() < 0.9 else pick.choice((text[:-1], b"\xff" + text, b"[" * 3000, b"NaN", b"1e999"))

    def _changed(self, value: Any) -> Any:
        """The value with one thing in it that is another."""
        pick = self._random
        if isinstance(value, list) and value and pick.random() < 0.8:
            place = pick.randrange(len(value))
            return [*value[:place], self._changed(value[place]), *value[place + 1 :]]
        if isinstance(value, dict) and value and pick.random() < 0.9:
            name = pick.choice([*value, "unknown"])
            return {**value, name: self._changed(value.get(name))}
        return pick.choice(ODD)


class Attacker:
    """Sends messages, each over a connection of its own."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._place = (str(place.hostname), place.port or 80)

    def send(self, message: bytes, *, is_sound: bool) -> int:
        """Send one, and return the status that is answered; 0 for a connection that is closed, or none in time.

        Raises:
            TimeoutError: A sound one is not answered.
        """
        with socket.create_connection(self._place, TIMEOUT_S) as one:
            answer = b""
            try:
                one.sendall(message)
                one.settimeout(TIMEOUT_S if is_sound else NO_ANSWER_S)
                while b"\r\n" not in answer and (part := one.recv(65536)):
                    answer += part
            except ConnectionError:
                return 0
            except TimeoutError:
                if is_sound:
                    raise
        words = answer.split(b" ", 2)
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
