"""What engines ask of the scheduler when nodes of theirs leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from colane.client.client import Client
from colane.client.errors import SchedulerError

END_MAX_S: Final = 60.0  # what jobs that are cancelled have to end, beside the time that they need to save


def revoke_tokens(scheduler: Client, node: str) -> None:
    """Revoke what a node's agent has for a token."""
    for token in scheduler.tokens():
        if (token["role"], token["name"]) == ("agent", node):
            scheduler.revoke_token(token["id"])


def cancel_jobs(client: Callable[[], Client], nodes: Collection[str]) -> None:
    """Cancel what runs on nodes, and wait until it has saved and ended."""
    lead_s = 0.0
    with suppress(SchedulerError), client() as scheduler:
        for name in set(nodes) & {node["name"] for node in scheduler.nodes()}:
            scheduler.drain(name, reason="the end of colane up")
        for job in scheduler.live_jobs():
            if job["node"] in nodes:
                scheduler.cancel(job["id"], by="the end of colane up")
                lead_s = max(lead_s, (job["needs"].get("checkpoint") or {"lead_s": 0.0})["lead_s"])
        deadline_s = time.monotonic() + lead_s + END_MAX_S
        while time.monotonic() < deadline_s and any(
            node["jobs"] and not node["lost"] for node in scheduler.nodes() if node["name"] in nodes
        ):
            time.sleep(0.2)
