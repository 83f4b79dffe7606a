"""Limits on what users and groups have running: which of their waiting jobs are held, so that none is ever exceeded.

What counts is what jobs use. A job uses its limits from the start of an attempt until its processes are gone, also
while it is suspended or parked, for it comes back without asking; one for which a plan keeps GPUs or makes room uses
them as well. One whose deadline is promised uses them from its submission. A job that only waits uses nothing, so a
job that waits for a busy GPU type holds up no other.

A waiting job is held (`HoldKind.LIMIT`) while it alone does not fit beside what is used. Jobs that do fit are in the
queue, all kinds of them: the policy chooses. As it may choose several that do not fit together, its plan is cut before
it is judged: actions are taken in order, and those for a job that does not fit any more are left out (`LimitBook.cut`);
the policy is asked again without these jobs. So it holds for any policy, and none has to know of it.

Of jobs that are equal but for name and time of arrival, no more are let go than could start at once, the oldest first,
so a thousand equal jobs of a user at the limit cost as much as one.

A budget is used by jobs with GPUs, while they hold them. Once it is used up, no further one starts until the next
month, and those that run go on to their end.

Fairness: a job that fits is never held for one that does not, so small jobs pass a large one under a limit that they
share; until that has waited for `passes_s`: from then on jobs behind it are held for it where only that limit keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from math import inf
from operator import attrgetter
from typing import Any, Final

from colane.core.cluster.queue import Line
from colane.core.eligibility import with_hold, without
from colane.core.usage import UsageBook, gpu_s_since, month_of
from colane.model.job import Job, JobId, JobSpec, JobState
from colane.model.limits import QOS_LABEL, Bound, Quotas
from colane.model.phases import Hold, HoldKind
from colane.model.plan import Action, Park, Plan, Resize, Start, Stop
from colane.model.reason import Reason, Why
from colane.model.words import count

QUEUED: Final = JobState.QUEUED
LIMIT: Final = HoldKind.LIMIT
NOTHING_USED: Final = (0, 0)

_UNLIKE: Final = frozenset({"name", "labels", "need"})
_all_but_names: Final[Callable[[JobSpec], tuple[Any, ...]]] = attrgetter(
    *[each.name for each in fields(JobSpec) if each.name not in _UNLIKE]
)


def gpus_counted(spec: JobSpec) -> int:
    """GPUs that a job counts for: as many as it may ever have."""
    return max(spec.gpus, spec.sizes[-1]) if spec.sizes else spec.gpus


class LimitAccount:
    """What is used of a user's or a group's limits, and the jobs that wait under them."""

    __slots__ = ("bound", "budget_s", "first", "gpus", "held", "jobs", "kinds", "spent_s")

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self.jobs = 0
        self.gpus = 0
        self.kinds: dict[EqualJobs, None] = {}
        hours = bound.limits.gpu_hours_per_month
        self.budget_s = inf if hours is None else 3600.0 * hours  # GPU seconds that may be used in this month
        self.spent_s = 0.0  # those that were when this was last looked at
        self.held = 0  # GPUs that were held then by jobs under it
        self.first: tuple[int, JobId] | None = None
        """Priority, sign turned, and id of the job for which those behind it are held."""

    def room(self, gpus: int, jobs_more: int = 0, gpus_more: int = 0) -> float:
        """How many more jobs of so many GPUs may run, beside so many more than do."""
        limits, most = self.bound.limits, inf
        if gpus and self.is_spent:
            return 0.0
        if limits.running is not None:
            most = float(limits.running - self.jobs - jobs_more)
        if limits.gpus is not None and gpus:
            most = min(most, float((limits.gpus - self.gpus - gpus_more) // gpus))
        return max(0.0, most)

    @property
    def is_spent(self) -> bool:
        """Whether its budget is used up."""
        return self.spent_s >= self.budget_s

    def told(self) -> str:
        """What a job that is held back waits for."""
        if self.is_spent:
            return f"{self.bound.name}'s budget of {self.bound.limits.gpu_hours_per_month} GPU-hours a month"
        return self.bound.told()


class EqualJobs:
    """Waiting jobs of one user that differ in name and arrival alone; the first few of them are let go."""

    __slots__ = ("accounts", "gpus", "line", "order", "released")

    def __init__(self, accounts: tuple[LimitAccount, ...], gpus: int, order: int) -> None:
        self.accounts = accounts
        self.gpus = gpus
        self.order = order
        self.line = Line()
        self.released: set[JobId] = set()

    def room(self) -> float:
        """How many of them could start at once."""
        return min([account.room(self.gpus) for account in self.accounts], default=inf)

    def is_kept_by(self, account: LimitAccount) -> bool:
        """Whether that account's limit, and no other, keeps the first of them from starting."""
        return (
            account.room(self.gpus) < 1
            and not (self.gpus and account.is_spent)
            and all(other.room(self.gpus) >= 1 for other in self.accounts if other is not account)
        )


