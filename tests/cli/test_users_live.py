"""Many users of one machine, in real processes: the socket tells who calls, jobs run as whoever submitted them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from colane.client.client import Client
from colane.client.errors import Refused
from colane.verbs.of_jobs import SUSPEND
from tests.cli.conftest import Up, start_up, until_gone
from tests.users import NEEDS_ROOT, OTHER_UID, as_user, open_directory

pytestmark = [pytest.mark.live, NEEDS_ROOT]

PATH = "/usr/bin:/bin"
PYTHON = Path("/usr/bin/python3")
LOOK = (
    "id -u; id -G; echo $HOME; D=$(dirname $COLANE_STEPS_FILE); stat -c %u:%a $D; "
    "cat $D/../command; ls $D/.. $D/../..; touch $D/../exit; kill -9 $PPID; echo end"
)


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with open_directory() as directory:
        started = start_up(directory / "state", "--devices", "cpu:1", "--policy", "fifo", "--name", "here")
        with local(started) as warm:  # what it imports is there before a process becomes a user who cannot read it
            warm.nodes()
        yield started
        code, said = started.end(15)
        assert code == 0, said
        until_gone(directory)


def local(up: Up) -> Client:
    """A client that comes in as whoever runs it."""
    return Client(f"unix://{up.state / 'socket'}")


def other(up: Up, ask: Callable[[Client], Any]) -> Any:
    """What another user is answered; a refusal as its status and text."""

    def act() -> Any:
        with local(up) as client:
            try:
                return ask(client)
            except Refused as refused:
                return [refused.status, str(refused)]

    return as_user(OTHER_UID, act)


def submit(client: Client, *command: str, **fields: Any) -> int:
    return client.submit({"command": list(command), "workdir": "/", "env": {"PATH": PATH}, **fields})


def test_it_says_what_root_means(up: Up) -> None:
    assert "run by root: every user of this machine may submit; jobs run as their submitters" in up.greeting


def test_a_job_runs_as_its_submitter_and_reaches_nothing_of_the_agent(up: Up) -> None:
    job = other(up, lambda client: submit(client, "sh", "-c", LOOK))
    ended = up.wait_for(job, "succeeded", "failed")
    assert ended["user"] == str(OTHER_UID), ended
    said = other(up, lambda client: client.log(job).data.decode())
    assert said.splitlines()[:4] == [str(OTHER_UID), "65534", "/", f"{OTHER_UID}:700"], (
        said,
        ended["reason"],
        ended["detail"],
        ended["outcome"],
    )
    assert said.count("Permission denied") == 4, said
    assert "Operation not permitted" in said
    assert said.endswith("end\n")


@pytest.mark.skipif(not PYTHON.exists(), reason="no Python that other users can run")
def test_steps_of_another_users_job_are_seen(up: Up) -> None:
    code = "from _colane_adaptor.reporter import attach\nsteps = attach(total_steps=3)\nfor _ in range(3): steps.step()"
    job = other(up, lambda client: submit(client, str(PYTHON), "-c", code))
    ended = up.wait_for(job, "succeeded", "failed")
    assert (ended["state"], ended["steps"]) == ("succeeded", 3)


def test_what_is_not_ones_own(up: Up) -> None:
    with local(up) as own:
        job = submit(own, "sleep", "1000", env={"PATH": PATH, "SECRET": "s"})
    up.wait_for(job, "running", "running-protected", "launching")
    asked: dict[str, Callable[[Client], Any]] = {
        "cancel": lambda client: client.cancel(job),
        "suspend": lambda client: client.act(SUSPEND, job),
        "log": lambda client: client.log(job),
        "launch": lambda client: client._get(f"/job/{job}/launch"),
        "submit for root": lambda client: submit(client, "true", user="root"),
        "register a node": lambda client: client._change("POST", "/node", {"name": "here", "gpus": []}),
        "forget nodes": lambda client: client.remove_nodes(),
        "forget history": lambda client: client.remove_finished(),
        "a token of root": lambda client: client.make_token(user="root"),
        "a token of an operator": lambda client: client.make_token(role="operator"),
        "a token of a node": lambda client: client.make_token(node="here"),
    }
    for name, ask in asked.items():
        status, text = other(up, ask)
        assert status == 403, (name, text)
    assert other(up, lambda client: client.cancel_queued()) == []
    assert other(up, lambda client: client.job(job)["user"]) == "root"  # everybody sees, without the environment
    with local(up) as own:
        assert own._get(f"/job/{job}/launch")["env"]["SECRET"] == "s"
        own.cancel(job)
    up.wait_for(job, "cancelled")


def test_tcp_without_a_token_is_refused_and_with_a_users_own_it_is_him(up: Up) -> None:
    with Client(up.url) as stranger, pytest.raises(Refused) as refused:
        stranger.nodes()
    assert refused.value.status == 401
    token = other(up, lambda client: client.make_token())
    with Client(up.url, token) as remote, local(up) as operator:
        with pytest.raises(Refused, match=f"you are user {OTHER_UID}"):
            remote.remove_finished()
        (known,) = remote.tokens()
        assert (known["name"], known["role"]) == (str(OTHER_UID), "user")
        assert token not in (up.state / "colane.db-wal").read_bytes().decode(errors="replace")
        operator.revoke_token(known["id"])
        with pytest.raises(Refused) as refused:
            remote.nodes()
        assert refused.value.status == 401
