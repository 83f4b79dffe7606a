"""What a shell completes on a command line beside options: ids of jobs, and names of nodes, as the scheduler has them.

A scheduler that does not answer at once completes nothing, and says nothing: the user is in the middle of a line.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from colane.client.errors import SchedulerError
from colane.model.words import count

PATIENCE_S: Final = 2.0
JOBS_MAX: Final = 200  # of jobs that run, and of those that wait


def complete_jobs(incomplete: str) -> list[tuple[str, str]]:
    """Return ids of live jobs that begin so, each with its name, owner and state."""
    from colane.client.client import Client  # noqa: PLC0415 - imported late

    with suppress(SchedulerError), Client(timeout_s=PATIENCE_S) as scheduler:
        listed = scheduler.listing(JOBS_MAX)["jobs"]
        return [
            (str(job["id"]), _plain(f"{job['name']} ({job['user']}) {job['state']}"))
            for job in reversed(listed)
            if str(job["id"]).startswith(incomplete)
        ]
    return []


def complete_nodes(incomplete: str) -> list[tuple[str, str]]:
    """Return names of nodes that begin so, each with its state and number of devices."""
    from colane.client.client import Client  # noqa: PLC0415 - as above

    with suppress(SchedulerError), Client(timeout_s=PATIENCE_S) as scheduler:
        return [
            (node["name"], f"{node['state']}, {count(len(node['gpus']), 'device')}")
            for node in scheduler.nodes()
            if node["name"].startswith(incomplete)
        ]
    return []


def _plain(text: str) -> str:
    """A text that a shell shows as it is: names may hold whatever prints."""
    return "".join(one if one.isprintable() else "?" for one in text).replace(":", " ")
