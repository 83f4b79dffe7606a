"""Word to owners of jobs: who is told what; at least once; webhooks that hang, fail, and lead astray."""

from __future__ import annotations

import asyncio
import json
import smtplib
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import httpx
import pytest

from colane.server.notify import ways
from colane.server.notify.channels import (
    OWNERS,
    Happening,
    NotifyChannel,
    NotifyConfig,
    NotifyError,
    read_channels,
    unknown_channel,
)
from colane.server.notify.outbox import PENDING_MAX, NotifyOutbox
from colane.server.notify.ways import NotSentError, is_near, reachable, send
from colane.server.store.store import AuditLine
from colane.server.tending import teller as telling
from colane.server.tending.teller import NotifyTeller, happening_of
from tests.server.harness import SLEEP, finished, launched, node, report, world

HOOK = NotifyChannel("ann", frozenset(Happening), user="ann", webhook="http://hooks.test/secret")
CONFIG = NotifyConfig((HOOK,), frozenset({"hooks.test"}))
MESSAGE = {"id": "c-1", "text": "job 1 has ended", "event": "end"}


class Hook(httpx.AsyncBaseTransport):
    """A webhook: answers as told, and keeps what it was sent."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.got: list[dict[str, Any]] = []
        self.asked: list[httpx.Request] = []
        self.news = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0) if self.answers else 200
        if answer == "hang":
            await asyncio.Event().wait()
        if isinstance(answer, str):
            return httpx.Response(307, headers={"Location": answer})
        if answer == 200:
            self.got.append(json.loads(request.content))
        self.news.set()
        return httpx.Response(answer)

    async def until(self, messages: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(30):
            while len(self.got) < messages:
                self.news.clear()
                await self.news.wait()
        return self.got


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    """What names mean, without asking any server; no time between two tries."""
    known = {
        "hooks.test": "127.0.0.1",
        "evil.test": "169.254.169.254",
        "fine.test": "203.0.113.7",
        "two.test": "127.0.0.1",
    }

    async def found(_loop: Any, host: str, port: int, **_: Any) -> Any:
        address = known.get(host, host)
        if not address[0].isdigit() and ":" not in address:
            raise OSError("no such name")
        return [(2, 1, 6, "", (address, port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", found)
    monkeypatch.setattr(telling, "AGAIN_MIN_S", 0.0)


def client(hook: Hook) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=hook)


async def told(w: Any, config: NotifyConfig, hook: Hook, path: Path | None = None) -> asyncio.Task[None]:
    made = NotifyTeller(w.service.overviews, config, NotifyOutbox(path), client(hook))
    task = asyncio.create_task(made.run())
    await asyncio.sleep(0)
    return task


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_owner_is_told_of_start_failure_and_end() -> None:
    async with world() as w:
        hook = Hook()
        task = await told(w, CONFIG, hook)
        await w.good("POST", "/node", node(gpus=2))
        await w.submit(user="ann", name="vit")
        await w.submit(user="bob")
        await w.good("POST", "/node/n1/report", report(launched(1, start_s=1.0), launched(2, start_s=1.0)))
        await w.good("POST", "/finished_job", finished(2))
        await w.good("POST", "/finished_job", finished(1, exit_code=3))
        start, failure = await hook.until(2)
        assert (start["event"], start["job"], start["name"], start["user"]) == ("start", 1, "vit", "ann")
        assert (failure["event"], failure["state"]) == ("failure", "failed")
        assert failure["text"].startswith("job 1 vit of ann has failed (failed): ")
        assert start["id"] != failure["id"]
        assert "first_s" not in failure
        await stop(task)
        assert len(hook.got) == 2, "nothing of bob's"


async def test_what_was_not_sent_is_sent_after_a_restart_with_the_same_id(tmp_path: Path) -> None:
    path = tmp_path / "notify.json"
    async with world() as w:
        broken = Hook(*[500] * 10_000)
        task = await told(w, CONFIG, broken, path)
        await w.submit(user="ann")
        await w.good("DELETE", "/job/1")
        async with asyncio.timeout(30):
            while len(broken.asked) < 3:
                await broken.news.wait()
                broken.news.clear()
        await stop(task)
        sent = json.loads(broken.asked[0].content)
        assert oct(path.stat().st_mode)[-3:] == "600"
        await w.submit(user="ann")
        await w.good("DELETE", "/job/2")
        works = Hook()
        task = await told(w, CONFIG, works, path)
        first, second = await works.until(2)
        assert (first["id"], first["job"], second["job"]) == (sent["id"], 1, 2)
        await stop(task)
    path.write_text("{damaged")
    assert NotifyOutbox(path).seen is None


async def test_a_channel_that_hangs_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "SEND_MAX_S", 0.05)
    other = NotifyChannel("two", frozenset({Happening.END}), webhook="http://two.test/")
    config = NotifyConfig((HOOK, other), frozenset({"hooks.test", "two.test"}))

    class Both(Hook):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.headers["Host"] == "hooks.test":
                await asyncio.Event().wait()
            return await super().handle_async_request(request)

    async with world() as w:
        hook = Both()
        task = await told(w, config, hook)
        for number in range(1, 4):
            await w.submit(user="ann")
            await w.good("DELETE", f"/job/{number}")
        assert [one["job"] for one in await hook.until(3)] == [1, 2, 3]
        await stop(task)


async def test_idle_is_told_once_for_each_time() -> None:
    async with world(idle_after_s=0.0) as w:
        hook = Hook()
        made = NotifyTeller(w.service.overviews, CONFIG, NotifyOutbox(None), client(hook))
        await w.good("POST", "/node", node())
        await w.submit(user="ann")
        use = {"busy_ratio": 0.0, "device_bytes": 1, "cpu_cores": 0.0, "host_bytes": 1, "steps_per_s": 0.0, "share_ratio": None}  # fmt: skip  # noqa: E501
        step = {"at_s": 1.0, "steps": 1}
        for _ in range(2):
            await w.good("POST", "/node/n1/report", report(launched(1, start_s=1.0, progress=step, use=use)))
        for _ in range(3):
            await made.look_for_idle()
        (only,) = made.outbox.pending["ann"]
        assert only["text"].startswith("job 1 sleep of ann is idle (running")
        await made._http.aclose()


def test_that_an_idle_job_is_parked_is_told_as_word_of_idle_jobs() -> None:
    body = {"job": 1, "state": "paused", "happened": "parked-idle", "sentence": "idle for 2520 s"}
    assert happening_of(AuditLine(1, 2.0, "job", body)) is Happening.IDLE
    assert happening_of(AuditLine(2, 2.0, "job", {**body, "happened": None})) is None


async def test_that_a_job_starts_soon_is_told_once() -> None:
    async with world(notify=None) as w:
        made = NotifyTeller(w.service.overviews, CONFIG, NotifyOutbox(None), client(Hook()))
        await w.good("POST", "/node", node())
        await w.submit(user="bob", time_limit="5m")
        await w.submit(user="bob", time_limit="20m")
        await w.submit(user="ann", name="third")
        await w.good("POST", "/node/n1/report", report(launched(1, start_s=1.0)))
        await w.service.foreseeing.look()
        await made.look_for_soon()
        assert "ann" not in made.outbox.pending, "it starts only in 25 min"
        await w.good("DELETE", "/job/2")
        await w.service.foreseeing.look()
        for _ in range(2):
            await made.look_for_soon()
        (only,) = made.outbox.pending["ann"]
        assert (only["event"], only["job"], made.outbox.soon_told) == ("soon", 3, {3: 0})
        assert only["text"].startswith("job 3 third of ann is about to start (queued): starts in about ")
        await w.good("DELETE", "/job/3")
        await made.look_for_soon()
        assert made.outbox.soon_told == {}
        await made._http.aclose()


@pytest.mark.parametrize(
    ("address", "near"),
    [
        ("127.0.0.1", True), ("169.254.169.254", True), ("::1", True), ("fe80::1", True), ("0.0.0.0", True),  # noqa: S104
        ("::ffff:169.254.169.254", True), ("fd00:ec2::254", True), ("10.0.0.7", False), ("203.0.113.7", False),
    ],
)  # fmt: skip
def test_what_is_this_machine_or_link_local(address: str, near: bool) -> None:
    assert is_near(address) is near


def test_an_address_of_this_machine_s_on_a_network_is_as_near_as_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    network = {
        "eth0": [
            SimpleNamespace(family=family, address=address)
            for family, address in (
                (socket.AF_INET, "10.0.0.8"),
                (socket.AF_INET6, "fd12::8%eth0"),
                (socket.AF_PACKET, "02:00:00:00:00:01"),
            )
        ]
    }
    monkeypatch.setattr("psutil.net_if_addrs", lambda: network)
    for address in ("10.0.0.8", "::ffff:10.0.0.8", "fd12::8"):
        assert is_near(address)
    assert not is_near("10.0.0.9")


async def test_a_webhook_never_leads_to_where_secrets_are() -> None:
    for url in ("http://evil.test/latest", "http://169.254.169.254/", "http://127.0.0.1:8642/jobs"):
        hook = Hook()
        with pytest.raises(NotSentError, match="link-local"):
            await send(NotifyChannel("x", webhook=url), CONFIG, MESSAGE, client(hook))
        assert not hook.asked
    for answer in ("http://169.254.169.254/latest/meta-data", "http://evil.test/", "file:///etc/passwd", "http://[::1"):
        hook = Hook(answer)
        with pytest.raises(NotSentError):
            await send(NotifyChannel("x", webhook="http://fine.test/"), CONFIG, MESSAGE, client(hook))
        assert len(hook.asked) == 1
    round_and_round = Hook(*["http://fine.test/again"] * 9)
    with pytest.raises(NotSentError, match="more than 3 times"):
        await send(NotifyChannel("x", webhook="http://fine.test/"), CONFIG, MESSAGE, client(round_and_round))
    with pytest.raises(NotSentError, match="no address"):
        await reachable("nowhere.test", 80, frozenset())


async def test_the_address_that_was_judged_is_asked_by_the_name_it_has() -> None:
    hook = Hook()
    await send(NotifyChannel("x", webhook="https://fine.test:8443/a?b=c"), CONFIG, MESSAGE, client(hook))
    (request,) = hook.asked
    assert str(request.url) == "https://203.0.113.7:8443/a?b=c"
    assert (request.headers["Host"], request.extensions["sni_hostname"]) == ("fine.test:8443", "fine.test")


async def test_a_command_gets_the_message_and_its_end_counts(tmp_path: Path) -> None:
    out = tmp_path / "got"
    code = f"import sys; open({str(out)!r}, 'w').write(sys.stdin.read()); sys.exit({{}})"
    config = NotifyConfig(())
    works = NotifyChannel("x", command=(sys.executable, "-c", code.format(0)))
    async with httpx.AsyncClient() as http:
        await send(works, config, MESSAGE, http)
        assert json.loads(out.read_text()) == MESSAGE
        for command in ((sys.executable, "-c", code.format(4)), ("/no/such/program",)):
            with pytest.raises(NotSentError):
                await send(NotifyChannel("x", command=command), config, MESSAGE, http)


async def test_mail_has_the_text_as_its_subject_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    class Server:
        def __init__(self, *_: Any, **__: Any) -> None: ...
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...
        def send_message(self, mail: Any) -> None:
            sent.append(mail)

    monkeypatch.setattr(smtplib, "SMTP", Server)
    hostile = {**MESSAGE, "text": "job 1 a\r\nBcc: all@example.org has ended"}
    async with httpx.AsyncClient() as http:
        await send(NotifyChannel("x", mail="ann@example.org"), NotifyConfig(()), hostile, http)
    (mail,) = sent
    assert mail["Subject"] == "job 1 a Bcc: all@example.org has ended"
    assert (mail["To"], mail["Bcc"], mail["X-Colane-Id"]) == ("ann@example.org", None, "c-1")


def test_what_waits_for_long_does_not_grow_for_ever() -> None:
    outbox = NotifyOutbox(None)
    for number in range(PENDING_MAX + 5):
        outbox.add("ann", {"id": str(number)})
    assert (len(outbox.pending["ann"]), outbox.pending["ann"][0]["id"]) == (PENDING_MAX, "5")


@pytest.mark.parametrize(
    ("labels", "names"), [({}, {"all"}), ({"notify": "pager"}, {"pager"}), ({"notify": "none"}, set()), ({"notify": "all, pager"}, {"all", "pager"})]  # noqa: E501
)  # fmt: skip
def test_a_label_chooses_channels(labels: dict[str, str], names: set[str]) -> None:
    channels = NotifyChannel("all", mail="a@b"), NotifyChannel("pager", named=True, mail="a@b")
    assert {one.name for one in channels if one.tells(Happening.END, "ann", labels)} == names
    assert not channels[0].tells(Happening.START, "ann", {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it has no [[channel]]"),
        ("chanel = 1", "the file has no 'chanel'; did you mean channel?"),
        ('[[channel]]\nmail = "a@b"', "channel 1 needs a name"),
        ('[[channel]]\nname = "a"', "channel a must have one of webhook, command, mail; it has 0"),
        ('[[channel]]\nname = "a"\nwebhook = "ftp://x"', "webhook must be https://HOST"),
        ('[[channel]]\nname = "a"\nwebhook = "http://u:p@x"', "without a password"),
        ('[[channel]]\nname = "a"\nmail = "a@b"\non = ["ends"]', "got 'ends'"),
        ('[[channel]]\nname = "a"\nmail = "a@b"\n[[channel]]\nname = "a"\nmail = "a@b"', "two channels are named a"),
        ('[mail]\nsmtp = "x"\n[[channel]]\nname = "a"\nmail = "a@b"', "smtp must be HOST:PORT"),
        ("[[channel", "is no TOML"),
    ],
)
def test_a_wrong_file_is_named_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "notify.toml"
    path.write_text(text)
    with pytest.raises(NotifyError) as caught:
        read_channels(path)
    assert said in str(caught.value)


def test_the_documents_example_is_taken() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "notify.md").read_text()
    text = page.partition("```toml\n")[2].partition("```")[0]
    path = Path(__file__)

    class Given(type(path)):  # type: ignore[misc]
        def read_text(self, *_: Any, **__: Any) -> str:
            return text

    config = read_channels(Given("notify.toml"))
    assert [one.name for one in config.channels] == ["ann", "pager", "bob"]
    assert "hooks.example.org" not in repr(config), "an address may be a secret"


async def test_a_channel_that_is_not_there_for_the_user_is_refused_and_named() -> None:
    others = NotifyChannel("pager", frozenset(Happening), named=True, webhook="http://hooks.test/pager")
    async with world(notify=NotifyConfig((HOOK, others), frozenset({"hooks.test"}))) as w:
        for told in ("pager", "ann", "none", "ann, pager"):
            await w.submit(user="ann", labels={"notify": told})
        status, said = await w.refused(
            "POST", "/job", {"command": ["true"], "user": "bob", "labels": {"notify": "ann"}}
        )
        assert (status, said[0]["field"]) == (422, "labels.notify")
        assert said[0]["message"] == "unknown channel 'ann'; known: none, pager"
        batch = [{"command": ["true"]}, {"command": ["true"], "labels": {"notify": "pagr"}}]
        status, said = await w.refused("POST", "/jobs", batch)
        assert (status, said[0]["field"]) == (422, "jobs[1].labels.notify")
        assert "did you mean pager?" in said[0]["message"]
    async with world() as w:
        for request in ({"labels": {"notify": "pager"}}, {"labels": {"notify": "none,pager"}}):
            status, said = await w.refused("POST", "/job", {"command": ["true"], **request})
            assert (status, said[0]["field"]) == (422, "labels.notify")
            assert said[0]["message"] == (
                "there is no channel 'pager', as this scheduler was started without channels: leave it out, or have it "
                "started with --notify FILE"
            )
        await w.submit(labels={"notify": "none"})
        await w.submit(labels={"notify": ""})


OWNED = NotifyConfig((NotifyChannel("owners", mail=OWNERS),))


async def test_owners_are_told_by_mail_at_the_address_and_of_what_they_name(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, news = list[tuple[str, str]](), asyncio.Event()
    loop = asyncio.get_running_loop()

    def mailed(to: str, _config: Any, message: Any) -> None:
        sent.append((to, message["event"]))
        loop.call_soon_threadsafe(news.set)

    monkeypatch.setattr(ways, "_mail", mailed)
    async with world(notify=OWNED) as w:
        await w.good("POST", "/node", node(gpus=4))
        asked = (None, "end,failure", "start", "start,end")
        for number, on in enumerate(asked, start=1):
            labels = {"mail": f"u{number}@example.org"} | ({} if on is None else {"mail-on": on})
            await w.submit(**SLEEP, labels=labels)
        await w.submit(**SLEEP)
        for number in range(1, len(asked) + 1):
            assigned = (number, "assigned")
            await w.line(lambda line, what=assigned: (line.body.get("job"), line.body.get("state")) == what)  # type: ignore[misc]
            await w.good("POST", "/node/n1/report", report({"id": number, "attempt": 1, "phase": "launched", "pid": 1}))
            await w.good("POST", "/finished_job", finished(number))
        async with asyncio.timeout(30):
            while len(sent) < 5:
                news.clear()
                await news.wait()
    assert sorted(sent) == [
        ("u1@example.org", "end"), ("u2@example.org", "end"), ("u3@example.org", "start"), ("u4@example.org", "end"),
        ("u4@example.org", "start"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("config", "labels", "said"),
    [
        (None, {"mail": "a@b"}, "no mail is sent, as this scheduler was started without channels"),
        (NotifyConfig((NotifyChannel("x", mail="a@b"),)), {"mail": "a@b"}, "no mail is sent to owners here"),
        (OWNED, {"mail": "a@b\nBcc: all@b"}, "mail must be an address"),
        (OWNED, {"mail": "a@b@c"}, "mail must be an address"),
        (OWNED, {"mail": "a@b", "mail-on": "ends"}, "mail-on of end, failure, idle"),
        (OWNED, {"mail": "a@b", "mail-on": "end"}, ""),
        (OWNED, {"mail": "ann"}, ""),
    ],
)
def test_mail_to_nowhere_is_refused(config: NotifyConfig | None, labels: dict[str, str], said: str) -> None:
    told = unknown_channel(config, "ann", labels)
    assert (said in told, bool(said)) == (True, bool(told))
