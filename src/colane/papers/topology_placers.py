"""Paper C's utility and its placer by bipartition, against the authors' numbers and the exact placer."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from colane.model.job import CommPattern
from colane.papers.claims import Claim, ClaimVerdict
from colane.perf.topology import Comm, excess, flat, shape_of
from colane.perf.utility import job_utility, system_utility
from colane.scheduling.mechanisms.topology.drb import drb
from colane.scheduling.mechanisms.topology.node_fit import Question, exact
from colane.traces import topologies

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
    same = all(round(ours, 4) == golden for ours, golden in zip(found, GOLDEN, strict=True))
    return Claim(
        "C-utility", "utilities of the authors' code on a machine of two sockets with two GPUs each",
        ", ".join(f"{value:.4f}" for value in GOLDEN), ", ".join(f"{value:.4f}" for value in found),
        ClaimVerdict.SAME if same else "differs: the utility is another",
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
        yield Claim(
            f"C-drb-{preset}", f"utility DRB loses against the exact placer, {MASKS} random free sets of {preset}",
            "-", f"mean {100 * mean:.2f} %, at most {100 * max(losses):.1f} %",
            ClaimVerdict.SAME if min(losses) > -1e-9 and mean < bound else "differs: DRB is worse than it may be",
        )  # fmt: skip
