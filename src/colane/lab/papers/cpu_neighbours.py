"""Training beside a job that uses all memory bandwidth (paper D, figure 7), with and without the eliminator.

How much each model loses is an input: the paper draws it and states three properties. What is found is what becomes
of that loss once jobs without GPUs are held back.
"""

from __future__ import annotations

from typing import NamedTuple

from colane.cpu.contention import ContentionConfig
from colane.lab.papers.claims import Claim, Figure, Sense, Stated, Trait, ours
from colane.lab.papers.cpu_month import CODA, HOUR_S, cluster, setups
from colane.lab.papers.cpu_world import BEST_CORES, CORE_BANDWIDTH_RATIO, HEAVY, CpuMonthWorld, best_cores
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.run import Inputs, simulate
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.job import JobId, JobSpec

INTERVAL_S = 10.0
"""The paper's."""

RUN_S, NEIGHBOUR_FROM_S = 2 * HOUR_S, 900.0
"""How long training takes alone, and when the other job starts: its undisturbed speed is known by then."""

SEVERE_PERCENT = 10.0
"""A loss from here on is severe; chosen, the paper says no number."""


class Loss(NamedTuple):
    """Part of its speed, in percent, that a model loses while the other job is there."""

    alone: float
    held_back: float


def loss_percent(model: str, neighbour_from_s: float, *, eliminates: bool) -> float:
    """What a model on one GPU of a node loses beside a job whose cores use all of its bandwidth."""
    training = JobSpec(name=model, family=model, gpus=1, cores=best_cores(model, 1))
    heat = JobSpec(name="heat", family="heat", gpus=0, cores=round(1 / CORE_BANDWIDTH_RATIO), labels={HEAVY: "heavy"})
    jobs = (
        TraceJob(id=JobId(1), submit_s=0.0, spec=training, duration_s=RUN_S),
        TraceJob(id=JobId(2), submit_s=neighbour_from_s, spec=heat, duration_s=10 * RUN_S),
    )
    world = CpuMonthWorld()
    given = Inputs(
        cluster=Cluster("node", cluster().nodes[:1]), workload=Workload(name="neighbours", jobs=jobs), world=world,
        policy=setups()[CODA].policy, driver=DriverConfig(bandwidth=world),
        contention=ContentionConfig.of(INTERVAL_S) if eliminates else None,
    )  # fmt: skip
    rows = simulate(given).ledger.rows
    end_s = dict(zip(rows.id, rows.end_s, strict=True))[1]
    return 100 * (1 - (RUN_S - neighbour_from_s) / (end_s - neighbour_from_s))


def contention_claim() -> Claim:
    """Claim D-n: figure 7, whose losses are an input, and what the eliminator leaves of them."""
    found = {
        model: Loss(*(loss_percent(model, NEIGHBOUR_FROM_S, eliminates=which) for which in (False, True)))
        for model in BEST_CORES
    }
    given = "an input here"
    lost = {model: loss.alone for model, loss in found.items()}
    worst = max(found, key=lambda model: found[model].held_back)
    vision = {model: lost[model] for model in ("alexnet", "vgg16", "inception3", "resnet50")}
    at_once = loss_percent(worst, 0.0, eliminates=True)
    stated: tuple[Stated, ...] = (
        Figure("language models lose", 50, min(lost["bi-att-flow"], lost["transformer"]), "%", "figure 7",
               printed="50%", bound=Sense.AT_LEAST, unjudged=given),
        Trait("DeepSpeech loses more than Wavenet", lost["deepspeech"] > lost["wavenet"],
              f"{lost['deepspeech']:.1f} %, {lost['wavenet']:.1f} %", "figure 7", unjudged=given),
        Trait("of vision models AlexNet alone loses", [name for name, part in vision.items() if part] == ["alexnet"],
              f"{lost['alexnet']:.1f} %", "figure 7", unjudged=given),
        Trait("no model is sensitive to the last-level cache", None, where="figure 7",
              unjudged="nothing here has a cache to contend for"),
        Trait("no training job is severely degraded once the eliminator acts",
              found[worst].held_back < SEVERE_PERCENT,
              f"at most {found[worst].held_back:.1f} % ({worst}; {found[worst].alone:.1f} % without)", "section V"),
        ours("beside a job that was there first", f"{worst} loses {at_once:.1f} % with the eliminator"),
    )  # fmt: skip
    note = (
        "The losses of figure 7 go in, so that meeting them says nothing. Each model was run for two hours beside a "
        f"job that uses all bandwidth from the 15th minute on: the eliminator leaves {found[worst].held_back:.1f} % of "
        f"at most {max(lost.values()):.1f} %. Beside one that is there before the first step it leaves all of it "
        f"({at_once:.1f} %), as a speed that was never seen undisturbed is not known to have dropped."
    )
    world = "one node of the month; losses are made of the paper's text"
    return Claim("D-n", "training beside a job that uses all memory bandwidth", stated, world, note)
