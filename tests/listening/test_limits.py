"""What callers may take: {connections, header bytes, trailers, body bytes, time, threads, streams, log lines written} x
{stranger, user, agent}, over each listener."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from colane.listening import protocol, serving, standing
from colane.server.http import door as shares
from tests.agent.waiting import until
from tests.listening.kinds import BEGUN, ENDLESS, JSON, NOISE
from tests.listening.listeners import Listeners, cluster, status_on
from tests.server.harness import SLEEP, node
from tests.server.test_gate import open_ones

pytestmark = pytest.mark.live
MB = 2**20
THREADS_MAX = 32
"""Of a process for all that waits for files."""
BUFFERED_BYTES = 8 * MB
"""What the kernel takes on both sides of a connection before anything is read, generously."""
PLAIN = ("tcp", "unix", "agent")
LISTENERS = (*PLAIN, "tls", "tls agent")
ANYBODY = dict.fromkeys(("stranger", "user", "agent"), "test_what_does_not_come_is_not_waited_for")
MATRIX = {
    "connections": {
        "stranger": "test_connections_make_room_for_those_of_others",
        "user": "test_a_user_at_one_address_has_half_of_all_connections",
        "agent": "test_connections_make_room_for_those_of_others",
    },
    "header bytes": {
        "stranger": "test_nothing_endless_is_taken",
        "user": "test_nothing_endless_is_taken_of_those_who_are_known",
        "agent": "test_nothing_endless_is_taken_of_those_who_are_known",
    },
    "trailers": {
        "stranger": "test_nothing_endless_is_taken",
        "user": "test_nothing_endless_is_taken_of_those_who_are_known",
        "agent": "test_nothing_endless_is_taken_of_those_who_are_known",
    },
    "body bytes": {
        "stranger": "test_bodies_that_are_announced_take_nothing_from_others",
        "user": "test_bodies_of_one_user_leave_room_for_others",
        "agent": "test_bodies_of_one_user_leave_room_for_others",
    },
    "time": ANYBODY,
    "threads": {
        "stranger": "test_what_many_hold_is_bounded_together",
        "user": "test_streams_of_one_user_are_bounded",
        "agent": "test_streams_of_one_user_are_bounded",
    },
    "streams": {
        "stranger": "test_answers_to_strangers_are_spaced_and_the_others_are_not",
        "user": "test_streams_of_one_user_are_bounded",
        "agent": "test_streams_of_one_user_are_bounded",
    },
    "log lines": dict.fromkeys(ANYBODY, "test_what_is_refused_is_a_line_in_the_log_at_most"),
}
"""What is bounded, whose, and the test that tries it."""
listeners = pytest.mark.parametrize("name", LISTENERS)


def by_tls(name: str) -> bool:
    """Whether a listener is one of the cluster that speaks TLS."""
    return name.startswith("tls")


def strangers_max(name: str) -> int:
    """How many connections of strangers a listener keeps."""
    return protocol.STRANGERS_BY_TLS_MAX if by_tls(name) else protocol.STRANGERS_MAX


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    with cluster(tmp_path_factory.mktemp("l")) as made:
        yield made


@pytest.fixture(scope="module")
def over_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    with cluster(tmp_path_factory.mktemp("l"), by_tls=True) as made:
        yield made


@pytest.fixture
def here(request: pytest.FixtureRequest) -> Listeners:
    """The cluster of the listener that a test is about."""
    name = request.node.callspec.params.get("name", "") if hasattr(request.node, "callspec") else ""
    found: Listeners = request.getfixturevalue("over_tls" if by_tls(name) else "plain")
    return found


@pytest.fixture
def held() -> Iterator[list[socket.socket]]:
    """Connections that are closed in the end."""
    made: list[socket.socket] = []
    yield made
    for one in made:
        one.close()


def poured(one: socket.socket, piece: Callable[[int], bytes], most: int) -> int:
    """Send pieces until the other side hangs up, or so many bytes are sent; return how many were."""
    sent = 0
    try:
        for number in itertools.count():
            one.sendall(data := piece(number))
            sent += len(data)
            if sent > most:
                break
    except OSError:
        pass
    return sent


def caller(here: Listeners, **wanted: str) -> dict[str, str]:
    """The headers of a caller, who gets a token of its own."""
    token = "-".join(wanted.values())
    digest = hashlib.sha256(token.encode()).hexdigest()
    assert here.running.http.post("/tokens", json={"digest": digest, **wanted}).status_code == 200
    return {"Authorization": f"Bearer {token}"}


def headers_of(here: Listeners, who: str) -> str:
    """What a caller of a kind says of itself in a request; a stranger says nothing."""
    if who == "stranger":
        return ""
    known = caller(here, **{"user" if who == "user" else "node": f"n{time.monotonic_ns()}"})
    return f"Authorization: {known['Authorization']}\r\n"


def said_by(head: str, headers: str) -> str:
    """Return a request with more headers, where its first line is whole."""
    return head.replace("\r\n", f"\r\n{headers}", 1)


class TestAnybody:
    """What holds whoever asks: it is bounded before it is known who that is."""

    @pytest.mark.parametrize("who", ["user", "agent"])
    @pytest.mark.parametrize("kind", [kind for kind, (head, _) in ENDLESS.items() if "\r\n" in head])
    def test_nothing_endless_is_taken_of_those_who_are_known(
        self, here: Listeners, held: list[socket.socket], kind: str, who: str
    ) -> None:
        head, piece = ENDLESS[kind]
        before_bytes = here.tcp.memory_bytes()
        held.append(here.tcp.connect())
        held[-1].sendall(said_by(head, headers_of(here, who)).encode())
        most = protocol.BODY_MAX_BYTES + BUFFERED_BYTES if "body" in kind else BUFFERED_BYTES
        assert poured(held[-1], piece, 2 * most) <= most
        assert here.tcp.memory_bytes() <= before_bytes + 24 * MB
        assert here.tcp.ask("GET", "/health") == 200

    @pytest.mark.parametrize("who", ["stranger", "user", "agent"])
    def test_what_is_refused_is_a_line_in_the_log_at_most(self, here: Listeners, who: str) -> None:
        before = len(here.tcp.log.read_text().splitlines())
        headers = headers_of(here, who)
        for method, path, more in (
            ("GET", "/nothing", ""),
            ("POST", "/job", "Content-Length: 1\r\n"),
            ("DELETE", "/job/99999", ""),
            ("GET", "/tokens", ""),
            ("POST", "/run", "Content-Length: 99999999\r\n"),
        ):
            for _ in range(10):
                with here.tcp.connect() as one:
                    one.sendall(f"{method} {path} HTTP/1.1\r\n{JSON}{headers}{more}\r\n1".encode())
                    assert 400 <= status_on(one) < 500
        assert len(here.tcp.log.read_text().splitlines()) <= before + 1


class TestStranger:
    @pytest.mark.parametrize("kind", ENDLESS)
    @listeners
    def test_nothing_endless_is_taken(self, here: Listeners, held: list[socket.socket], name: str, kind: str) -> None:
        listener, (head, piece) = here.of(name), ENDLESS[kind]
        before_bytes = listener.memory_bytes()
        for _ in range(4):
            held.append(listener.connect())
            held[-1].sendall(head.encode())
            most = protocol.BODY_MAX_BYTES + BUFFERED_BYTES if "body" in kind else BUFFERED_BYTES
            assert poured(held[-1], piece, 2 * most) <= most
        assert listener.memory_bytes() <= before_bytes + 8 * MB
        assert listener.ask("GET", "/health") == 200

    @listeners
    def test_what_follows_a_refusal_is_not_taken(self, here: Listeners, held: list[socket.socket], name: str) -> None:
        head, piece = ENDLESS["headers"]
        held.append(here.of(name).connect())
        held[-1].sendall(head.encode() + piece(0)[: protocol.FRAME_MAX_BYTES // 4])
        assert status_on(held[-1]) == 400
        assert poured(held[-1], piece, 2 * BUFFERED_BYTES) <= BUFFERED_BYTES

    def test_a_close_by_tls_is_not_waited_for(self, over_tls: Listeners) -> None:
        """TLS is closed in order once the peer says so, too: one that does not, and sends on, is hung up on."""
        for listener in (over_tls.tcp, over_tls.agent):
            with listener.connect() as one:
                one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                while one.recv(65536):
                    pass
                with socket.socket(fileno=os.dup(one.fileno())) as below:
                    below.settimeout(2 * serving.LINGER_S)
                    with suppress(ConnectionError):
                        while below.recv(65536):
                            pass

    @listeners
    def test_what_many_hold_is_bounded_together(self, here: Listeners, held: list[socket.socket], name: str) -> None:
        """As much as is read at once, of each thing that is kept before its caller is known."""
        listener = here.of(name)
        before_bytes, threads = listener.memory_bytes(), listener.threads()
        for head, piece in ENDLESS.values():
            for _ in range(60):
                held.append(listener.connect())
                held[-1].setblocking(False)
                with suppress(OSError):  # it may have been hung up on
                    held[-1].send(head.encode())
                    held[-1].send(piece(0)[:30_000])
        assert listener.ask("GET", "/health") == 200
        assert listener.memory_bytes() <= before_bytes + (100 if by_tls(name) else 60) * MB
        assert listener.threads() == threads

    @listeners
    def test_requests_ahead_of_answers_are_few(self, here: Listeners, name: str) -> None:
        listener = here.of(name)
        before_bytes = listener.memory_bytes()
        with listener.connect() as one:
            poured(one, lambda _: b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5000, BUFFERED_BYTES)
        assert listener.ask("GET", "/health") == 200
        assert listener.memory_bytes() <= before_bytes + 16 * MB

    @listeners
    def test_connections_make_room_for_those_of_others(
        self, here: Listeners, held: list[socket.socket], name: str
    ) -> None:
        listener = here.of(name)
        trusted = listener.tls or True
        with httpx.Client(
            base_url=here.running.url, headers=here.running.http.headers, timeout=60, verify=trusted,
            limits=httpx.Limits(keepalive_expiry=None),
        ) as known:  # fmt: skip
            assert known.get("/nodes").status_code == 200
            kept = next(iter(known._transport._pool.connections))  # type: ignore[attr-defined]
            most = strangers_max(name)
            held += [listener.connect() for _ in range(most + 100)]
            for one in held[::2]:
                one.settimeout(1)
                with suppress(OSError):
                    one.sendall(b"GET /health HTTP/1.1\r\nHost: local")
            assert listener.ask("GET", "/health") == 200
            assert open_ones(held) <= most
            assert known.get("/nodes").status_code == 200
            assert next(iter(known._transport._pool.connections)) is kept  # type: ignore[attr-defined]

    @pytest.mark.parametrize("name", ["tls", "tls agent"])
    def test_connections_of_which_tls_is_not_settled_make_room_too(
        self, here: Listeners, held: list[socket.socket], name: str
    ) -> None:
        listener = here.of(name)
        before_bytes = listener.memory_bytes()
        held += [listener.reach() for _ in range(strangers_max(name) + 100)]
        assert listener.ask("GET", "/health") == 200
        assert open_ones(held) <= strangers_max(name)
        assert listener.memory_bytes() <= before_bytes + 100 * MB

    @pytest.mark.parametrize("name", ["tcp", "unix", "tls"])
    def test_bodies_that_are_announced_take_nothing_from_others(
        self, here: Listeners, held: list[socket.socket], name: str
    ) -> None:
        listener = here.of(name)
        before_bytes = listener.memory_bytes()
        for _ in range(20):
            held.append(listener.connect())
            held[-1].sendall(f"POST /health HTTP/1.1\r\n{JSON}Content-Length: 8388608\r\n\r\n".encode())
            poured(held[-1], lambda _: b"a" * 8_388_600, 1)
        assert here.running.http.post("/job", json={**SLEEP, "hold": True}).status_code == 200
        assert listener.memory_bytes() <= before_bytes + 16 * MB

    @listeners
    def test_noise_is_one_line_in_the_log(self, here: Listeners, name: str) -> None:
        listener = here.of(name)
        before = len(listener.log.read_text().splitlines())
        for noise in NOISE:
            for _ in range(40):
                with listener.connect() as one:
                    one.sendall(noise)
                    status_on(one)
        assert len(listener.log.read_text().splitlines()) <= before + 1

    @listeners
    def test_an_answer_to_what_is_still_being_sent_can_be_read(self, here: Listeners, name: str) -> None:
        with here.of(name).connect() as one:
            one.sendall(f"POST /health HTTP/1.1\r\n{JSON}Content-Length: 4000000\r\n\r\n".encode())
            for _ in range(40):
                one.sendall(b"a" * 100_000)
            assert status_on(one) == 405


@pytest.mark.parametrize("begun", BEGUN)
@pytest.mark.parametrize(("name", "who"), [*((name, "stranger") for name in PLAIN), ("tcp", "user"), ("tcp", "agent")])
def test_what_does_not_come_is_not_waited_for(slow: Listeners, name: str, who: str, begun: str) -> None:
    headers = headers_of(slow, who)
    with slow.of(name).connect() as one:
        one.sendall(said_by(BEGUN[begun], headers).encode())
        while one.recv(65536):
            pass


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    code = (
        "from colane.listening import protocol, serving\n"
        "protocol.HEADERS_MAX_S = protocol.REQUEST_MAX_S = serving.LINGER_S = protocol.STRANGERS_KEEP_ALIVE_S = 0.3\n"
    )
    with cluster(tmp_path_factory.mktemp("l"), before=code) as made:
        yield made


class TestKnownCallers:
    def test_bodies_of_one_user_leave_room_for_others(self, here: Listeners, held: list[socket.socket]) -> None:
        ann, ben, agent = (caller(here, **one) for one in ({"user": "ann"}, {"user": "ben"}, {"node": "n9"}))
        before_bytes = here.tcp.memory_bytes()
        head = f"POST /jobs HTTP/1.1\r\n{JSON}Authorization: {ann['Authorization']}\r\nContent-Length: 8388608\r\n\r\n"
        for _ in range(12):
            held.append(here.tcp.connect())
            held[-1].sendall(head.encode())
            poured(held[-1], lambda _: b" " * 8_000_000, 1)

        def of_ann() -> int:
            headers = {**ann, "Content-Type": "application/json"}
            return httpx.post(f"{here.running.url}/job", content=b"1" + b" " * MB, headers=headers).status_code

        until(lambda: of_ann() == 503)
        assert httpx.post(f"{here.running.url}/page_link", json={}, headers=ben).status_code == 200
        assert here.running.http.post("/job", json={**SLEEP, "hold": True}).status_code == 200
        joining = httpx.post(f"{here.running.url}/node", json=node("n9"), headers=agent)
        assert joining.status_code == 200, joining.text
        assert here.tcp.memory_bytes() <= before_bytes + 48 * MB
        for open_one in held:
            open_one.close()
        until(lambda: of_ann() == 422)

    def test_streams_of_one_user_are_bounded(self, here: Listeners, held: list[socket.socket]) -> None:
        eve, ben = caller(here, user="eve"), caller(here, user="ben")
        threads = here.tcp.threads()
        head = f"GET /events HTTP/1.1\r\n{JSON}Authorization: {eve['Authorization']}\r\n\r\n".encode()
        for _ in range(shares.REQUESTS_MAX):
            held.append(here.tcp.connect())
            held[-1].sendall(head)
            assert status_on(held[-1]) == 200
        with here.tcp.connect() as more:
            more.sendall(head)
            assert status_on(more) == 503
        assert httpx.get(f"{here.running.url}/jobs", headers=ben).status_code == 200
        assert here.running.http.get("/jobs").status_code == 200
        assert here.tcp.threads() <= threads + THREADS_MAX
        for open_one in held:
            open_one.close()
        until(lambda: httpx.get(f"{here.running.url}/jobs", headers=eve).status_code == 200)


def test_a_user_at_one_address_has_half_of_all_connections(held: list[socket.socket], tmp_path: Path) -> None:
    """And an agent's at that address are not closed for them."""
    few = "from colane.server.http import listening\nlistening.CONNECTIONS_MAX = 40\n"
    with cluster(tmp_path, before=few) as here:
        for who, number in (("agent", 5), ("user", 60)):
            ask = said_by(f"GET /job/99999 HTTP/1.1\r\n{JSON}\r\n", headers_of(here, who)).encode()
            for _ in range(number):
                held.append(here.tcp.connect())
                held[-1].sendall(ask)
                assert status_on(held[-1]) in {403, 404}
        assert open_ones(held[:5]) == 5
        assert open_ones(held[5:]) <= 20


def test_each_cell_is_tried() -> None:
    here = {name for each in (TestAnybody, TestStranger, TestKnownCallers) for name in vars(each)} | set(globals())
    assert {test for row in MATRIX.values() for test in row.values()} <= here
    assert {tuple(row) for row in MATRIX.values()} == {("stranger", "user", "agent")}


@listeners
def test_answers_to_strangers_are_spaced_and_the_others_are_not(here: Listeners, name: str) -> None:
    """Of those that ask again as soon as they are answered, fewer are than would fill a turn of the loop."""
    listener = here.of(name)
    ask = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answered = 0
    trusted = listener.tls or True
    with httpx.Client(
        base_url=here.running.url, headers=here.running.http.headers, timeout=60, verify=trusted
    ) as known:
        held = [listener.connect() for _ in range(50)]
        begun_s = time.monotonic()
        while answered < standing.BURST + 150:
            for one in held:
                one.sendall(ask)
            assert known.get("/nodes").status_code == 200
            answered += sum(status_on(one) == 200 for one in held)
        assert answered <= standing.BURST + (time.monotonic() - begun_s) * standing.PACE_PER_S + len(held)
    for one in held:
        one.close()
