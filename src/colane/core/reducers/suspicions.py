"""What speaks against nodes: jobs that failed on them at their start, and where others of their kind ran."""

from __future__ import annotations

from typing import Final, NamedTuple

from colane.core.cluster.state import ClusterState
from colane.model.job import Job

QUICK_S: Final = 20.0  # a job that ends badly within this time and without a step has failed at its start

STREAK: Final = 5  # so many such failures in a row, with nothing between them that ran, are looked at

USERS: Final = 2  # they must be of so many users; of one more where none of them has run elsewhere

CLOSED_S: Final = 300.0
CLOSED_MAX_S: Final = 4 * 3600.0
"""A node is taken out for this long at first, each time twice as long as before, at most so long."""

LATELY_S: Final = 24 * 3600.0
KINDS_MAX: Final = 4096
STREAK_MAX: Final = 64

Kind = tuple[str, str]  # a user and one of the user's families: what ran elsewhere should run here


class Runs(NamedTuple):
    """How jobs of a kind fared last, by node: when one ran, and when one failed at its start."""

    ran_s: dict[str, float]
    failed_s: dict[str, float]


class Suspicions:
    """What is known of nodes' failures; begun anew with each scheduler."""

    def __init__(self) -> None:
        self._streaks: dict[str, list[Kind]] = {}
        self._strikes: dict[str, int] = {}
        self._kinds: dict[Kind, Runs] = {}

    def ran(self, node: str, kind: Kind, now_s: float) -> None:
        """A job has run on a node: it is no black hole."""
        self._streaks.pop(node, None)
        self._strikes.pop(node, None)
        self._runs(kind).ran_s[node] = now_s

    def failed(self, node: str, kind: Kind, now_s: float) -> None:
        """A job has failed at its start."""
        streak = self._streaks.setdefault(node, [])
        streak.append(kind)
        del streak[:-STREAK_MAX]
        self._runs(kind).failed_s[node] = now_s

    def evidence(self, state: ClusterState, node: str, now_s: float) -> str:
        """Why a node is to blame for its last failures, as people are told; empty where it is not."""
        streak, is_known = self._streaks.get(node, []), node in self._strikes
        if len(streak) < (2 if is_known else STREAK):
            return ""
        kinds = sorted(set(streak))
        elsewhere = [kind for kind in kinds if self._runs_elsewhere(state, kind, node, now_s)]
        users, able = {user for user, _ in kinds}, {user for user, _ in elsewhere}
        alone = len(users) > USERS and not any(self._failed_elsewhere(kind, node, now_s) for kind in kinds)
        if len(able) < USERS and not alone:
            return ""
        which = f", though {', '.join(f'{family} of {user}' for user, family in elsewhere[:3])} runs elsewhere"
        told = f"{len(streak)} jobs in a row of {len(users)} users failed within {QUICK_S:g} s here"
        return told + (which if elsewhere else "")

    def struck(self, node: str, first_s: float) -> float:
        """A node is taken out; for how long, where it was so long at first."""
        strikes = self._strikes[node] = self._strikes.get(node, 0) + 1
        self._streaks.pop(node, None)
        return float(min(CLOSED_MAX_S, first_s * 2 ** min(strikes - 1, 20)))

    def forget(self, node: str) -> None:
        """It is there no more."""
        self._streaks.pop(node, None)
        self._strikes.pop(node, None)

    def _runs(self, kind: Kind) -> Runs:
        runs = self._kinds.get(kind)
        if runs is None:
            if len(self._kinds) >= KINDS_MAX:
                del self._kinds[next(iter(self._kinds))]
            runs = self._kinds[kind] = Runs({}, {})
        return runs

    def _runs_elsewhere(self, state: ClusterState, kind: Kind, node: str, now_s: float) -> bool:
        """Whether the last thing known of a kind on other nodes is that it ran."""
        runs = self._runs(kind)
        lately_s = now_s - LATELY_S
        ran_s = max([at_s for name, at_s in runs.ran_s.items() if name != node], default=lately_s)
        failed_s = max([at_s for name, at_s in runs.failed_s.items() if name != node], default=lately_s)
        return ran_s > failed_s or (failed_s <= lately_s and _runs_now(state, kind, node, now_s))

    def _failed_elsewhere(self, kind: Kind, node: str, now_s: float) -> bool:
        lately_s = now_s - LATELY_S
        return any(name != node and at_s > lately_s for name, at_s in self._runs(kind).failed_s.items())


def _runs_now(state: ClusterState, kind: Kind, node: str, now_s: float) -> bool:
    """Whether a job of a kind has been running on another node for a while."""
    for job in state.jobs.values():
        if job.placement is None or job.start_s is None or now_s <= job.start_s + QUICK_S:
            continue
        if kind_of(job) == kind and node not in job.placement.nodes:
            return True
    return False


def kind_of(job: Job) -> Kind:
    """User and family."""
    return job.spec.user, job.spec.family
