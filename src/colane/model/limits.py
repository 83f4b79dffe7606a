"""How much users and groups of them may have at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from colane.model.resources import Guarantee
from colane.model.words import count

QUEUED_DEFAULT: Final = 10_000
"""Waiting jobs of a user without a limit of its own: each adds a little to every decision on its jobs."""


UNNAMED: Final = "users without a name"
"""Those of the machine that are numbers alone have one quota together: any user may get numbers by the thousand."""


def too_much(guarantees: Sequence[Guarantee], gpus: int) -> str:
    """Return what is wrong with guarantees of a cluster with so many GPUs, and the fix; empty where they can be given.

    Args:
        guarantees: Of all groups.
        gpus: What the cluster has now; nodes may yet come.
    """
    guaranteed = sum([each.gpus for each in guarantees])
    if guaranteed <= gpus:
        return ""
    groups = " and ".join([f"{each.gpus} to group {each.group}" for each in guarantees])
    return f"{groups} are more than the {count(gpus, 'GPU')} there: lower guaranteed_gpus (--limits) or add nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one user, or of all of a group together; None does not bound them."""

    gpus: int | None = None  # GPUs of jobs that run, each job counted at its largest size
    running: int | None = None  # jobs that run
    queued: int | None = None  # jobs that wait
    submits_per_minute: int | None = None  # jobs submitted within any minute
    deadline_gpus: int | None = None  # GPUs that are promised at once for deadlines, which go before all other jobs
    gpu_hours_per_month: int | None = None  # GPU-hours of jobs within a month of the calendar, which begins at 0:00 UTC

    def __reduce__(self) -> tuple[object, ...]:
        """Compiled, a frozen record does not take its fields one by one, as pickle gives them."""
        return _limits, (
            self.gpus, self.running, self.queued, self.submits_per_minute, self.deadline_gpus, self.gpu_hours_per_month
        )  # fmt: skip

    @property
    def holds(self) -> bool:
        """Whether jobs may have to be held back."""
        return self.gpus is not None or self.running is not None or self.gpu_hours_per_month is not None


def _limits(
    gpus: int | None,
    running: int | None,
    queued: int | None,
    submits_per_minute: int | None,
    deadline_gpus: int | None = None,
    gpu_hours_per_month: int | None = None,
) -> Limits:
    return Limits(
        gpus=gpus, running=running, queued=queued, submits_per_minute=submits_per_minute, deadline_gpus=deadline_gpus,
        gpu_hours_per_month=gpu_hours_per_month,
    )  # fmt: skip


class Bound(NamedTuple):
    """A user or a group with limits."""

    name: str  # as people are told: `ann`, `group lab`
    limits: Limits  # what the user may have, or the members together

    def told(self) -> str:
        """What a job that is held back waits for."""
        gpus, running = self.limits.gpus, self.limits.running
        parts = ["" if gpus is None else count(gpus, "GPU"), "" if running is None else count(running, "running job")]
        return f"{self.name}'s limit of {' and '.join(filter(None, parts)) or 'nothing'}"


@dataclass(frozen=True, slots=True)
class GroupQuota:
    """Of a group."""

    limits: Limits  # of all its members together
    members: frozenset[str] | None = None  # their names; None for the members of the system's group of this name
    guaranteed_gpus: int = 0  # GPUs that they get back from whoever borrows them

    def __reduce__(self) -> tuple[object, ...]:
        """As that of `Limits`."""
        return GroupQuota, (self.limits, self.members, self.guaranteed_gpus)


class QosQuota(NamedTuple):
    """Of jobs that are served in one way."""

    limits: Limits  # of all of them together
    per_user: Limits  # of those of each user


POOLS_LABEL: Final = "pools"  # label that says which pools may start a job that named several, and why others may not
QOS_LABEL: Final = "qos"  # label that says how a job is served, where that is not the usual way


@dataclass(frozen=True, slots=True)
class Quotas:
    """Limits of all users."""

    default: Limits = field(default_factory=Limits)  # of each user without limits of their own
    users: Mapping[str, Limits] = field(default_factory=dict)  # of these users, in the place of the default
    groups: Mapping[str, GroupQuota] = field(default_factory=dict)  # of groups; they hold in addition to those of users
    qos: Mapping[str, QosQuota] = field(default_factory=dict)  # of ways to be served; they hold in addition to both

    def __reduce__(self) -> tuple[object, ...]:
        """As that of `Limits`."""
        return Quotas, (self.default, self.users, self.groups, self.qos)

    def of(self, user: str) -> Limits:
        """A user's own limits."""
        return self.users.get(user, self.default)

    def bounds(self, user: str, in_groups: Collection[str] = (), qos: str = "") -> tuple[Bound, ...]:
        """The limits that apply to a user's jobs: the user's own, those of groups by name, and of how they are served.

        `in_groups` are the groups of the system that the user is in.
        """
        found = [Bound(UNNAMED if user.isdecimal() and user not in self.users else user, self.of(user))]
        for name in sorted(self.groups):
            group = self.groups[name]
            if user in group.members if group.members is not None else name in in_groups:
                found.append(Bound(f"group {name}", group.limits))
        served = self.qos.get(qos)
        if served is not None:
            found += [Bound(f"qos {qos}", served.limits), Bound(f"{user} in qos {qos}", served.per_user)]
        return tuple(found)

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """Of groups, by name; none where nothing is guaranteed."""
        own = [(name, self.groups[name]) for name in sorted(self.groups)]
        return tuple(
            [
                Guarantee(name, group.guaranteed_gpus, group.members or frozenset())
                for name, group in own
                if group.guaranteed_gpus
            ]
        )

    @property
    def of_system(self) -> tuple[str, ...]:
        """Groups whose members the system knows."""
        return tuple([name for name, group in self.groups.items() if group.members is None])

    @property
    def hold(self) -> bool:
        """Whether jobs of any user may have to be held back."""
        return any(limits.holds for limits in self._all)

    @property
    def have_budgets(self) -> bool:
        """Whether any user or group has so many GPU-hours only."""
        return any(limits.gpu_hours_per_month is not None for limits in self._all)

    @property
    def _all(self) -> list[Limits]:
        groups = [group.limits for group in self.groups.values()]
        served = [limits for one in self.qos.values() for limits in one]
        return [self.default, *self.users.values(), *groups, *served]
