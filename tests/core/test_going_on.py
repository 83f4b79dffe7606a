"""A plan that has more to do than fits leaves the rest to the next step, which is told what this one was."""

from __future__ import annotations

import pytest

from colane.core import ClusterState, Core
from colane.core.cluster.contents import News
from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView, UnfinishedError
from colane.core.core import EVENTS_A_STEP, IDLE_TURNS_MAX, UNFINISHED_MAX, WORK_A_PLAN
from colane.core.events import NodeRegistered, Outcome, Submitted
from colane.model.job import JobId, JobSpec
from colane.model.placement import Turns
from colane.model.plan import Plan, Start
from colane.model.reason import Reason, Why
from colane.perf.beliefs import Beliefs
from tests.core.worlds import make_node

POOL, SPEC = "default", JobSpec(name="job", family="f", batch_size=1)


class OneAtATime:
    """Starts so many jobs in a plan, and leaves those behind them to the next step."""

    name = "one-at-a-time"
    turns = Turns()
    min_runtime_before_preemption_s = float("inf")

    def __init__(self, starts: int = 1) -> None:
        self.starts = starts
        self.told: list[News | None] = []

    def plan(self, view: ClusterView) -> Plan:
        """See the class."""
        draft = Draft(view)
        self.told.append(view.news(POOL))
        for number, job in enumerate(map(view.job, list(view.queue(POOL)))):
            if number == self.starts:
                draft.go_on(POOL)
                break
            free = [gpu for gpu in draft.view.gpus.values() if draft.load(gpu.id).is_free]
            draft.start(job, free[:1], Reason(Why.FREE_GPU, {"gpu": str(free[0].id)}))
        draft.plan_for_news(POOL, view.now_s + 100.0)
        return draft.plan()


def of_three(policy: OneAtATime) -> tuple[Core, Outcome]:
    """Three jobs that come at once to eight GPUs, after one before them."""
    core = Core(policy, ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 8)), Submitted(JobId(9), SPEC)], 0.0)
    policy.told.clear()
    return core, core.step([Submitted(JobId(number), SPEC) for number in (1, 2, 3)], 5.0)


def started(outcome: Outcome) -> list[int]:
    return [one.action.job for one in outcome.decisions if isinstance(one.action, Start)]


def test_what_one_plan_leaves_the_next_step_does_at_once() -> None:
    core, outcome = of_three(OneAtATime())
    assert (started(outcome), outcome.wake_s, core.goes_on) == ([1], 5.0, True)
    outcome = core.step([], 5.0)
    assert (started(outcome), outcome.wake_s, core.goes_on) == ([2], 5.0, True)
    outcome = core.step([], 5.0)
    assert (started(outcome), outcome.wake_s, core.goes_on) == ([3], None, False)
    assert core.step([], 5.0).decisions == ()


def test_a_step_that_takes_in_much_leaves_deciding_to_the_next_which_takes_in_as_much_and_decides() -> None:
    core = Core(OneAtATime(starts=2), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 8))], 0.0)
    come = [Submitted(JobId(number), SPEC) for number in range(2 * EVENTS_A_STEP + 2)]
    outcome = core.step(come[::2], 5.0)
    assert (started(outcome), outcome.wake_s, core.goes_on) == ([], 5.0, True)
    assert started(core.step(come[1::2], 6.0)) == [0, 1]


def test_the_next_plan_is_told_what_this_one_was_and_what_it_has_changed() -> None:
    policy = OneAtATime()
    core, _ = of_three(policy)
    core.step([Submitted(JobId(4), SPEC)], 6.0)
    first, second = policy.told
    assert first is not None
    assert sorted(first.came) == [1, 2, 3]
    assert second is not None
    assert sorted(second.came) == [1, 2, 3, 4]
    assert [str(gpu) for gpu in second.gpus] == ["n0/1"]


def test_where_everything_was_looked_at_it_is_so_again() -> None:
    policy = OneAtATime()
    core = Core(policy, ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 4)), *(Submitted(JobId(n), SPEC) for n in (1, 2))], 0.0)
    core.step([], 0.0)
    assert policy.told == [None, None]


class LooksFirst(OneAtATime):
    """Looks at these jobs anew before it decides."""

    def __init__(self) -> None:
        super().__init__(starts=9)
        self.new = dict[JobId, None]()
        self.looked: list[int] = []

    def plan(self, view: ClusterView) -> Plan:
        """See the class."""
        while new := view.portion(self.new):
            self.looked.append(len(new))
        return super().plan(view)


@pytest.mark.parametrize("whole", [False, True])
def test_a_plan_that_has_much_to_look_at_is_given_up_and_the_next_goes_on_with_it(*, whole: bool) -> None:
    policy = LooksFirst()
    core, _ = of_three(policy)
    policy.told.clear()
    policy.new = {JobId(number): None for number in range(2 * WORK_A_PLAN + 1)}
    turns = [core.step([Submitted(JobId(4), SPEC)], 6.0, whole=whole)]
    while core.goes_on:
        turns.append(core.step([], 7.0))
    assert [started(turn) for turn in turns] == ([[4]] if whole else [[], [], [4]])
    assert policy.looked == ([2 * WORK_A_PLAN + 1] if whole else [WORK_A_PLAN, WORK_A_PLAN, 1])
    (told,) = policy.told
    assert told is not None
    assert (sorted(told.came), told.since_s) == ([4], 5.0)


def test_a_plan_that_has_done_more_than_it_may_goes_on_where_nothing_is_left_to_look_at() -> None:
    view = ClusterView(ClusterState(Beliefs()), 1.0, work_max=1)
    view.work(WORK_A_PLAN)
    assert view.portion(dict[JobId, None]()) == {}
    with pytest.raises(UnfinishedError):
        view.portion({JobId(1): None})


def test_what_is_forgotten_as_soon_as_it_is_known_is_looked_at_all_at_once_in_the_end() -> None:
    policy = LooksFirst()
    core, _ = of_three(policy)
    core.step([Submitted(JobId(4), SPEC)], 6.0)
    policy.new = {JobId(number): None for number in range(WORK_A_PLAN)}
    core.step([Submitted(JobId(5), SPEC)], 7.0)
    turns = 1
    while core.goes_on:
        policy.new = {JobId(number): None for number in range(100 * WORK_A_PLAN)}
        core.step([], 7.0)
        turns += 1
    assert turns <= UNFINISHED_MAX + 1


def test_a_batch_that_is_not_whole_yet_waits_for_the_rest() -> None:
    core, _ = of_three(OneAtATime())
    outcome = core.step([], 6.0, decides=False)
    assert (started(outcome), outcome.wake_s, core.goes_on) == ([], 6.0, True)
    assert started(core.step([], 7.0)) == [2]


def test_plans_that_decide_nothing_are_not_gone_on_with_for_ever() -> None:
    core, _ = of_three(OneAtATime(starts=0))
    turns = 1
    while core.goes_on:
        assert core.step([], 5.0).decisions == ()
        turns += 1
    assert turns == IDLE_TURNS_MAX  # job 9 had found nothing before
    core.step([Submitted(JobId(4), SPEC)], 6.0)  # something has happened
    assert core.goes_on
