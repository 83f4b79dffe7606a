"""Draining nodes: what operators ask, and notice that agents have of the end of their machines."""

from __future__ import annotations

from typing import Final

from colane.api.wire_nodes import NoticeBody
from colane.core.events import NodeDrained
from colane.model.hardware import Drain
from colane.server.board.read_model import NodeRecord
from colane.server.board.turn import Turn
from colane.server.ground.problems import RefusedError

NOTICE_MOVES_S: Final = 2.0
"""What an agent says of the time it has left differs so much between reports, by how long these are under way."""


def drain(turn: Turn, name: str, drain: Drain | None) -> None:
    """Let a node take no new jobs and let its jobs go, or take some again; a lost one is as it is told once it is back.

    Raises RefusedError: 404.
    """
    record = turn.read_model.nodes.get(name)
    if record is None or name in turn.removed_nodes:
        raise RefusedError.because(404, f"there is no node {name!r}")
    turn.drained[name] = drain  # what the record says, also where it is lost in this very turn
    turn.events.append(NodeDrained(name, drain))  # also of a lost one, which may have come back in this very turn
    facts = {} if drain is None else {"by": drain.by, "reason": drain.reason, "deadline_s": drain.deadline_s}
    turn.record("node-undrained" if drain is None else "node-drained", node=name, **facts)


def apply_notice(turn: Turn, record: NodeRecord, body: NoticeBody | None) -> None:
    """Take in what an agent says in each report of the end of its machine."""
    name, known = record.node.name, record.node.notice
    notice = _notice(name, body, known, turn.now_s)
    if notice != known:
        turn.events.append(NodeDrained(name, notice, by_agent=True))
        turn.record("node-notice", node=name, reason=None if notice is None else notice.reason)


def _notice(name: str, body: NoticeBody | None, known: Drain | None, now_s: float) -> Drain | None:
    """Notice an agent has; one whose end has hardly moved is the one that is known."""
    if body is None:
        return None
    told = Drain(f"node {name}", body.reason, now_s, None if body.left_s is None else now_s + body.left_s)
    if known is None or known.reason != told.reason or (known.deadline_s is None) != (told.deadline_s is None):
        return told
    moved_s = abs((told.deadline_s or 0.0) - (known.deadline_s or 0.0))
    return known if moved_s < NOTICE_MOVES_S else told
