"""A user's policy, asked so that its failing does no harm.

While the service runs, a policy that raises, takes too long or returns nonsense decides nothing in that pass: jobs that
run go on, those that wait wait, with a reason that says so. One that took too long is left alone for ten times its
budget, so that the service spends a tenth of its time with it at most.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from math import inf
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Final

from colane.core.cluster.view import ENDLESS, ClusterView
from colane.core.events import RejectedPlan
from colane.core.policy import Policy
from colane.model.placement import Turns
from colane.model.plan import Plan
from colane.model.reason import Reason, Why
from colane.policyfiles.budget import OverdueError, within
from colane.policyfiles.load import create, is_file, path_of, said, where_in
from colane.policyfiles.shape import flaw_of
from colane.policyfiles.shown_jobs import ShownJobs
from colane.scheduling import registry

BUDGET_S: Final = 5.0
"""What a pass of a user's policy may take, where no other budget is given."""

REST_BUDGETS: Final = 10.0
"""An overdue policy is not asked for so many budgets."""

log = logging.getLogger(__name__)


def budget_s(policies: Iterable[str], given_s: float | None) -> float:
    """Return what a pass of a user's own policy may take.

    Raises ValueError: it is given, and no policy is the user's own.
    """
    if given_s is None:
        return BUDGET_S
    if not any(map(is_file, policies)):
        raise ValueError("bounds a policy of your own (--policy FILE.py:NAME), which none here is")
    return given_s


class PolicyFaultError(Exception):
    """A user's policy has failed to plan; one line, with the file's own.

    Attributes:
        kind: The same for failures of one kind at one place.
        overdue: Where it took too long; its `left` may still run.
    """

    def __init__(self, message: str, kind: str = "", overdue: OverdueError | None = None) -> None:
        super().__init__(message)
        self.kind = kind or message
        self.overdue = overdue

    def __reduce__(self) -> tuple[type[PolicyFaultError], tuple[str, str]]:
        """Processes tell each other the words alone."""
        return type(self), (str(self), self.kind)


class StrictPolicy:
    """A user's policy whose first failure is an error: for simulations.

    Args:
        policy: The user's own.
        file: Where it was loaded from.
        budget_s: What a pass may take.

    Attributes:
        name: The user's name for it.
        turns: How jobs of one lane take turns.
        min_runtime_before_preemption_s: A job is not stopped before it has run this long.
        awaits_first_steps: Whether more may be decided once a job makes its first step; not where it does not say.
    """

    def __init__(self, policy: Policy, file: Path, budget_s: float = BUDGET_S) -> None:
        self._policy = policy
        self._budget_s = budget_s
        self._file = file
        self.name = policy.name
        turns = getattr(policy, "turns", None)
        self.turns = turns if isinstance(turns, Turns) else Turns()
        self.min_runtime_before_preemption_s: float = getattr(policy, "min_runtime_before_preemption_s", inf)
        self.awaits_first_steps = bool(getattr(policy, "awaits_first_steps", False))

    def plan(self, view: ClusterView) -> Plan:
        """What the policy plans.

        Raises PolicyFaultError: it raised, took too long, returned no plan, or wrote into what it was shown.
        """
        view.work_left = ENDLESS  # it may not know of giving up
        shown = ShownJobs(view)
        try:
            plan = within(self._budget_s, lambda: self._policy.plan(view))
            flaw = flaw_of(plan, view.now_s)
        except OverdueError as overdue:
            line = _line(overdue.frame, str(self._file))
            message = f"{self._file}{line}: plan(view) took longer than {self._budget_s:g} s"
            raise PolicyFaultError(message, f"overdue {self._file}", overdue) from None
        except BaseException as error:
            where = f"{self._file}{where_in(self._file, error)}"
            raise PolicyFaultError(f"{where}: {said(error)}", f"{where}: {type(error).__name__}") from error
        finally:
            written = shown.written(self._file)
        if written:
            raise PolicyFaultError(f"{self._file}{written}", f"{self._file}{written.partition(' to ')[0]}")
        if flaw:
            raise PolicyFaultError(f"{self._file}: {flaw}")
        return plan


