"""Paper C's utility and its placer by bipartition, against the authors' numbers and the exact placer."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from colane.lab.papers.claims import Claim, Figure, Origin, Sense, ours
from colane.model import topologies
from colane.model.job import CommPattern
from colane.perf.topology import Comm, excess, flat, shape_of
from colane.perf.utility import job_utility, system_utility
from colane.scheduling.mechanisms.topology.drb import drb
from colane.scheduling.mechanisms.topology.node_fit import Question, exact

MASKS = 400
"""Random sets of free GPUs for each preset."""

GOLDEN = (1.0000, 0.2534, 0.1861, 0.1202, 0.3612)


def golden_utilities() -> tuple[float, ...]:
    """Two GPUs on one socket and across, each alone and beside a neighbour of ratio 0.95; across for the system."""
    across = excess(flat((0, 0, 1, 1)), (0, 2), Comm())
    ratio = 0.95
    return (
        job_utility(0.0, 0.0), job_utility(across, 0.0), job_utility(0.0, ratio), job_utility(across, ratio),
        system_utility(across, 0.0, 0.5),
    )  # fmt: skip


def golden_claim() -> Claim:
    """Utilities of the authors' code."""
    found = golden_utilities()
    stated = tuple(
        Figure(name, golden, value, "", "HiEST/gpu-topo-aware", Origin.CODE, ratio=0.0, slack=5e-5, digits=4)
        for name, golden, value in zip(GOLDEN_NAMES, GOLDEN, found, strict=True)
    )
    return Claim("C-utility", "utilities on a machine of two sockets with two GPUs each", stated, "arithmetic")


GOLDEN_NAMES = (
    "at its best", "across sockets", "beside a neighbour", "across sockets beside a neighbour", "of the system"
)  # fmt: skip


def drb_losses(preset: str, masks: int = MASKS, seed: int = 0) -> list[float]:
    """1 - utility of DRB / utility of the exact placer, over random free GPUs, sizes and job graphs of a preset."""
    shape, random = shape_of(topologies.PRESETS[preset]()), Random(seed)  # noqa: S311 - a sample, no secret
    losses = []
    for _ in range(masks):
        free = random.randrange(1, 1 << shape.gpus)
        ranks = random.randint(1, free.bit_count())
        question = Question(shape, free, (), ranks, Comm(random.choice(tuple(CommPattern))))
        losses.append(1 - drb(question)[0].system / exact(question)[0].system)
    return losses


def drb_claims() -> Iterator[Claim]:
    """Never better than exact, and little worse."""
    for preset in topologies.PRESETS:
        losses = drb_losses(preset)
        mean = sum(losses) / len(losses)
        bound = 0.05
        stated = (
            Figure("mean", bound, mean, "", "", Origin.OURS, bound=Sense.AT_MOST, digits=4),
            Figure("never better than the exact placer", 0, min(losses), "", "", Origin.OURS, bound=Sense.AT_LEAST,
                   slack=1e-9, digits=4),
            ours("at most", f"{100 * max(losses):.1f} %"),
        )  # fmt: skip
        claim = f"part of the utility that DRB loses, {MASKS} random free sets of {preset}"
        yield Claim(f"C-drb-{preset}", claim, stated, "arithmetic")
