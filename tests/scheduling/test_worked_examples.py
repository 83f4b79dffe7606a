"""The example that each mechanism's page begins with is what the code does: a few jobs, two GPUs or four, the numbers.

Where a page's example is no longer true the test says what has become of it; that text is then put into the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from colane.core import ClusterState, Core
from colane.core.cluster.view import ClusterView
from colane.core.config import CoreConfig
from colane.core.events import Ended, Event, Launched, NodeRegistered, ProfileDeclared, Submitted
from colane.model.hardware import Node
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.job_spec import PromisedGpus
from colane.model.limits import GroupQuota, Limits, Quotas
from colane.model.placement import Placement
from colane.model.plan import ACTION_NAMES, placement_of
from colane.model.profile import Profile, ProfileKey, SetMeasurement, Value, ValueSource
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.perf.config import PerfConfig
from colane.scheduling.mechanisms.deadlines.seats import Allowed, promise
from colane.scheduling.mechanisms.elastic.share_out import envelope, share_out
from colane.scheduling.orders.price import shadow_price
from colane.scheduling.registry import create
from tests.core.worlds import GIB, make_node, make_profile
from tests.scheduling.machines import machine

from .life import step_time

MECHANISMS = Path(__file__).parents[2] / "src/colane/scheduling/mechanisms"
VERBS = {"start": "starts on", "stop": "is stopped", "park": "is parked", "move": "moves to", "resize": "goes on with"}


class Told:
    """A core whose processes come and go at once, and what it decided, a line each."""

    def __init__(self, policy: str, *nodes: Node, config: CoreConfig | None = None) -> None:
        exact = Beliefs(PerfConfig(persistent_factor=1.0, total_factor=1.0))
        plain = CoreConfig(opaque_after_s=0.0, protection_factor=0.0)
        self.core = Core(create(policy), ClusterState(exact), config or plain)
        self.lines: list[str] = []
        self.at(0.0, *map(NodeRegistered, nodes))

    def knows(self, *profiles: Profile) -> None:
        self.at(0.0, *map(ProfileDeclared, profiles))

    def submits(self, at_s: float, *specs: JobSpec) -> None:
        first = 1 + max(self.core.state.jobs, default=0)
        self.at(at_s, *(Submitted(JobId(number), spec) for number, spec in enumerate(specs, first)))

    def ends(self, at_s: float, number: int) -> None:
        self.lines.append(f"{at_s:3.0f} s  job {number} ends")
        self.at(at_s, self._gone(self.core.state.jobs[JobId(number)], at_s, "exited"))

    def at(self, at_s: float, *events: Event) -> None:
        """Let something happen, and whatever follows from it at once."""
        while True:
            outcome = self.core.step(events, at_s)
            assert outcome.rejected is None
            for decision in outcome.decisions:
                where = placement_of(decision.action)
                verb = VERBS[ACTION_NAMES[type(decision.action)]] + ("" if where is None else f" {placed(where)}")
                self.lines.append(f"{at_s:3.0f} s  job {decision.action.job} {verb}: {sentence_of(decision.reason)}")
            events = tuple(event for job in outcome.jobs for event in self._follows(job, at_s))
            if not events:
                return

    def waits(self, number: int, at_s: float) -> None:
        self.lines.append(f"{at_s:3.0f} s  job {number} waits: {sentence_of(self.core.why(JobId(number), at_s))}")

    def _follows(self, job: Job, at_s: float) -> Iterable[Event]:
        if job.state is JobState.ASSIGNED:
            yield Launched(job.id, job.attempt, 1, at_s)
        elif job.state is JobState.STOPPING:
            yield self._gone(job, at_s, "signalled")

    def _gone(self, job: Job, at_s: float, outcome: str) -> Event:
        how = Exit(0, None) if outcome == "exited" else Exit(None, 15)
        return Ended(job.id, job.attempt, outcome, how, at_s, at_s)


def placed(where: Placement) -> str:
    """As n0/0,1; with its lane where that is not the only one."""
    lane = f", lane {where.slots[0].lane}" if where.slots and where.slots[0].lane else ""
    return (
        ", ".join(
            node + ("/" if where.slots else "") + ",".join(str(gpu.number) for gpu in where.gpus if gpu.node == node)
            for node in where.nodes
        )
        + lane
    )


def steps(total: int, family: str = "f", **needs: object) -> JobSpec:
    """A job of so many steps, which take a second each where that is known; it may be stopped."""
    spec: dict[str, object] = {"name": family, "family": family, "steps_total": total, "preemptible": True, **needs}
    return JobSpec(**spec)  # type: ignore[arg-type]


def together(slowdown: float, family: str = "f") -> SetMeasurement:
    """Two jobs of a family on one GPU, each of which then takes so many times as long for a step."""
    key = ProfileKey(family, 64, 1, "V100")
    return SetMeasurement(
        keys=(key, key), sharing="mps", step_alone_s=(1.0, 1.0), step_together_s=(slowdown, slowdown), steps=(50, 50),
        delta=2 / slowdown, delta_general=2 / slowdown, at_s=0.0,
    )  # fmt: skip


def of_memory(family: str, persistent_gib: int, ephemeral_gib: int) -> Profile:
    measured = ValueSource.MEASURED
    return Profile(
        key=ProfileKey(family, None, 1, "V100"),
        persistent_bytes=Value(float(persistent_gib * GIB), measured),
        ephemeral_bytes=Value(float(ephemeral_gib * GIB), measured),
        step_s=Value(1.0, measured, 10),
    )


def price() -> list[str]:
    told = Told("colane", make_node("n0", 2))
    told.knows(step_time(1.0))
    told.submits(0.0, steps(400), steps(300))
    told.submits(100.0, steps(100))
    told.ends(200.0, 3)
    lines = [
        f"{behind} come after job {job}: a second of work on it saves {shadow_price(1, behind, 2)}"
        for behind, job in ((2, 3), (1, 2), (0, 1))
    ]
    return [*told.lines, "", *lines]


def sharing() -> list[str]:
    told = Told("colane", make_node("n0", 2))
    told.knows(make_profile("light", "V100", 0.3, 2 * GIB, step_s=1.0))
    for _ in range(50):  # certain enough to be gone by
        told.core.state.knowledge.learn_set(together(1.25, "light"))
    told.submits(0.0, steps(400, "light", batch_size=64), steps(300, "light", batch_size=64))
    told.submits(10.0, steps(350, "light", batch_size=64))
    return told.lines


def topology() -> list[str]:
    told = Told("topo-aware", machine())
    told.submits(0.0, *(JobSpec(name="j", family="f", batch_size=1, gpus=gpus) for gpus in (1, 2, 2)))
    told.waits(3, 1.0)
    return told.lines


def fairness() -> list[str]:
    told = Told("drf", make_node("n0", 2))
    for at_s, user in enumerate(("ann", "ann", "ann", "bob")):
        told.submits(at_s, JobSpec(name=user, family="f", user=user))
    told.ends(10.0, 1)
    return told.lines


def lanes() -> list[str]:
    told = Told("pack", make_node("n0", 1))
    told.knows(of_memory("large", 2, 8), of_memory("small", 1, 3), of_memory("huge", 4, 10))
    for at_s, family in enumerate(("large", "small", "huge")):
        told.submits(at_s, JobSpec(name=family, family=family))
    told.waits(3, 3.0)
    return told.lines


def preemption() -> list[str]:
    told = Told("srtf", make_node("n0", 2))
    told.knows(step_time(1.0))
    told.submits(0.0, steps(400), steps(300))
    told.submits(100.0, steps(50))
    told.ends(150.0, 3)
    return told.lines


def elastic() -> list[str]:
    resnet = envelope(enumerate([0, 2.4714, 2.8878, 3.5697, 4.037, 4.3713, 4.6175]), 6)
    inception = envelope(enumerate([0, 1.6247, 2.368, 2.9595, 3.2809, 3.4223, 3.4498]), 6)
    assert resnet is not None
    assert inception is not None
    jobs = {1: resnet, 2: inception, 3: resnet}
    shares = {bound: share_out(jobs, 6, bound) for bound in (1.0, 0.02)}
    return [
        f"variance_max {bound:4}: " + ", ".join(f"job {job} has {gpus}" for job, gpus in share.items())
        for bound, share in shares.items()
    ]


def cpu() -> list[str]:
    told = Told("coda", make_node("n0", 2, cores=12))
    training = JobSpec(name="training", family="t", cores=4, user="ann")
    told.submits(0.0, training, JobSpec(name="data", family="d", gpus=0, cores=8, abortable=True, user="bob"))
    told.submits(10.0, training)
    return told.lines


def deadlines() -> list[str]:
    told = Told("colane", make_node("n0", 2), config=CoreConfig(runs_at_once=True))
    told.submits(0.0, *(JobSpec(name="j", family="f", time_limit_s=limit_s) for limit_s in (100.0, 60.0)))
    spec = JobSpec(name="due", family="f", time_limit_s=50.0, deadline_s=130.0)
    promised = promise(ClusterView(told.core.state, 10.0), spec, Allowed())
    assert isinstance(promised, PromisedGpus)
    told.at(10.0, Submitted(JobId(3), spec, promised=promised))
    told.waits(3, 10.0)
    return told.lines


def guarantees() -> list[str]:
    limits = Quotas(groups={"ann": GroupQuota(Limits(), frozenset({"ann"}), 1)})
    told = Told("colane", make_node("n0", 2), config=CoreConfig(limits=limits, protection_factor=0.0))
    ann, bob = (JobSpec(name=user, family=user, user=user, preemptible=True) for user in ("ann", "bob"))
    told.submits(0.0, bob, bob, bob)
    told.submits(10.0, ann, ann)
    return told.lines


EXAMPLES: dict[str, Callable[[], list[str]]] = {
    one.__name__: one
    for one in (price, sharing, topology, fairness, lanes, preemption, elastic, cpu, deadlines, guarantees)
}


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_a_page_begins_with_an_example_that_is_true(mechanism: str) -> None:
    page = (MECHANISMS / mechanism / "README.md").read_text()
    first = re.search(r"^## ([^\n]*)\n.*?^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert first is not None
    assert first[1] == "Example"
    assert first[2] == "\n".join(EXAMPLES[mechanism]()) + "\n"


def test_every_mechanism_has_one() -> None:
    assert set(EXAMPLES) == {path.parent.name for path in MECHANISMS.glob("*/README.md")}
