"""What the scheduler tells agents to be set to, so that machines need no file of settings each."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from colane.client.errors import Refused, SchedulerUnreachable
from colane.settings.setting import Given
from colane.settings.table import AGENTS

ANSWER_MAX_S: Final = 5.0
FILE: Final = "agent_settings.json"
LEASE: Final = "lease_s"
log = logging.getLogger(__name__)


class Told(NamedTuple):
    """What a scheduler tells an agent that starts."""

    settings: dict[str, Given]  # `[agents]` of its file
    lease_s: float | None  # how long a node may be silent; None where it does not say


def told_by_scheduler(url: str, token: str | None, state_dir: Path) -> Told:
    """Return what `[agents]` of the scheduler's file says, and its lease; while it does not answer, what it said last.

    A scheduler of an older version says nothing; what this version does not know of a newer one's is left out.
    """
    from colane.client.client import Client  # noqa: PLC0415 - imported late

    kept = state_dir / FILE
    try:
        with Client(url, token, timeout_s=ANSWER_MAX_S) as scheduler:
            answer: Mapping[str, Any] = scheduler.agent_settings()
        found: Mapping[str, Any] = {**answer["settings"], LEASE: answer.get(LEASE)}
    except Refused as error:
        if error.status != 404:
            log.warning("the scheduler does not say what agents are set to: %s", error)
        return Told({}, None)
    except SchedulerUnreachable as error:
        found = _read(kept)
        what = "what it said last" if found else "defaults"
        log.warning("no scheduler answers at %s: what it does not know itself is set to %s", error.url, what)
    else:
        _keep(kept, found)
    known = {setting.name for setting in AGENTS.settings}
    origin = f"[agents] of the scheduler at {url}"
    lease_s = found.get(LEASE)
    return Told(
        {name: Given(raw, f"{origin}: {name}") for name, raw in found.items() if name in known},
        lease_s if isinstance(lease_s, (int, float)) else None,
    )


def _read(kept: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(kept.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _keep(kept: Path, found: Mapping[str, Any]) -> None:
    """Keep it for a start without the scheduler; a full disk is told by what cannot go on without it."""
    draft = kept.with_suffix(".new")
    try:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.write_text(json.dumps(dict(found)), encoding="utf-8")
        draft.replace(kept)
    except OSError as error:
        log.warning("%s cannot be written: %s", kept, error.strerror)
