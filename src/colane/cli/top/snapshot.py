"""What `colane top` asks the scheduler, and how often: what is not drawn is not asked for."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from colane.client.errors import Refused

if TYPE_CHECKING:
    from colane.api.jobs import JobObject, ListingAnswer
    from colane.api.nodes import NodeObject
    from colane.api.samples import NodeSamplesAnswer
    from colane.api.seeing import OverviewAnswer
    from colane.client.client import Client

LISTED: Final = 1_000
LISTED_LARGE: Final = 300
JOBS_EVERY_LARGE_S: Final = 5.0
"""Of a large cluster fewer jobs are asked for, and less often: every picture is work for the scheduler."""

NODES_EVERY_S: Final = 2.0
NODES_EVERY_LARGE_S: Final = 10.0
LARGE: Final = 64  # of more nodes than this the descriptions are asked for less often: each answer has all of them

SAMPLES_EVERY_S: Final = 10.0
SPARK_S: Final = 3600.0


@dataclass(slots=True)
class ClusterShot:
    """The cluster at a moment."""

    at_s: float  # when it was asked for, unix time here
    overview: OverviewAnswer  # in numbers
    nodes: list[NodeObject]  # in the order in which they registered
    jobs: list[JobObject]  # live jobs, in order of id
    left_out: int  # running and waiting jobs that are not among these
    # how devices of some nodes were used over the last hour
    samples: dict[str, NodeSamplesAnswer] = field(default_factory=dict)


@dataclass(slots=True)
class ShotTaker:
    """Asks; keeps what need not be asked for again yet."""

    client: Client  # of the scheduler
    user: str | None = None  # only this user's jobs; None for all
    _told: tuple[OverviewAnswer, ListingAnswer] | None = None
    _told_at_s: float = float("-inf")
    _nodes: list[NodeObject] = field(default_factory=list)
    _nodes_at_s: float = float("-inf")
    _samples: dict[str, tuple[float, NodeSamplesAnswer]] = field(default_factory=dict)

    def take(self, shown: Iterable[str] | None = None) -> ClusterShot:
        """Ask for all but samples, of which only those of the nodes that are shown, or of all for None.

        Raises SchedulerError: there is no answer, or it is a refusal.
        """
        now_s = time.monotonic()
        is_large = len(self._nodes) > LARGE
        if self._told is None or now_s >= self._told_at_s + JOBS_EVERY_LARGE_S * is_large:
            limit = LISTED_LARGE if is_large else LISTED
            self._told = self.client.overview(), self.client.listing(limit, user=self.user)
            self._told_at_s = now_s
        overview, listed = self._told
        every_s = NODES_EVERY_LARGE_S if is_large else NODES_EVERY_S
        if now_s >= self._nodes_at_s + every_s:
            self._nodes, self._nodes_at_s = self.client.nodes(), now_s
        names = {node["name"] for node in self._nodes}
        for name in names if shown is None else names.intersection(shown):
            known = self._samples.get(name)
            if known is None or now_s >= known[0] + SAMPLES_EVERY_S:
                self._sample(name, now_s)
        for gone in [name for name in self._samples if name not in names]:
            del self._samples[gone]
        left = listed["left_out"]
        samples = {name: samples for name, (_, samples) in self._samples.items()}
        jobs = listed["jobs"]
        return ClusterShot(time.time(), overview, self._nodes, jobs, left["running"] + left["queued"], samples)

    def _sample(self, name: str, now_s: float) -> None:
        try:
            self._samples[name] = now_s, self.client.node_samples(name, SPARK_S)
        except Refused:  # it is forgotten meanwhile
            self._samples.pop(name, None)