class Allowance:
    """What may still be taken in one plan."""

    __slots__ = ("_book", "_taken", "_took")

    def __init__(self, book: LimitBook) -> None:
        self._book = book
        self._taken: dict[LimitAccount, tuple[int, int]] = {}
        self._took: set[JobId] = set()

    def take(self, job: Job) -> bool:
        """Let a job use its limits, if it fits; one that uses them already does."""
        if job.id in self._took or self._book.uses(job):
            return True
        gpus, accounts = gpus_counted(job.spec), self._book.accounts(job.spec)
        for account in accounts:
            if account.room(gpus, *self._taken.get(account, NOTHING_USED)) < 1:
                return False
        for account in accounts:
            jobs_taken, gpus_taken = self._taken.get(account, NOTHING_USED)
            self._taken[account] = jobs_taken + 1, gpus_taken + gpus
        self._took.add(job.id)
        return True


class LimitBook:
    """Keeps account of every live job, and says which waiting ones are to be held.

    Args:
        quotas: The limits.
        passes_s: See the module.
    """

    def __init__(self, quotas: Quotas, passes_s: float) -> None:
        self._quotas = quotas
        self._passes_s = passes_s
        self._groups: dict[str, tuple[str, ...]] = {}
        self._by_user: dict[tuple[str, str], tuple[LimitAccount, ...]] = {}
        self._accounts: dict[str, LimitAccount] = {}
        self._using: dict[JobId, int] = {}
        self._kept: dict[JobId, str] = {}
        self._let_go: set[JobId] = set()
        self._kinds: dict[tuple[Any, ...], EqualJobs] = {}
        self._kind_of: dict[JobId, tuple[Any, ...]] = {}
        self._changed: dict[EqualJobs, None] = {}
        self._touched: dict[LimitAccount, None] = {}
        self._look_s = -inf if quotas.have_budgets else inf
        self._looked_s = 0.0
        for name, group in quotas.groups.items() if quotas.have_budgets else ():
            self._account(Bound(f"group {name}", group.limits))

    @property
    def is_due(self) -> bool:
        """Whether another job may have to be held or let go."""
        return bool(self._changed or self._touched)

    # -- accounts

    def accounts(self, spec: JobSpec) -> tuple[LimitAccount, ...]:
        """Accounts whose limits may hold a job back."""
        return self._accounts_of(spec.user, spec.labels.get(QOS_LABEL, "") if self._quotas.qos else "")

    def _accounts_of(self, user: str, qos: str = "") -> tuple[LimitAccount, ...]:
        found = self._by_user.get((user, qos))
        if found is None:
            bounds = self._quotas.bounds(user, self._groups.get(user, ()), qos)
            found = tuple([self._account(bound) for bound in bounds if bound.limits.holds])
            self._by_user[user, qos] = found
        return found

    def spend(self, usage: UsageBook, jobs: Iterable[Job], now_s: float) -> float:
        """Count what is used of budgets; return when a job may next be held or let go for it, if nothing happens."""
        if now_s < self._look_s:
            return self._look_s
        (month_s, look_s), spent, held = month_of(now_s), dict[LimitAccount, float](), dict[LimitAccount, int]()
        for used in usage.used.values():
            for account in self._accounts_of(used.user):
                spent[account] = spent.get(account, 0.0) + used.in_month(month_s)
        for job in jobs:
            for account in self.accounts(job.spec) if job.gpus_held else ():
                spent[account] = spent.get(account, 0.0) + gpu_s_since(job, month_s, now_s)
                held[account] = held.get(account, 0) + job.gpu_count
        for account in self._accounts.values():
            was, account.spent_s, account.held = account.is_spent, spent.get(account, 0.0), held.get(account, 0)
            if account.is_spent is not was:
                self._touched[account] = None
            if account.held and not account.is_spent:
                look_s = min(look_s, now_s + max(1.0, (account.budget_s - account.spent_s) / account.held))
        self._look_s, self._looked_s = look_s, now_s
        return look_s

    def spent(self, spec: JobSpec) -> str:
        """Which budget is used up of which a job would use; empty where none is."""
        spent = [one for one in self.accounts(spec) if one.is_spent] if spec.gpus else []
        return f"{spent[0].told()} is used up ({spent[0].spent_s / 3600:.1f} since the month began)" if spent else ""

    def budgets(self, now_s: float, user: str | None = None) -> list[tuple[str, float, float]]:
        """Of each budget its name, its GPU seconds, and those used by now; those that a user's jobs use, or all."""
        accounts = self._accounts.values() if user is None else self._accounts_of(user)
        passed_s = now_s - self._looked_s
        return sorted(
            [
                (one.bound.name, one.budget_s, one.spent_s + one.held * passed_s)
                for one in accounts
                if one.budget_s < inf
            ]
        )

    def _account(self, bound: Bound) -> LimitAccount:
        account = self._accounts.get(bound.name)
        if account is None:
            account = self._accounts[bound.name] = LimitAccount(bound)
        return account

    def in_groups(self, user: str, groups: tuple[str, ...], jobs: Iterable[Job]) -> None:
        """The groups of the system a user is in by now; the user's jobs are counted anew."""
        if groups == self._groups.get(user, ()):
            return
        his = [job for job in jobs if job.spec.user == user]
        for job in his:
            self.moved(job, None)
        self._groups[user] = groups
        self._by_user = {key: found for key, found in self._by_user.items() if key[0] != user}
        for job in his:
            self.moved(None, job)

    def uses(self, job: Job) -> bool:
        """Whether a job uses its limits."""
        return job.id in self._using

    def reached(self, spec: JobSpec, coming: Sequence[JobSpec] = ()) -> str:
        """Which limit keeps a job from starting beside what is used and others that come; empty where none does."""
        mine = [each for each in coming if each.user == spec.user]
        gpus = sum([gpus_counted(each) for each in mine])
        for account in self.accounts(spec):
            if account.room(gpus_counted(spec), len(mine), gpus) < 1:
                return f"{account.told()} is {'used up' if account.is_spent else 'reached'}"
        return ""

    def moved(self, old: Job | None, new: Job | None) -> None:
        """A job has come, changed or gone."""
        job = new or old
        if self._look_s < inf and (old.gpus_held if old else ()) != (new.gpus_held if new else ()):
            self._look_s = -inf
        if job is None or (old is not None and new is not None and self._is_known(old, new)):
            return
        if new is None or new.state is not QUEUED or new.holds:
            self._kept.pop(job.id, None)
        self._count(job, 0)
        self._leave(job.id)
        if new is not None:
            self._stand(new)

    def _is_known(self, old: Job, new: Job) -> bool:
        """Whether nothing has changed that counts, or what has is noted at once: a kind's job is held, or let go."""
        if old.effective is not new.effective or old.attempt != new.attempt:
            return False
        if (old.placement is None) != (new.placement is None) or (old.state is QUEUED) != (new.state is QUEUED):
            return False
        if old.holds == new.holds:
            return True
        key = self._kind_of.get(new.id)
        if key is None or not _waits(new):
            return False
        released = self._kinds[key].released
        if new.holds:
            released.discard(new.id)
        else:
            released.add(new.id)
        return True

    def _stand(self, job: Job) -> None:
        if job.placement is not None or job.id in self._kept or job.constraints.promised is not None:
            self._count(job, 1)
        elif _waits(job):
            self._wait(job)

    def _count(self, job: Job, jobs: int) -> None:
        """Let a job use its limits, or not."""
        was = self._using.pop(job.id, None)
        if jobs:
            self._using[job.id] = gpus_counted(job.spec)
        gpus = self._using.get(job.id, 0) - (was or 0)
        jobs -= was is not None
        if jobs or gpus:
            for account in self.accounts(job.spec):
                account.jobs += jobs
                account.gpus += gpus
                self._touched[account] = None

    def _wait(self, job: Job) -> None:
        """A job that has run before is of a kind of its own: policies may see more of it than its needs."""
        accounts = self.accounts(job.spec)
        key = (*_all_but_names(job.effective), job.id if job.attempt else 0, accounts)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = EqualJobs(accounts, gpus_counted(job.spec), -job.spec.priority)
            for account in accounts:
                account.kinds[kind] = None
        kind.line.add(job.id)
        if not job.holds:
            kind.released.add(job.id)
        self._kind_of[job.id] = key
        self._changed[kind] = None

    def _leave(self, job: JobId) -> None:
        key = self._kind_of.pop(job, None)
        if key is None:
            return
        kind = self._kinds[key]
        kind.line.remove(job)
        kind.released.discard(job)
        self._changed[kind] = None
        if kind.line.is_empty:
            del self._kinds[key]
            self._changed.pop(kind, None)
            for account in kind.accounts:
                account.kinds.pop(kind, None)
                if account.first is not None:  # perhaps one of these was it
                    self._touched[account] = None

    # -- which jobs are held

    def review(self, jobs: Mapping[JobId, Job], now_s: float) -> list[Job]:
        """Jobs whose hold is to change, with it changed; a job that is let go comes with none."""
        kinds, accounts = dict(self._changed), dict(self._touched)
        for account in self._touched:
            kinds.update(account.kinds)
        for kind in self._changed:
            accounts.update(dict.fromkeys(kind.accounts))
        left = list(accounts)
        while left:
            account = left.pop()
            if self._look_for_first(account, jobs, now_s):
                kinds.update(account.kinds)
                left += [other for kind in account.kinds for other in kind.accounts if other is not account]
        changed: list[Job] = []
        for kind in kinds:
            changed += self._release(kind, jobs, is_new=kind in self._changed)
        self._changed, self._touched = {}, {}
        return changed

    def _look_for_first(self, account: LimitAccount, jobs: Mapping[JobId, Job], now_s: float) -> bool:
        """Find the job for which those behind it are held; whether that is another than before."""
        first: tuple[int, JobId] | None = None
        for kind in account.kinds:
            oldest = kind.line.first
            if oldest is None or (first is not None and first < (kind.order, oldest)):
                continue
            job = jobs[oldest]
            since_s = job.submit_s if job.since_s is None else job.since_s
            if since_s + self._passes_s <= now_s and kind.is_kept_by(account):
                first = kind.order, oldest
        was, account.first = account.first, first
        return first != was

    def _release(self, kind: EqualJobs, jobs: Mapping[JobId, Job], *, is_new: bool) -> list[Job]:
        """Let as many of a kind go as could start at once, the oldest first; hold the others."""
        oldest, room = kind.line.first, kind.room()
        if oldest is None:
            return []
        for account in kind.accounts:
            if account.first is not None and account.first < (kind.order, oldest):
                room = 0.0
        most = len(kind.line) if room >= len(kind.line) else int(room)
        if most == len(kind.released) and (most == 0 or not is_new):
            return []
        released = set(islice(kind.line, most))
        freed = [jobs[job].with_holds(without(jobs[job], LIMIT)) for job in sorted(released - kind.released)]
        full = [account for account in kind.accounts if account.room(kind.gpus) < most + 1]
        hold = Hold(LIMIT, (full or kind.accounts)[0].told()) if kind.accounts else Hold(LIMIT)
        held = [jobs[job].with_holds(with_hold(jobs[job], hold)) for job in sorted(kind.released - released)]
        return held + freed

    def reason(self, job: Job) -> Reason:
        """Why a job that a limit holds does not start: the limit, or the job that goes before it under the limit."""
        gpus, accounts = gpus_counted(job.spec), self.accounts(job.spec)
        for account in accounts:
            if account.room(gpus) < 1:
                return _reached(account, gpus)
        firsts = [account.first for account in accounts if account.first is not None]
        key = self._kind_of.get(job.id)
        oldest = None if key is None else self._kinds[key].line.first
        ahead = min(firsts)[1] if firsts else oldest
        return Reason(Why.SUBMITTED) if ahead is None or ahead == job.id else Reason(Why.BEHIND, {}, (ahead,))

    # -- plans

    def allowance(self) -> Allowance:
        """What a plan may take."""
        return Allowance(self)

    def cut(self, plan: Plan, jobs: Mapping[JobId, Job]) -> tuple[Plan, tuple[JobId, ...]]:
        """A plan without what is done for jobs that do not fit, and these jobs.

        GPUs that it keeps for a job without doing anything for it now are those of an overdue job, or come free by an
        earlier plan: such a job goes before all for which something is done. Members of a set start together or not.
        """
        allowance, refused = Allowance(self), dict[JobId, None]()
        targets = [_for_whom(action) for action in plan.actions]
        made_for = set(targets)
        for kept in plan.holds:
            if kept not in made_for and kept in jobs and not allowance.take(jobs[kept]):
                refused[kept] = None
        for target in targets:
            job = None if target is None else jobs.get(target)
            if job is not None and not allowance.take(job):
                refused[job.id] = None
        if not refused:
            return plan, ()
        sets = {
            (jobs[job].spec.measurement_group, jobs[job].effective.sharing_domain)
            for job in refused
            if jobs[job].spec.measurement_group
        }
        for target in targets if sets else ():
            if (
                target is not None
                and (jobs[target].spec.measurement_group, jobs[target].effective.sharing_domain) in sets
            ):
                refused[target] = None
        actions = [action for action, target in zip(plan.actions, targets, strict=True) if target not in refused]
        return _with_actions(plan, tuple(actions)), tuple(refused)

    def begin(self) -> None:
        """Another step begins: any job may have GPUs kept for it again."""
        self._let_go.clear()

    def keep(self, plan: Plan, pools: Iterable[str], refused: Iterable[JobId], jobs: Mapping[JobId, Job]) -> None:
        """Note the jobs a policy keeps GPUs for in the pools it was asked about: they use limits until it does not.

        In one step no job comes to use them so a second time, so that a policy is not asked for ever.

        Args:
            plan: What it wants.
            pools: About which it was asked.
            refused: Jobs that did not fit.
            jobs: All live jobs.
        """
        left_out, asked = set(refused), set(pools)
        now = [job for job in plan.holds if job not in left_out]
        for job in [job for job, pool in self._kept.items() if pool in asked and job not in now]:
            del self._kept[job]
            self._let_go.add(job)
            self._stand_anew(jobs.get(job))
        for job in now:
            waiting = jobs.get(job)
            if waiting is not None and waiting.is_waiting and job not in self._kept and job not in self._let_go:
                self._kept[job] = waiting.spec.pool
                self._stand_anew(waiting)

    def _stand_anew(self, job: Job | None) -> None:
        if job is not None:
            self._count(job, 0)
            self._leave(job.id)
            self._stand(job)