class GuardedPolicy:
    """A user's policy in a service that goes on whatever the policy does.

    Args:
        strict: The user's own, held to its time.
        rest_s: An overdue one is not asked for so long.
        clock: Steady seconds.

    Attributes:
        name: The user's name for it.
        turns: How jobs of one lane take turns.
        min_runtime_before_preemption_s: A job is not stopped before it has run this long.
        problem: Why it decides nothing now, in one line; empty while it plans well.
    """

    def __init__(self, strict: StrictPolicy, rest_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._strict = strict
        self._rest_s = rest_s
        self._clock = clock
        self.name = strict.name
        self.turns = strict.turns
        self.min_runtime_before_preemption_s = strict.min_runtime_before_preemption_s
        self.problem = ""
        self._told = ""
        self._asked = False
        self._fault: PolicyFaultError | None = None
        self._rests_until_s = -inf
        self._left: threading.Thread | None = None

    def plan(self, view: ClusterView) -> Plan:
        """What the policy plans; nothing, and why, where it fails. Asking why waits for no second failure."""
        if self._is_resting or (view.explain is not None and self.problem):
            return self._nothing(view, self.problem or str(self._fault))
        try:
            plan = self._strict.plan(view)
        except PolicyFaultError as fault:
            self._rest(fault)
            self._fault = fault
            self._asked = True
            return self._nothing(view, str(fault))
        self._asked = self._asked or view.explain is None
        return plan

    def settle(self, rejected: RejectedPlan | None) -> None:
        """Judge the pass that is over, once the core has judged the plan; tell the log of every change."""
        if not self._asked:
            return
        problem, kind = "", ""
        if self._fault is not None:
            problem, kind = str(self._fault), self._fault.kind
        elif rejected is not None:
            kind = f"its plan was refused: {rejected.flaws[0].code}"
            problem = f"{kind}: {rejected.flaws[0].detail}"
        self._asked, self._fault, self.problem = False, None, problem
        if kind != self._told:
            self._told = kind
            wrong = f"{problem}; jobs that run go on, no job starts until it plans again"
            log.warning("policy %s: %s", self.name, wrong if problem else "plans again")

    @property
    def _is_resting(self) -> bool:
        return self._clock() < self._rests_until_s or (self._left is not None and self._left.is_alive())

    def _rest(self, fault: PolicyFaultError) -> None:
        if fault.overdue is not None:
            self._rests_until_s = self._clock() + self._rest_s
            self._left = fault.overdue.left

    def _nothing(self, view: ClusterView, problem: str) -> Plan:
        reason = Reason(Why.POLICY_FAILED, {"policy": self.name, "problem": problem})
        return Plan(view.version, rest=dict.fromkeys(view.pools, reason))


def strict(text: str, budget_s: float = BUDGET_S, *, as_published: bool = True) -> Policy:
    """A policy for a simulation: as published, where nothing else is said; a user's own is held to its time.

    The first failure of a user's own is an error. Raises UnknownPolicyError: there is none such.
    """
    policy = create(text, as_published=as_published)
    return StrictPolicy(policy, path_of(text), budget_s) if is_file(text) else policy


def guarded(text: str, budget_s: float = BUDGET_S, max_wait_s: float | None = None) -> Policy:
    """A policy for a service: a user's own may fail, and a registered one lets no job wait for long.

    Args:
        text: Its name, or its file and name there.
        budget_s: What a pass of a user's own may take.
        max_wait_s: A job that has waited longer is overdue, unless the text says otherwise; None as the policy has it.

    Raises:
        UnknownPolicyError: There is none such.
    """
    if not is_file(text):
        return registry.for_service(text) if max_wait_s is None else registry.bounded(text, max_wait_s)
    policy = create(text)
    return GuardedPolicy(StrictPolicy(policy, path_of(text), budget_s), REST_BUDGETS * budget_s)


def _line(frame: FrameType | None, file: str) -> str:
    """The line of a file in which a call was, as ` line 12`."""
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return f" line {frame.f_lineno}" if frame is not None else ""
