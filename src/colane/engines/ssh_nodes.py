"""Nodes by ssh: an agent of this very Colane is put on a machine, kept there, renewed, and removed without a trace.

Where each node is, is noted on the machine that added it, a file for each: the scheduler need not be able to log in
anywhere.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from urllib.parse import urlsplit

from colane.client.client import Client
from colane.client.errors import SchedulerError
from colane.client.hosts import is_loopback
from colane.client.locate import TOKEN_FILE, surroundings
from colane.client.tls import CA_VARIABLE
from colane.engines import EngineError
from colane.engines.ssh import Host, script
from colane.engines.tidy import revoke_tokens
from colane.engines.wheel import Wheel
from colane.model.versions import own_version

if TYPE_CHECKING:
    from colane.api.nodes import NodeObject

Tell = Callable[[str], None]

NODE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
FREE_MIN_KB: Final = 500_000
"""Colane and what it needs take 250 MB, and what pip downloads comes on top while it installs."""
SEEN_MAX_S: Final = 90.0  # an agent is seen some two seconds after its start; on a machine with much else to do, later
LOOK_EVERY_S: Final = 0.2
ENDED_EVERY_S: Final = 1.5  # so often it is asked for whether the agent has ended instead
ENDS_MAX: Final = 2  # one that has ended so often does not start
REMOVED: Final = "removed by colane node remove"
EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - the agent's address for others; it demands its secret
LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SshNode:
    """Where a node is."""

    name: str  # the node's
    at: str  # the host, as ssh takes it
    ssh: tuple[str, ...]  # words of ssh
    folder: str  # where nodes are kept there

    def do(self, verb: str, *words: str, sent: bytes = b"") -> dict[str, str]:
        """Do one thing there. Raises EngineError: the host is not reached, or it went wrong there."""
        try:
            return Host(self.at, self.ssh).do(verb, self.folder, self.name, *words, sent=sent)
        except EngineError as error:
            raise EngineError(f"{self.name}: {error}" if self.name else str(error)) from error


class SshNodes:
    """What is noted of the nodes of one cluster that were added from here.

    Args:
        root: Folder of all notes.
        cluster_id: Of the cluster.
        former_ids: Those that it had before copies of what its scheduler keeps were put back, the newest last: its
            nodes are where they were.
    """

    def __init__(self, root: Path, cluster_id: str, former_ids: Sequence[str] = ()) -> None:
        self._root = root / (cluster_id or "cluster")
        self._roots = [*(root / each for each in former_ids), self._root]

    @classmethod
    def of(cls, scheduler: Client) -> Self:
        """Return those of this user for a scheduler's cluster."""
        from platformdirs import user_data_path  # noqa: PLC0415 - imported late

        health = scheduler.health()
        root = user_data_path("colane", appauthor=False) / "nodes"
        return cls(root, health.get("cluster_id") or "", health.get("former_cluster_ids") or ())

    def all(self) -> dict[str, SshNode]:
        """Return all, by name."""
        found = (self._read(path) for root in self._roots for path in sorted(root.glob("*.json")))
        by_name = {place.name: place for place in found if place is not None}
        return dict(sorted(by_name.items()))

    def get(self, name: str) -> SshNode | None:
        """Return one, None where it was not added from here."""
        found = (self._read(root / f"{name}.json") for root in reversed(self._roots))
        return next(filter(None, found), None)

    def note(self, place: SshNode) -> None:
        """Note one."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._root / f"{place.name}.new"
        fresh.write_text(json.dumps(asdict(place), indent=1) + "\n", encoding="utf-8")
        fresh.replace(self._root / f"{place.name}.json")

    def forget(self, name: str) -> None:
        """Note nothing of one any more."""
        for root in self._roots:
            (root / f"{name}.json").unlink(missing_ok=True)

    @staticmethod
    def _read(path: Path) -> SshNode | None:
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
            return SshNode(name=body["name"], at=body["at"], ssh=tuple(body["ssh"]), folder=body["folder"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EngineError(f"{path}: cannot be read ({error}): delete it, and add its node anew") from error


class ToAdd(NamedTuple):
    """What is to be added."""

    place: SshNode  # the host; without a name it has the machine's own
    url: str  # of the scheduler, as hosts reach it
    python: str = ""  # its Python; empty looks for one
    settings: Mapping[str, str] = {}  # further ones of the agent, by their names in `colane.toml`


def add(scheduler: Client, places: SshNodes, asked: ToAdd, wheel: Wheel, tell: Tell) -> NodeObject:
    """Put an agent on a host, and return its node; nothing is left there, nor here, where that cannot be.

    Raises EngineError: it cannot; one line.
    """
    found = asked.place.do("probe", asked.url, asked.python)
    place = replace(asked.place, name=found["name"], folder=found["dir"])
    if NODE_NAME.fullmatch(place.name) is None:
        raise EngineError(f"{place.at}: {place.name!r} is no name of a node: give it one, as gpu-1={place.at}")
    if scheduler.node_if_known(place.name) is not None:
        raise EngineError(
            f"{place.name}: is a node already; colane node upgrade renews it, "
            f"and NAME={place.at} gives this host another name"
        )
    if found["installed"]:
        raise EngineError(
            f"{place.name}: {place.at} has an agent of this name in {found['installed']} already, perhaps of another "
            f"scheduler: give it another name, or delete it there"
        )
    _judge(scheduler, place, asked, found)
    tell(f"{place.name}: installing Colane {own_version()} in {place.folder} on {place.at}")
    with _undone(scheduler, place):
        files = _of_release(place, found["user"]) | _of_node(place, asked, scheduler.make_token(node=place.name))
        place.do("install", found["python"], found["pip"], wheel.release, sent=_packed(files, wheel))
        places.note(place)
        told = place.do("switch", wheel.release, found["supervisor"])
        node = _wait_for(scheduler, place, 0.0)
    for line in _of_keeping(place, found, told):
        tell(line)
    return node


def upgrade(scheduler: Client, place: SshNode, wheel: Wheel, tell: Tell) -> NodeObject | None:
    """Renew a node's agent while its jobs go on; the one that was there goes on where the new one does not.

    Returns:
        The node; None where it has this release already.

    Raises:
        EngineError: It cannot be renewed; one line.
    """
    before = scheduler.node_if_known(place.name)
    found = place.do("probe", "", "")
    if not found["installed"]:
        raise EngineError(f"{place.name}: is not on {place.at} any more ({place.folder}): remove it and add it anew")
    is_there = before is not None and not before["lost"]
    if is_there and found["release"] == wheel.release:
        return None
    _judge_host(place, found)
    tell(f"{place.name}: installing Colane {own_version()} on {place.at}")
    place.do(
        "install", found["python"], found["pip"], wheel.release, sent=_packed(_of_release(place, found["user"]), wheel)
    )
    place.do("switch", wheel.release, "")
    seen = scheduler.node_if_known(place.name)  # all that was heard until now may be of the one before
    try:
        node = _wait_for(scheduler, place, 0.0 if seen is None else seen["last_seen_s"] or 0.0)
    except EngineError as error:
        if not found["release"] or found["release"] == wheel.release:
            raise
        place.do("switch", found["release"], "")
        raise EngineError(f"{error}; {found['release']} runs there again") from error
    place.do("tidy")
    return node


def remove(scheduler: Client, places: SshNodes, place: SshNode, tell: Tell, *, deadline_s: float | None) -> None:
    """Drain a node, wait until its jobs are gone, and leave nothing of it on its host and at the scheduler.

    Raises EngineError: the host is not reached, or it went wrong there; the node stays drained.
    """
    if scheduler.node_if_known(place.name) is not None:
        scheduler.drain(place.name, deadline_s=deadline_s, reason=REMOVED)
        told: list[int] = []
        while (node := scheduler.node_if_known(place.name)) is not None and node["jobs"]:
            left = [job["id"] for job in node["jobs"]]
            if node["lost"]:
                raise EngineError(
                    f"{place.name}: is lost with jobs {' '.join(map(str, left[:5]))}; where it never comes back: "
                    f"colane node remove {place.name} --forget"
                )
            if left != told:
                tell(f"{place.name}: drained; still there: {' '.join(map(str, left))}")
                told = left
            time.sleep(LOOK_EVERY_S)
    place.do("remove")
    forget(scheduler, places, place.name)


def forget(scheduler: Client, places: SshNodes, name: str) -> None:
    """Forget a node whose agent is stopped, or never comes back: its record, its tokens, and where it was.

    Raises SchedulerError: it has jobs, and its agent reports.
    """
    revoke_tokens(scheduler, name)
    if scheduler.node_if_known(name) is not None:
        scheduler.remove_node(name)
    places.forget(name)


def _judge(scheduler: Client, place: SshNode, asked: ToAdd, found: Mapping[str, str]) -> None:
    _judge_host(place, found, asked.python)
    if "unreachable" in found:
        hint = "it listens on loopback alone" if _is_loopback(asked.url) else "is a firewall between them"
        raise EngineError(
            f"{place.name}: {place.at} cannot reach the scheduler at {asked.url} ({found['unreachable']}): {hint}? "
            "Start it with --host 0.0.0.0, and name it as hosts reach it with --url"
        )
    if found["cluster"] != scheduler.health().get("cluster_id"):
        raise EngineError(
            f"{place.name}: at {asked.url} {place.at} reaches another scheduler: name ours as hosts reach it with --url"
        )


def _judge_host(place: SshNode, found: Mapping[str, str], python: str = "") -> None:
    """Refuse a host on which no agent can be."""
    who = f"{place.name}: {place.at}"
    if not found["python"]:
        has = f"it has {found['old_python']}" if found["old_python"] else f"there is no {python or 'python3'}"
        raise EngineError(f"{who} has no Python 3.11 or newer ({has}): install one there, or name it with --python")
    if not found["pip"]:
        raise EngineError(f"{who}: {found['python']} has neither pip 22.3 nor ensurepip (Debian: python3-venv)")
    if found["unwritable"]:
        raise EngineError(
            f"{who}: {found['unwritable']} cannot be written by {found['user']}: name another place with --dir"
        )
    if (found["free_kb"] or "0").isdecimal() and int(found["free_kb"] or "0") < FREE_MIN_KB:
        free = int(found["free_kb"] or "0") // 1000
        raise EngineError(
            f"{who} has {free} MB free for {place.folder}, and {FREE_MIN_KB // 1000} are needed: "
            "name another place with --dir"
        )


def _is_loopback(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")


@contextmanager
def _undone(scheduler: Client, place: SshNode) -> Iterator[None]:
    """Leave nothing of a node, here and there, where what is inside fails."""
    try:
        yield
    except BaseException:
        with suppress(EngineError):
            place.do("remove")
        with suppress(SchedulerError):
            forget(scheduler, SshNodes.of(scheduler), place.name)
        raise


def _wait_for(scheduler: Client, place: SshNode, after_s: float) -> NodeObject:
    """Wait until a node has been heard of after a moment of the scheduler's clock."""
    start_s = asked_s = time.monotonic()
    problem = f"its agent has not reported within {SEEN_MAX_S:.0f} s"
    while time.monotonic() < start_s + SEEN_MAX_S:
        node = scheduler.node_if_known(place.name)
        if node is not None and not node["lost"] and (node["last_seen_s"] or 0.0) > after_s:
            return node
        if time.monotonic() > asked_s + ENDED_EVERY_S:
            asked_s = time.monotonic()
            if int(place.do("said").get("ended") or 0) >= ENDS_MAX:
                problem = "its agent does not start"
                break
        time.sleep(LOOK_EVERY_S)
    raise EngineError(f"{place.name}: {problem}: {place.do('said').get('said') or 'it has said nothing'}")


