"""How well slowdowns beside several are foreseen from smaller sets, by simple rules and by Colane.

    python benchmarks/predict_several.py --measure FILE [--window-s 1.2] [--repeats 3] [--kinds ABCD]
    python benchmarks/predict_several.py FILE ...

Measures real jobs on this machine's cores: every set of up to four of these kinds, each twice in a set at most. All
jobs are there from the beginning and stand still (SIGSTOP) while they have no part. Then every set of three and more is
foreseen from all that have fewer jobs. Of each rule the mean absolute error of the log of a slowdown, its mean (what is
foreseen is too low where that is below 0), and of Colane how many truths lie within its 80 % interval; and the same of
published times of alike jobs on one GPU. How far repetitions differ is the noise of measuring: Colane is told of it,
and what is judged has it too.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import combinations_with_replacement, pairwise
from math import exp, hypot, log, prod, sqrt
from pathlib import Path
from statistics import fmean, median, variance
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.delta_cpu import Job, Setting, running, steps_between, used_s, warm_up
from benchmarks.predict import Answer

from colane.model.job import JobSpec
from colane.model.profile import Profile, ProfileKey, SetMeasurement, Value, ValueSource
from colane.perf.beliefs import Beliefs
from colane.perf.config import SPREADS, PerfConfig
from colane.perf.rate import RateSource, Situation
from colane.perf.speedup import OCCUPANCY_UNITS_PER_S, delta

KINDS = {
    "A": (Job("vgg19", 8, 0.125), Setting(1)),
    "B": (Job("resnet18", 8, 0.125), Setting(1)),
    "C": (Job("vgg11", 8, 0.25), Setting(2, passive=True)),
    "D": (Job("resnet18", 4, 0.25), Setting(2, passive=True)),
}
LARGEST, ALIKE_MAX = 4, 2
SETTLE_S, REST_S = 0.25, 0.2
STEPS_SEEN = 10
MEDIAN_OFF = 1.2533
"""How much wider a median spreads than a mean."""

PUBLISHED: Mapping[str, Mapping[int, float]] = {
    "YOLOS on an A100, MPS (nebuly)": {1: 0.08796, 3: 0.16400, 5: 0.24086, 7: 0.31982},
    "YOLOS on an A100, time-slice (nebuly)": {1: 0.08815, 3: 0.29314, 5: 0.48895, 7: 0.68488},
    "an Ascend 910B, turns (XPUShare)": {1: 83240.67, 2: 169530.70, 4: 336361.38, 8: 676295.52},
}
"""Times of alike jobs by how many are on the device: the tables of nebuly's demo *GPU sharing performance comparison*
(inference), and of XPUShare's test report, section 3.3.1 (half of the jobs on each of two cards)."""

Kinds = tuple[str, ...]


class Table(NamedTuple):
    """Slowdowns of a kind in a set, sorted; parts of the cores that kinds keep busy; noise of a median's log."""

    slowdowns: Mapping[tuple[Kinds, str], float]
    alone_s: Mapping[str, float]
    demands: Mapping[str, float]
    noise: float

    def of(self, me: str, others: Sequence[str]) -> float:
        """Slowdown of a kind beside others."""
        return self.slowdowns[tuple(sorted([me, *others])), me]


# -- measuring


def sets(kinds: str) -> Iterator[Kinds]:
    """All that are measured, the smallest first."""
    for count in range(1, LARGEST + 1):
        for found in combinations_with_replacement(kinds, count):
            if max(found.count(kind) for kind in found) <= ALIKE_MAX:
                yield found


Process = subprocess.Popen[bytes]
Member = tuple[Path, Process]


def measure(kinds: str, window_s: float, repeats: int) -> dict[str, object]:
    """Step times (s) by set and repetition, and the cores that each kind used alone."""
    with ExitStack() as stack:
        jobs = {kind: stack.enter_context(running([KINDS[kind][0]] * ALIKE_MAX, KINDS[kind][1])) for kind in kinds}
        everybody = [member for members in jobs.values() for member in members]
        if not warm_up(everybody):
            sys.exit("a job made no steps")
        _signal(everybody, signal.SIGSTOP)
        try:
            times: dict[str, list[list[float]]] = {}
            cores: dict[str, float] = {}
            for co_runners in list(sets(kinds)) * repeats:
                members = [jobs[kind][co_runners[:place].count(kind)] for place, kind in enumerate(co_runners)]
                seen, used = window(members, window_s)
                times.setdefault("".join(co_runners), []).append(seen)
                if len(co_runners) == 1:
                    cores[co_runners[0]] = max(used, cores.get(co_runners[0], 0.0))
        finally:
            _signal(everybody, signal.SIGCONT)
    return {"times_s": times, "cores": cores, "of": len(os.sched_getaffinity(0))}


