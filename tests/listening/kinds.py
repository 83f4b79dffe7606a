"""What a stranger can send: what has no end, what is begun and not ended, and what is no HTTP."""

from __future__ import annotations

from collections.abc import Callable

JSON = "Host: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = f"{JSON}Transfer-Encoding: chunked\r\n\r\n"
ENDLESS: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "a first line": ("GET /", lambda _: b"a" * 60_000),
    "headers": ("GET /health HTTP/1.1\r\n", lambda number: b"X%d: a\r\n" % number * 5000),
    "a header": ("GET /health HTTP/1.1\r\nX: ", lambda _: b"a" * 60_000),
    "trailers": (f"GET /health HTTP/1.1\r\n{CHUNKED}0\r\n", lambda number: b"X%d: a\r\n" % number * 5000),
    "a trailer": (f"GET /health HTTP/1.1\r\n{CHUNKED}2\r\n{{}}\r\n0\r\nX: ", lambda _: b"a" * 60_000),
    "what stands between pieces": (f"POST /health HTTP/1.1\r\n{CHUNKED}2;", lambda _: b"a" * 60_000),
    "a body at an open path": (f"POST /health HTTP/1.1\r\n{CHUNKED}", lambda _: b"EA60\r\n" + b"a" * 60_000 + b"\r\n"),
    "a body without a token": (f"POST /run HTTP/1.1\r\n{CHUNKED}", lambda _: b"EA60\r\n" + b"a" * 60_000 + b"\r\n"),
    "a body of tiny pieces": (f"POST /health HTTP/1.1\r\n{CHUNKED}", lambda _: b"1\r\na\r\n" * 10_000),
}
NOISE = (
    b"\x16\x03\x01 no HTTP\r\n\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
)
BEGUN = {
    "nothing": "",
    "headers": "GET /health HTTP/1.1\r\nHost: local",
    "a trailer": f"GET /health HTTP/1.1\r\n{CHUNKED}0\r\nX",
    "a body": f"POST /run HTTP/1.1\r\n{CHUNKED}2\r\n",
}
