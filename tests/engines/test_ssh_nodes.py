"""`colane node`: machines by ssh, real ones as far as a loopback has them: own names, users, processes and files."""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from colane.client.client import Client
from colane.engines import ssh_nodes, wheel
from colane.model.versions import own_version
from tests.cli.conftest import Colane, until
from tests.engines.sshd import Lab, free_port, lab
from tests.server.processes import Scheduler, scheduler

pytestmark = pytest.mark.live

ADD = ("node", "add", "--devices", "cpu:1:1GB")


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), "one", "two") as made:
        yield made


@pytest.fixture(scope="module")
def head(machines: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:  # noqa: ARG001 - skips first
    with scheduler(tmp_path_factory.mktemp("head")) as running:
        yield running


@pytest.fixture
def here(head: Scheduler, colane: Colane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Colane:
    """Runs a command line as an operator of the scheduler."""
    monkeypatch.setenv("COLANE_URL", head.url)
    monkeypatch.setenv("COLANE_TOKEN", head.token)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return colane


def other_release(monkeypatch: pytest.MonkeyPatch, change: Callable[[str, bytes], bytes]) -> None:
    """Let this Colane have other files."""
    package = wheel._package

    def changed() -> Iterator[tuple[str, bytes]]:
        return ((name, change(name, content)) for name, content in package())

    monkeypatch.setattr(wheel, "_package", changed)


def marked(name: str, content: bytes) -> bytes:
    return content + b"\n# another release\n" if name == "colane/engines/__init__.py" else content


def broken(name: str, content: bytes) -> bytes:
    return b"raise SystemExit('colane: this release is broken')\n" if name == "colane/agent/main.py" else content


def test_nodes_are_added_renewed_and_removed(
    here: Colane, head: Scheduler, machines: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = here(*ADD, "--ssh", machines.ssh, "one", "gpu-2=two")
    assert added.code == 0, added
    assert sorted(added.out.splitlines()) == [
        f"gpu-2: is a node with 1 device (cpu), its agent is {own_version()}",
        f"one: is a node with 1 device (cpu), its agent is {own_version()}",
    ]
    assert "one has no systemd for ann" in added.err
    listed = here("node", "list").out.splitlines()
    assert sorted(line.split() for line in listed[1:]) == [
        ["gpu-2", "up", "1", "0", own_version(), "two"],
        ["one", "up", "1", "0", own_version(), "one"],
    ]
    token = machines.do("one", "cat ~/.local/share/colane-node/one/token").strip()
    assert machines.do("one", "stat -c %a ~/.local/share/colane-node/one/token").strip() == "600"
    assert not any(token in line for line in machines.processes("one"))

    again = here(*ADD, "--ssh", machines.ssh, "one")
    assert again.code == 1
    assert again.err.startswith("colane: one: is a node already; colane node upgrade renews it")

    with Client(head.url, head.token) as asked:
        ann = asked.make_token(user="ann")
        asked.drain("gpu-2")
    with Client(head.url, ann) as user:
        waiting = ["sh", "-c", "touch ~/began; while [ ! -e ~/go ]; do sleep 0.1; done; touch ~/done"]
        job = user.submit({"command": waiting, "workdir": "/", "gpus": 1})
        until(lambda: machines.do("one", "ls ~ | grep began || :"), "the job runs")

        is_kept_through_kills(machines, asked_node(head, "one"))

        first = agents(machines, "one")
        other_release(monkeypatch, marked)
        upgraded = here("node", "upgrade", "one")
        assert upgraded.code == 0, upgraded
        after = asked_node(head, "one")()
        assert agents(machines, "one") != first
        assert [each["id"] for each in after["jobs"]] == [job]
        assert len(machines.do("one", "ls ~/.local/share/colane-node/one/releases").split()) == 1
        assert "has this very Colane" in here("node", "upgrade", "one").out

        other_release(monkeypatch, broken)
        failed = here("node", "upgrade", "one")
        assert failed.code == 1
        assert "one: its agent does not start: " in failed.err
        assert "this release is broken" in failed.err
        assert "runs there again" in failed.err
        seen_s = asked_node(head, "one")()["last_seen_s"]
        until(lambda: asked_node(head, "one")()["last_seen_s"] > seen_s, "the one before reports")

        machines.do("one", "touch ~/go")
        until(lambda: user.job(job)["state"] == "succeeded", "the job ends")
    removed = here("node", "remove", "one", "gpu-2")
    assert removed.code == 0, removed
    assert sorted(removed.out.splitlines()) == ["gpu-2: is removed", "one: is removed"]
    for name in ("one", "two"):
        assert machines.processes(name) == []
        assert machines.do(name, "ls ~/.local/share").strip() == ""
    with Client(head.url, head.token) as asked:
        assert asked.nodes() == []
        assert [each for each in asked.tokens() if each["role"] == "agent"] == []
    assert here("node", "list", "--json").json == []


def asked_node(head: Scheduler, name: str) -> Callable[[], Any]:
    def ask() -> Any:
        return head.http.get(f"/node/{name}").json()

    return ask


def is_kept_through_kills(machines: Lab, node: Callable[[], Any]) -> None:
    """An agent that is killed is started anew; its job goes on."""
    before, killed = node(), agents(machines, "one")
    assert len(killed) == 1
    machines.do("one", f"kill -KILL {killed[0]}")
    until(lambda: agents(machines, "one") not in ([], killed), "another agent runs")
    until(lambda: node()["last_seen_s"] > before["last_seen_s"], "it reports")
    assert node()["jobs"] == before["jobs"]


def agents(machines: Lab, name: str) -> list[str]:
    """Process ids of agents there, as they are there."""
    own = 'case $(tr "\\0" " " <$each/cmdline) in *current/bin/col""ane" agent"*) echo ${each#/proc/};; esac'
    return machines.do(name, f"for each in /proc/[0-9]*; do {own}; done 2>/dev/null").split()


def wrong_known(machines: Lab, text: str) -> str:
    """How ssh is called where other host keys are known."""
    known = machines.folder / "other-known"
    known.write_text(text)
    return f"{machines.ssh} -o UserKnownHostsFile={known}"


def wrong_key(machines: Lab) -> str:
    other = machines.folder / "other"
    if not other.exists():
        os.system(f"ssh-keygen -q -t ed25519 -N '' -f {other}")  # noqa: S605 - a path of ours
    return f"{machines.ssh} -i {other} -o IdentitiesOnly=yes -F none"


CASES: list[tuple[str, Callable[[Lab], list[str]], str]] = [
    (
        "unreachable",
        lambda lab: ["--ssh", f"{lab.ssh} -p {free_port()}", "one"],
        r"one: it cannot be reached: connect to host 127.0.0.1 port \d+: Connection refused",
    ),
    ("unknown name", lambda lab: ["--ssh", lab.ssh, "x@no-such-host.invalid"], r"there is no host of this name"),
    (
        "host key not known",
        lambda lab: ["--ssh", wrong_known(lab, ""), "one"],
        r"one: its host key is not known here: log in once by hand \(ssh one\)",
    ),
    (
        "host key changed",
        lambda lab: ["--ssh", wrong_known(lab, f"one {(lab.folder / 'two.key.pub').read_text()}"), "one"],
        r"one: its host key has changed; if that is right: ssh-keygen -R one",
    ),
    (
        "key refused",
        lambda lab: ["--ssh", lab.ssh, "bob@one"],
        r"bob@one: it refuses your key \(.*Permission denied \(publickey\)\.\): ssh-copy-id bob@one",
    ),
    ("no ssh", lambda _: ["--ssh", "no-such-ssh", "one"], r"one: no-such-ssh cannot be run: No such file or directory"),
    (
        "no python",
        lambda lab: ["--ssh", lab.ssh, "--python", "/srv/small/python3", "one"],
        r"one: one has no Python 3.11 or newer \(it has Python 3.9.2\): install one there, or name it with --python",
    ),
    (
        "no such python",
        lambda lab: ["--ssh", lab.ssh, "--python", "/nowhere/python3", "one"],
        r"\(there is no /nowhere/python3\)",
    ),
    (
        "no disk",
        lambda lab: ["--ssh", lab.ssh, "--dir", "/srv/small/colane", "one"],
        r"one: one has 1 MB free for /srv/small/colane, and 500 are needed: name another place with --dir",
    ),
    (
        "unwritable",
        lambda lab: ["--ssh", lab.ssh, "--dir", "/etc/colane-node", "one"],
        r"one: one: /etc cannot be written by ann: name another place with --dir",
    ),
    (
        "scheduler not reached",
        lambda lab: ["--ssh", lab.ssh, "--url", "http://127.0.0.1:1", "one"],
        r"cannot reach the scheduler at http://127.0.0.1:1 \(.*Connection refused.*\): it listens on loopback alone\?",
    ),
]


@pytest.mark.parametrize(("options", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_cannot_be_is_one_line_and_leaves_nothing(
    here: Colane, machines: Lab, options: Callable[[Lab], list[str]], said: str
) -> None:
    machines.do(
        "one", "printf '#!/bin/sh\\n[ \"$1\" = --version ] && echo Python 3.9.2 || exit 1\\n' >/srv/small/python3"
    )
    machines.do("one", "chmod 755 /srv/small/python3")
    found = here("node", "add", *options(machines))
    assert found.code == 1
    assert re.search(said, found.err), found.err
    assert found.err.startswith("colane: ")
    assert len(found.err.splitlines()) == 1
    assert machines.processes("one") == []
    assert machines.do("one", "ls -A ~/.local/share 2>/dev/null || :").strip() == ""
    assert here("node", "list", "--json").json == []


@pytest.mark.parametrize(
    ("change", "words", "said"),
    [
        (broken, (), "this release is broken"),
        (lambda _, content: content, ("--topology", "nonsense"), "--topology"),
        (lambda _, content: content, ("--devices", "cpu:0"), "--devices"),
    ],
    ids=["release", "topology", "devices"],
)
def test_an_agent_that_does_not_start_is_taken_away_again_at_once(
    here: Colane, head: Scheduler, machines: Lab, monkeypatch: pytest.MonkeyPatch,
    change: Callable[[str, bytes], bytes], words: tuple[str, ...], said: str,
) -> None:  # fmt: skip
    other_release(monkeypatch, change)
    monkeypatch.setattr(ssh_nodes, "SEEN_MAX_S", 3_600.0)
    found = here(*ADD, *words, "--ssh", machines.ssh, "one")
    assert found.code == 1
    assert "one: its agent does not start: " in found.err.splitlines()[-1]
    assert said in found.err.splitlines()[-1]
    assert machines.processes("one") == []
    assert machines.do("one", "ls ~/.local/share").strip() == ""
    assert [each for each in head.http.get("/tokens").json() if each["role"] == "agent"] == []
    assert here("node", "remove", "one").code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["node", "add"], "Missing argument"),
        (["node", "add", "-x=ann@gpu-1"], "No such option"),
        (["node", "add", "a b=ann@gpu-1"], "'a b' is no name of a node"),
        (["node", "add", "gpu-1="], "must be a machine as ssh takes it, such as ann@gpu-1"),
        (["node", "add", "x", "--dir", "here"], "--dir: must be an absolute path, got 'here'"),
        (["node", "add", "x", "--ssh", ""], "--ssh: must be a command"),
        (["node", "add", "x", "--ssh", "'"], "--ssh: No closing quotation"),
        (["node", "upgrade", "nowhere"], "nowhere: not added from here by this user"),
        (["node", "remove", "nowhere"], "nowhere: not added from here by this user"),
        (["node", "remove", "nowhere", "--forget"], "there is no node nowhere"),
        (["node", "remove", "nowhere", "--deadline", "soon"], "--deadline"),
    ],
)
def test_what_is_asked_wrongly_is_one_line(here: Colane, words: list[str], said: str) -> None:
    found = here(*words)
    assert found.code == 2, found
    assert said in found.err
    assert len(found.err.splitlines()) == 1


def test_what_is_copied_fits_any_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a module that is compiled here its source is copied; what Colane needs, pip fetches there."""
    package = tmp_path / "colane"
    package.mkdir()
    for name in ("plan.py", "plan.cpython-311-x86_64-linux-gnu.so", "plan.pyc"):
        (package / name).write_bytes(b"")
    monkeypatch.setattr(wheel, "PACKAGE", package)
    made = wheel.own_wheel()
    with zipfile.ZipFile(io.BytesIO(made.content)) as archive:
        assert [name for name in archive.namelist() if name.startswith("colane/")] == ["colane/plan.py"]
        described = next(name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
        assert b"Root-Is-Purelib: true\nTag: py3-none-any\n" in archive.read(described)
    assert made.name.endswith("-py3-none-any.whl")


def test_a_command_of_another_version_than_the_scheduler_adds_and_renews_nothing(
    here: Colane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colane.cli.nodes.node.own_version", lambda: "9.9")
    for words in (["add", "x"], ["upgrade"]):
        found = here("node", *words)
        assert found.code == 1
        assert f"the scheduler is Colane {own_version()} and this command 9.9" in found.err


def test_nodes_are_where_they_were_after_a_copy_of_the_scheduler_was_put_back(tmp_path: Path) -> None:
    def place(name: str, at: str) -> ssh_nodes.SshNode:
        return ssh_nodes.SshNode(name=name, at=at, ssh=(), folder="~/nodes")

    first = ssh_nodes.SshNodes(tmp_path, "first")
    first.note(place("b", "host-b"))
    first.note(place("a", "host-a"))
    ssh_nodes.SshNodes(tmp_path, "another cluster").note(place("c", "host-c"))
    third = ssh_nodes.SshNodes(tmp_path, "third", ["first", "second"])
    assert [*third.all()] == ["a", "b"]
    assert third.get("c") is None
    third.note(place("a", "moved"))
    assert (third.get("a"), [*third.all()]) == (place("a", "moved"), ["a", "b"])
    for name in ("a", "b"):
        third.forget(name)
    assert (third.get("a"), third.all(), first.all()) == (None, {}, {})