def _of_keeping(place: SshNode, found: Mapping[str, str], told: Mapping[str, str]) -> Iterator[str]:
    if found["supervisor"] == "background":
        yield (
            f"{place.name}: {place.at} has no systemd for {found['user']}, so a process of its own keeps the agent; "
            f"after a restart of the machine: colane node upgrade {place.name}"
        )
    if told.get("lingers") == "no":
        yield (
            f"{place.name}: the agent ends with the last session of {found['user']} there, until an administrator says "
            f"'loginctl enable-linger {found['user']}'"
        )


def _of_release(place: SshNode, user: str) -> dict[str, str]:
    """What runs the agent."""
    base = f"{place.folder}/{place.name}"
    quoted = shlex.quote(base)
    agent = (
        "#!/bin/sh\n"
        "unset COLANE_URL COLANE_TOKEN COLANE_TOKEN_FILE COLANE_STATE\n"
        f"export COLANE_CONFIG={quoted}/colane.toml\n"
        f"[ ! -e {quoted}/ca.pem ] || export {CA_VARIABLE}={quoted}/ca.pem\n"
        f"exec {quoted}/current/bin/colane agent\n"
    )
    return {
        "agent": agent,
        "keep": script("keep.sh"),
        "unit": unit(f"Colane agent {place.name}", f"{base}/current/agent", for_user=user != "root"),
    }


