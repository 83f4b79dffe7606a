"""`colane server --hand-over`: another scheduler leads, and the one that did ends, as for an upgrade."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from colane.cli import output
from colane.cli.errors import FailureError, MisuseError
from colane.client.client import Client
from colane.client.errors import SchedulerError
from colane.client.locate import find_url, urls_of

if TYPE_CHECKING:
    from colane.api.records import HealthAnswer

WAIT_MAX_S: Final = 60.0
LOOK_S: Final = 0.05


def hand_over() -> None:
    """Let the scheduler that leads end, where a standby is there to lead, and wait until that does."""
    urls = urls_of(find_url())
    if len(urls) == 1:
        raise MisuseError(
            "--hand-over: name the scheduler that leads and its standby: COLANE_URL=http://a:8642,http://b:8642"
        )
    found = {url: health for url in urls if (health := _health(url)) is not None}
    leaders = [url for url, health in found.items() if health["role"] == "leader"]
    if not leaders:
        raise FailureError(f"none of {', '.join(urls)} leads: there is nothing to hand over")
    cluster = found[leaders[0]]["cluster_id"]
    standbys = [
        url
        for url, health in found.items()
        if health["role"] == "standby" and health["cluster_id"] == cluster and health["status"] != "store-unavailable"
    ]
    if not standbys:
        raise FailureError("no standby of this cluster answers, so nothing is done: start colane server --standby")
    began_s = time.monotonic()
    with Client(leaders[0]) as leader:
        leader.hand_over()
    while time.monotonic() < began_s + WAIT_MAX_S:
        for url in standbys:
            health = _health(url)
            if health is not None and health["role"] == "leader":
                output.say(f"{url} leads (start {health['epoch']}), after {time.monotonic() - began_s:.1f} s")
                return
        time.sleep(LOOK_S)
    raise FailureError(f"{leaders[0]} has ended, and no standby leads after {WAIT_MAX_S:g} s: see their logs")


def _health(url: str) -> HealthAnswer | None:
    with suppress(SchedulerError), Client(url) as scheduler:
        return scheduler.health()
    return None
