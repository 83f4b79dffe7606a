"""Paper B's three scenes of jobs that take turns in one lane: newcomers, a shorter job, unlike steps."""

from __future__ import annotations

from colane.lab.papers.claims import Claim, Experiment, Figure, Origin, Trait, ours
from colane.lab.papers.sharing_memory import Tables
from colane.lab.papers.sharing_scenes import FAIR, NO_GAIN, SRTF, Scene, ends_s, job_of

# -- B-g: three equal jobs come one after another

SHARING_STARTS_S = (0.0, 15.0, 30.0)
SHARING_ITERATIONS = (145, 75, 35)
SHARING_ENDS_S = (92.2, 81.9, 68.0)
SHARING_BATCH = 50


def fair_sharing(tables: Tables) -> Scene:
    """Three jobs come one after another."""
    step_s = tables.geometry.geometry["inception3_50"].step_s
    triples = zip(SHARING_STARTS_S, SHARING_ITERATIONS, strict=True)
    jobs = tuple(
        job_of(number, "inception3_50", iterations, step_s, start_s)
        for number, (start_s, iterations) in enumerate(triples, 1)
    )
    note = "Each newcomer has its share at once: halves, thirds, and back; the total stays what it is alone."
    return Scene("fair-sharing", "Paper B, three jobs share fairly", jobs, (FAIR,), NO_GAIN, note)


def sharing_claim(sharing: Experiment) -> Claim:
    """Ends and the total throughput; the paper states the shares alone, the ends are worked out by hand."""
    ends = ends_s(sharing.runs[0][1])
    by_hand = [
        Figure(f"job {number} ends", end_s, ends[number], "s", "equal shares", Origin.DERIVED, ratio=0.0, slack=0.1)
        for number, end_s in enumerate(SHARING_ENDS_S, 1)
    ]
    images_per_s = SHARING_BATCH * sum(SHARING_ITERATIONS) / max(ends.values())
    total = ours("total throughput", f"{images_per_s:.0f} images/s until the last has ended")
    orders = (
        Trait("jobs end in the reverse order of their start", ends[3] < ends[2] < ends[1], where="section 5.1.2"),
    )
    claim = "three inception3_50 at 0, 15, 30 s share fairly: halves, thirds and back, the total unchanged"
    return Claim("B-g", claim, (*orders, *by_hand, total), "Salus' step times on one P100; steps of each job are ours")


# -- B-m: a shorter job stops a longer one at once

SNAPSHOT = ((0.0, 100.0), (5.0, 10.0), (10.0, 20.0), (12.0, 8.0), (25.0, 30.0), (26.0, 25.0))
"""Arrival and run time of six jobs that come as the paper's do: the figure gives their order, not their times."""

SNAPSHOT_ORDER = (1, 3, 2, 5, 4, 0)


def snapshot_scene(tables: Tables) -> Scene:
    """Six jobs of which shorter ones come later."""
    step_s = tables.geometry.geometry["alexnet_25"].step_s
    jobs = tuple(
        job_of(number, "alexnet_25", round(run_s / step_s), step_s, start_s)
        for number, (start_s, run_s) in enumerate(SNAPSHOT, 1)
    )
    note = "Jobs are numbered from 1 here, from 0 in the paper. Times are ours, in the figure's order."
    return Scene("snapshot", "Paper B, shortest remaining time first", jobs, (SRTF,), NO_GAIN, note)


def snapshot_claim(found: Experiment) -> Claim:
    """Which job ends in which order."""
    ends = ends_s(found.runs[0][1])
    order = tuple(job - 1 for job in sorted(ends, key=lambda job: ends[job]))
    stated = Trait("jobs end 1, 3, 2, 5, 4, 0", order == SNAPSHOT_ORDER, ", ".join(map(str, order)), "figure 9a")
    claim = "SRTF: a shorter job stops a longer one at once, among those waiting the shortest goes first"
    return Claim(
        "B-m", claim, (stated,), "Salus' step times on one P100; the jobs' times are ours, in the figure's order"
    )


# -- B-o: different jobs in one lane have equal time

SLICE_KINDS = ("googlenet_100", "resnet50_25", "alexnet_100", "resnet50_50")
SLICE_RUN_S = 60.0


def fair_slices(tables: Tables) -> Scene:
    """Four jobs whose steps are unlike."""
    steps = [(name, tables.geometry.geometry[name].step_s) for name in SLICE_KINDS]
    jobs = tuple(
        job_of(number, name, round(SLICE_RUN_S / step_s), step_s) for number, (name, step_s) in enumerate(steps, 1)
    )
    note = "Four models whose steps take 0.05 to 0.23 s, a minute of work each, all at once in one lane."
    return Scene("fair-slices", "Paper B, unlike jobs share fairly", jobs, (FAIR,), NO_GAIN, note)


def slices_claim(slices: Experiment) -> Claim:
    """Parts of the time."""
    rows = slices.runs[0][1].ledger.rows
    parts = [
        had_s / (end_s - submit_s) for had_s, end_s, submit_s in zip(rows.gpu_s, rows.end_s, rows.submit_s, strict=True)
    ]
    found = [part for _, part in sorted(zip(rows.id, parts, strict=True))]
    equal = all(abs(part - 1 / len(found)) <= 0.01 for part in found)
    told = ", ".join(f"{name} {part:.1%}" for name, part in zip(SLICE_KINDS, found, strict=True))
    stated = Trait("each has as much of the GPU's time", equal, told, "section 5.1.2")
    return Claim("B-o", "four unlike jobs share one lane", (stated,), "Salus' step times on one P100")