def _waits(job: Job) -> bool:
    """Whether nothing keeps a job from starting, unless it be a limit."""
    return job.state is QUEUED and all(hold.kind is LIMIT for hold in job.holds)


def _for_whom(action: Action) -> JobId | None:
    """The waiting job that an action starts, or for which it makes room."""
    if isinstance(action, Start):
        return action.job
    return action.for_job if isinstance(action, (Stop, Park, Resize)) else None


def _with_actions(plan: Plan, actions: tuple[Action, ...]) -> Plan:
    return Plan(
        plan.based_on, actions, plan.waits, plan.class_waits, plan.rest, plan.replan, plan.holds,
        serves_cpu_only=plan.serves_cpu_only, reserved=plan.reserved,
    )  # fmt: skip


def _reached(account: LimitAccount, gpus: int) -> Reason:
    """Which limit is reached, in Slurm's word for it."""
    limits, is_group = account.bound.limits, account.bound.name.startswith(("group ", "qos "))
    if account.is_spent and gpus:
        used = f"{account.spent_s / 3600:.1f} GPU-hours"
        return Reason(Why.BUDGET, {"by": account.told(), "used": used})
    if limits.running is not None and account.jobs >= limits.running:
        word = "QOSGrpJobsLimit" if is_group else "QOSMaxJobsPerUserLimit"
        used, need = count(account.jobs, "job"), "one more"
    else:
        word = "QOSGrpGRES" if is_group else "QOSMaxGRESPerUser"
        used, need = count(account.gpus, "GPU"), f"{gpus} more"
    return Reason(Why.LIMIT, {"word": word, "by": account.bound.told(), "used": used, "need": need})


def over(spec: JobSpec, quotas: Quotas) -> str | None:
    """Why a job could never be let go under these limits; None where it could."""
    gpus = gpus_counted(spec)
    for bound in quotas.bounds(spec.user, (), spec.labels.get(QOS_LABEL, "")):
        if bound.limits.gpus is not None and gpus > bound.limits.gpus:
            return f"asks for {count(gpus, 'GPU')}, above {bound.told()}"
        if bound.limits.running == 0:
            return f"{bound.name} may run no jobs"
    return None