def window(members: Sequence[Member], window_s: float) -> tuple[list[float], float]:
    """Mean step times of these while no other runs, and the cores they used."""
    processes = [process for _, process in members]
    _signal(members, signal.SIGCONT)
    time.sleep(SETTLE_S)
    begin_s, used = time.time(), used_s(processes)
    time.sleep(window_s)
    end_s, used = time.time(), used_s(processes) - used
    _signal(members, signal.SIGSTOP)
    found = [steps_between(path, begin_s, end_s) for path, _ in members]
    time.sleep(REST_S)
    return [fmean(each) if each else window_s for each in found], used / (end_s - begin_s)


def _signal(members: Sequence[Member], number: int) -> None:
    for _, process in members:
        process.send_signal(number)


def read(path: Path) -> Table:
    """What `measure` wrote."""
    found = json.loads(path.read_text())
    times: Mapping[str, list[list[float]]] = found["times_s"]
    medians = {name: [median(each) for each in zip(*rows, strict=True)] for name, rows in times.items()}
    alone_s = {name: seen[0] for name, seen in medians.items() if len(name) == 1}
    slowdowns = {
        (tuple(name), me): max(1.0, fmean([s for kind, s in zip(name, seen, strict=True) if kind == me]) / alone_s[me])
        for name, seen in medians.items()
        for me in name
    }
    logs = [[log(s) for s in each] for rows in times.values() for each in zip(*rows, strict=True)]
    once = fmean([variance(each) for each in logs if len(each) > 1])
    noise = MEDIAN_OFF * sqrt(once / fmean([len(each) for each in logs]))
    return Table(slowdowns, alone_s, {name: used / found["of"] for name, used in found["cores"].items()}, noise)


# -- foreseeing


def adding(table: Table, me: str, others: Sequence[str]) -> float:
    """What each adds in a pair adds up."""
    return 1.0 + sum(table.of(me, [other]) - 1.0 for other in others)


def multiplying(table: Table, me: str, others: Sequence[str]) -> float:
    """Slowdowns of pairs multiply."""
    return prod(table.of(me, [other]) for other in others)


def bound(table: Table, me: str, others: Sequence[str]) -> float:
    """Adding, or the work of all where that is more."""
    return max(adding(table, me, others), sum(table.demands[kind] for kind in (me, *others)))


def one_more(table: Table, me: str, others: Sequence[str]) -> float:
    """Sets of one less, and what one more adds as each of the others added there."""
    return fmean([beside + (beside - 1.0) / (len(others) - 1) for beside, _ in _smaller(table, me, others)])


def one_pair_more(table: Table, me: str, others: Sequence[str]) -> float:
    """Sets of one less, and what one more adds in a pair."""
    return fmean([beside + table.of(me, [missing]) - 1.0 for beside, missing in _smaller(table, me, others)])


def _smaller(table: Table, me: str, others: Sequence[str]) -> Iterator[tuple[float, str]]:
    for place in {kind: at for at, kind in enumerate(others)}.values():
        yield table.of(me, [*others[:place], *others[place + 1 :]]), others[place]


RULES: Mapping[str, Callable[[Table, str, Sequence[str]], float]] = {
    "adding pairs": adding,
    "multiplying pairs": multiplying,
    "adding pairs, bound by work": bound,
    "one more as the others": one_more,
    "one more as in its pair": one_pair_more,
}


