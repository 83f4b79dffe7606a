"""What carrying out a plan teaches counts in the same step, not at the next event; what is no news asks no policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from colane.core import ClusterState, Core
from colane.core.cluster.view import ClusterView
from colane.core.events import Launched, NodeRegistered, ProfileDeclared, Progressed, Submitted
from colane.model.job import JobId, JobSpec
from colane.model.placement import Turns
from colane.model.plan import Plan
from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from colane.model.progress import Progress
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import preset

from .worlds import GIB, make_node, make_profile

KEY = ProfileKey("light", 64, 1, "V100")


@dataclass
class Watched:
    """Colocate, noting what it believed of the light family's step time each time it was asked."""

    name: str = "watched"
    turns: Turns = field(default_factory=Turns)
    min_runtime_before_preemption_s: float = inf
    believed_s: list[float] = field(default_factory=list)

    def plan(self, view: ClusterView) -> Plan:
        """See the class."""
        profile = view.beliefs.profiles[KEY]
        self.believed_s.append(profile.step_s.value if profile.step_s else 0.0)
        return preset("colocate").plan(view)


def run_alone_then_join(steps: int) -> tuple[list[float], Profile]:
    """Job 1 makes steps of 1 s alone, job 2 waits for a GPU of its own, job 3 joins job 1: what was believed then."""
    policy = Watched()
    core = Core(policy, ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 1)), ProfileDeclared(make_profile("light", "V100", 1e6, GIB))], 0.0)
    spec = JobSpec(name="j", family="light", batch_size=64)
    core.step([Submitted(JobId(1), spec)], 1.0)
    core.step([Submitted(JobId(2), JobSpec(name="k", family="unknown"))], 1.0)
    core.step([Launched(JobId(1), 1, 7, 1.0)], 1.0)
    for done in (1, 1 + steps):
        sample = Progress(at_s=1.0 + done, steps=done, first_step_s=2.0, last_step_s=1.0 + done, step_mean_s=1.0)
        core.step([Progressed(JobId(1), 1, sample)], 1.0 + done)
    policy.believed_s.clear()
    core.step([Submitted(JobId(3), spec)], 60.0)
    return policy.believed_s, core.state.beliefs.profiles[KEY]


def test_a_job_alone_has_taught_its_step_time_before_another_joins_it() -> None:
    asked, profile = run_alone_then_join(40)
    assert profile.step_s is not None
    assert profile.step_s.source is ValueSource.MEASURED
    assert asked == [profile.step_s.value]
    assert profile.step_s.value > 0.1


def test_nothing_learnt_nothing_asked_again() -> None:
    asked, _ = run_alone_then_join(2)
    assert asked == [0.1]


def asked_while_stepping(step_s: float, steps: int) -> tuple[list[float], int]:
    """A job of a kind known to take 1 s steps, by 1,000 of them, makes so many of so long, and another waits.

    What was believed whenever the policy was asked for it, and how many lessons there were.
    """
    policy = Watched()
    core = Core(policy, ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 1))], 0.0)
    core.step([ProfileDeclared(Profile(key=KEY, step_s=Value(1.0, ValueSource.MEASURED, 1_000, "steps")))], 0.0)
    core.step([Submitted(JobId(1), JobSpec(name="j", family="light", batch_size=64))], 1.0)
    core.step([Submitted(JobId(2), JobSpec(name="k", family="unknown"))], 1.0)
    core.step([Launched(JobId(1), 1, 7, 1.0)], 1.0)
    core.step([Progressed(JobId(1), 1, sample_of(1, step_s))], 1.0 + step_s)
    policy.believed_s.clear()
    before = core.state.beliefs.updates
    for done in range(1, steps, 10):
        core.step([Progressed(JobId(1), 1, sample_of(done, step_s))], 1.0 + done * step_s)
    return policy.believed_s, core.state.beliefs.updates - before


def sample_of(done: int, step_s: float) -> Progress:
    """A job that began at 1 s has made so many steps."""
    at_s = 1.0 + done * step_s
    return Progress(at_s=at_s, steps=done, first_step_s=1.0 + step_s, last_step_s=at_s, step_mean_s=step_s)


def test_lessons_that_move_no_belief_ask_no_policy() -> None:
    asked, lessons = asked_while_stepping(1.0, 700)
    assert lessons >= 5
    assert asked == []


def test_lessons_that_move_a_belief_by_little_each_ask_once_they_add_up() -> None:
    asked, lessons = asked_while_stepping(1.05, 700)
    assert lessons >= 5
    assert len(asked) == 1
    assert 1.01 < asked[0] < 1.02