def unit(description: str, command: str, *, for_user: bool) -> str:
    """Return a systemd unit of an agent: its jobs outlive it, and one that is killed for memory does not end it."""
    wanted_by = "default.target" if for_user else "multi-user.target"
    network = "" if for_user else "Wants=network-online.target\nAfter=network-online.target\n"
    return (
        f"[Unit]\nDescription={description}\n{network}\n"
        f"[Service]\nExecStart={command.replace('%', '%%')}\nRestart=always\nRestartSec=2\n"
        "KillMode=process\nOOMPolicy=continue\nDelegate=yes\nDelegateSubgroup=agent\nTasksMax=infinity\nTimeoutStopSec=30\n\n"
        f"[Install]\nWantedBy={wanted_by}\n"
    )


def _of_node(place: SshNode, asked: ToAdd, token: str) -> dict[str, str]:
    """What is this node's, whatever release runs."""
    base = f"{place.folder}/{place.name}"
    settings = {
        "name": place.name,
        "url": asked.url,
        "host": LOOPBACK if _is_loopback(asked.url) else EVERY_ADDRESS,
        "state": f"{base}/state",
        "token_file": f"{base}/{TOKEN_FILE}",
        **asked.settings,
    }
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in settings.items()]
    trusted = surroundings().get(CA_VARIABLE)
    return {
        "colane.toml": "\n".join(["# colane node upgrade leaves this file as it is", "[agent]", *lines, ""]),
        TOKEN_FILE: f"{token}\n",
        **({"ca.pem": Path(trusted).read_text(encoding="utf-8")} if trusted else {}),
    }


def _packed(files: Mapping[str, str], wheel: Wheel) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in [*((name, text.encode()) for name, text in files.items()), (wheel.name, wheel.content)]:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def reachable_url(scheduler_url: str, named: str | None) -> str:
    """Return the scheduler's URL as hosts reach it: as named, else as it is published."""
    from colane.client.locate import judged, web_url  # noqa: PLC0415 - imported late

    return judged(named) if named is not None else web_url(scheduler_url)


def own_ssh(text: str) -> tuple[str, ...]:
    """Return the words of ssh. Raises ValueError: they cannot be read."""
    words = tuple(shlex.split(text))
    if not words:
        raise ValueError("must be a command, such as 'ssh -p 2222'")
    return words if os.sep not in words[0] else (str(Path(words[0]).expanduser()), *words[1:])