def colane(table: Table, below: int) -> Callable[[str, Sequence[str]], Answer]:
    """What Colane believes, having measured all sets of fewer jobs than this once."""
    keys = {kind: ProfileKey(kind, None, 1, "cpu") for kind in table.alone_s}
    config = PerfConfig(spreads={**SPREADS, RateSource.MEASURED: table.noise})
    beliefs = Beliefs(config, [_profile(key, table, kind) for kind, key in keys.items()])
    for co_runners in dict.fromkeys(co_runners for co_runners, _ in table.slowdowns):
        if 1 < len(co_runners) < below:
            alone_s = [table.alone_s[kind] for kind in co_runners]
            together_s = [s * table.slowdowns[co_runners, kind] for kind, s in zip(co_runners, alone_s, strict=True)]
            found = delta(alone_s, together_s)
            beliefs.learn_set(
                SetMeasurement(
                    keys=tuple([keys[kind] for kind in co_runners]), sharing="cpu", step_alone_s=tuple(alone_s),
                    step_together_s=tuple(together_s), steps=(STEPS_SEEN,) * len(co_runners), delta=found,
                    delta_general=found, at_s=0.0,
                )
            )  # fmt: skip

    def answer(me: str, others: Sequence[str]) -> Answer:
        beside = tuple([keys[other] for other in others])
        rate = beliefs.rate(JobSpec(name="", family=me), Situation("cpu", sharing="cpu", beside=beside))
        return Answer(rate.slowdown, hypot(rate.spread_ratio, table.noise))

    return answer


def _profile(key: ProfileKey, table: Table, kind: str) -> Profile:
    busy = table.demands[kind] * table.alone_s[kind] * OCCUPANCY_UNITS_PER_S
    step_s = Value(table.alone_s[kind], ValueSource.MEASURED, STEPS_SEEN)
    return Profile(key=key, step_s=step_s, occupancy=Value(busy, ValueSource.MEASURED, STEPS_SEEN))


# -- judging


def judge(tables: Sequence[Table], count: int) -> None:
    """Print a row for each rule, on all sets of so many."""
    asked = [(t, me, _but(co_runners, me), truth) for t in tables for (co_runners, me), truth in _of(t, count)]
    print(f"\n{count} jobs, {len(asked)} slowdowns")
    for name, rule in RULES.items():
        print(_row(name, [log(rule(t, me, others) / truth) for t, me, others, truth in asked]))
    believed = {id(t): colane(t, count) for t in tables}
    answers = [(believed[id(t)](me, others), truth) for t, me, others, truth in asked]
    held = fmean([answer.holds(truth) for answer, truth in answers])
    print(_row("Colane", [log(answer.slowdown / truth) for answer, truth in answers]), f"{held:8.0%} in 80 %")


def _of(table: Table, count: int) -> list[tuple[tuple[Kinds, str], float]]:
    return [(asked, truth) for asked, truth in table.slowdowns.items() if len(asked[0]) == count]


def _but(co_runners: Kinds, me: str) -> list[str]:
    others = list(co_runners)
    others.remove(me)
    return others


def _row(name: str, errors: Sequence[float]) -> str:
    return f"{name:30}{fmean(map(abs, errors)):8.3f}{fmean(errors):+8.3f}"


def judge_published() -> None:
    """Of alike jobs, the next larger number from one more at a time, each adding as those before it did."""
    print("\nalike jobs, published")
    for name, times in PUBLISHED.items():
        counts, alone = sorted(times), times[1]
        for few, many in pairwise(counts[1:]):
            seen, truth = times[few] / alone, times[many] / alone
            foreseen = 1.0 + (seen - 1.0) / (few - 1) * (many - 1)
            print(
                f"{name:40}{few} to {many}: {seen:.2f}, then {foreseen:.2f} / {truth:.2f}{log(foreseen / truth):+8.3f}"
            )


def main() -> None:
    """Measure, or judge what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--measure", type=Path, help="Measure, and write to this file.")
    parser.add_argument("--kinds", default="".join(KINDS), help="Letters: %(default)s.")
    parser.add_argument("--window-s", type=float, default=1.2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.measure is not None:
        options.measure.write_text(json.dumps(measure(options.kinds, options.window_s, options.repeats)))
    tables = [read(path) for path in (*options.files, *([options.measure] if options.measure else ()))]
    if tables:
        noise = sqrt(fmean([table.noise**2 for table in tables]))
        print(f"what was measured is off by a factor of {exp(noise):.2f}; mean absolute error of the log, mean error")
        for count in range(3, LARGEST + 1):
            judge(tables, count)
    judge_published()


if __name__ == "__main__":
    main()
