"""Paper A on real GPUs: step times, C and M, delta of all pairs and triples, best and worst case.

    python gpu/paper_a.py [--part PART] [--minutes 8] [--data DIR] [--out DIR] [--tiny]

Tabrizian, Co-location of deep learning jobs in GPU clusters, University of Toronto 2020. Every part ends within
`--minutes`, keeps what it has, and is gone on with by the next call. Jobs run through a scheduler and an agent as
`colane up` starts them. Without a GPU it says so and ends with 0; `--tiny` runs the whole logic on the CPU.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # so that the script can be run by its path as well
    sys.path.insert(0, str(ROOT))

from gpu.claims import (  # noqa: E402
    COLOCATION,
    FIFO,
    WITH_MPS,
    all_measurements,
    all_profiles,
    claims,
)
from gpu.harness import HEARTBEAT_S, Object, Run, Script, job_env, main  # noqa: E402
from gpu.seen_sets import SeenSets, keys_of  # noqa: E402

from colane.client.client import Client  # noqa: E402
from colane.client.knowledge import (  # noqa: E402
    encode_measurement,
    encode_profile,
    read_measurements,
    read_profiles,
)
from colane.client.profile_session import Session, sets_of  # noqa: E402
from colane.client.profiling import ENDED_STATES, Profiler, Rules, Subject  # noqa: E402
from colane.devices.kernels import NCU_OPTIONS, KernelTraceError, read_trace  # noqa: E402
from colane.lab.commands.profile_output import fit_boundaries  # noqa: E402
from colane.lab.report.parsing import devices_of_nodes, parse_records  # noqa: E402
from colane.lab.report.profiles import Findings, write  # noqa: E402
from colane.lab.report.records import RunGroup  # noqa: E402
from colane.lab.report.writer import build  # noqa: E402
from colane.model.profile import ProfileKey  # noqa: E402

MODELS: Final = ("resnet18", "resnet50", "se_resnet18", "vgg11", "vgg19")
BATCHES: Final = (64, 128, 256)
MPS_CONTROL: Final = "nvidia-cuda-mps-control"

CASES: Final[Mapping[str, tuple[tuple[str, ...], int]]] = {
    "best": (("vgg19", "vgg11", "resnet18"), 64),
    "worst": (("se_resnet18", "resnet18"), 256),
}
"""Models and batch size of the paper's two workloads; two of each model on its two GPUs."""
ITERS: Final = 1000
COPIES_MAX: Final = 2

STEPS: Final = 150
"""A step takes some 10 ms on a GPU of 2020: a run is reported at least twice before it is stopped."""
SMALL_STEPS: Final = 20
SMALL_MODELS: Final = ("resnet18", "vgg11")
SMALL_BATCH: Final = 16
SMALL_JOB: Final = {"width": 0.125, "workers": 0}
SMALL_ENV: Final = {"OMP_NUM_THREADS": "1"}
"""Two jobs of two spinning threads each on two cores would bring one another to a halt."""
SMALL_ITERS: Final = 20
DELTA_MIN: Final = 0.1
"""A lower delta on a GPU means that something else ran, or that a step was not what it was alone."""

LAST_WORDS_S: Final = 20.0
"""Left of a part's time for stopping its jobs and writing down what it has."""
START_S: Final = 15.0
"""Allowed for a job's imports and first step when the length of a scenario is chosen."""


def alone(run: Run, batch: int) -> Object:
    """Profile the models one by one: step time, P and E, C and M by NVML GPM."""
    with run.stack() as stack, stack.client() as scheduler:
        session, subjects = _session(run, scheduler), _subjects(run, batch)
        known = read_profiles(scheduler)
        session.measure_alone([s for s in subjects if s.key not in known or known[s.key].step_s is None])
        profiles = session.profiles(subjects)
    run.check("every model has a profile", len(profiles) == len(subjects), session.failures)
    for profile in profiles:
        name = f"{profile.key.family} b{profile.key.batch_size}"
        run.check(f"{name}: P and E are measured", profile.memory_bytes, profile.persistent_bytes)
        run.check(f"{name}: C is measured", profile.occupancy, "NVML GPM needs Hopper or later; see the part kernels")
    sampled = {str(key): value for key, value in session.sampled_step_s.items()}
    return _status(run, session) | {"profiles": [encode_profile(p) for p in profiles], "sampled_step_s": sampled}


def together(run: Run, size: int, batch: int, *, mps: bool, models: Sequence[str] = ()) -> Object:
    """Measure delta of all sets of that many models; what an earlier call has measured is not measured again."""
    if mps and not shutil.which(MPS_CONTROL):
        run.notes.append(f"{MPS_CONTROL} is not installed: nothing is measured with MPS")
        return {"measurements": [], "profiles": []}
    sharing = "cpu" if run.on_cpu else "mps" if mps else "time-slice"
    with run.stack(mps="auto" if mps else "off") as stack, stack.client() as scheduler:
        session, subjects = _session(run, scheduler), _subjects(run, batch, models)
        seen = SeenSets(run, session, subjects, sharing)
        sets = sets_of(subjects, size)
        for some in _rounds([s for s in sets if keys_of(s) not in seen.done()], mps=mps):
            if not session.failures or run.left_s > LAST_WORDS_S:
                session.measure_sets(some, (mps,))
                run.keep(seen.body(sets))
        found, body = seen.of(sets), seen.body(sets)
    have = len({m.keys for m in found})
    run.check("MPS could be started", not mps or run.left_s < LAST_WORDS_S or found, session.notes)
    wrong = [m for m in session.measurements if m.sharing != sharing]
    run.check("the way of sharing is the one asked for", not wrong, [m.sharing for m in wrong])
    least = 0.0 if run.small else DELTA_MIN
    run.check("deltas are plausible", all(least < m.delta < len(m.keys) + 0.5 for m in found), [m.delta for m in found])
    return _status(run, session, complete=have == len(sets)) | {"sets": len(sets), "measured": have} | body


def _rounds(sets: Sequence[tuple[Subject, ...]], *, mps: bool) -> list[Sequence[tuple[Subject, ...]]]:
    """One by one, so that each is kept as it is measured; through MPS at once, as its daemon is started each time."""
    return [sets] if mps and sets else [[one] for one in sets]


def kernels(run: Run) -> Object:
    """Take C and M from kernel profilers: torch.profiler for every model and batch, ncu where it is installed."""
    run.out_dir.mkdir(parents=True, exist_ok=True)
    subjects = [s for batch in _batches(run) for s in _subjects(run, batch)][: 1 if run.small else None]
    traces = [_kineto(run, s) for s in subjects if run.left_s > LAST_WORDS_S]
    if shutil.which("ncu") and not run.on_cpu:
        traces += [_ncu(run, s) for s in _subjects(run, BATCHES[0]) if run.left_s > LAST_WORDS_S]
    elif not run.on_cpu:
        run.notes.append("ncu is not installed: M by kernel was not measured")
    found = [trace for trace in traces if "error" not in trace]
    run.notes += [f"{trace['job']}: {trace['error']}" for trace in traces if "error" in trace]
    if run.on_cpu:
        none = all("holds no GPU kernel" in str(trace.get("error")) for trace in traces)
        run.check("a trace of the CPU is read and has no kernel", none, run.notes)
    else:
        run.check("kernels have an occupancy", any(trace["occupancy"] for trace in found), len(found))
    wanted = len(subjects)
    return {"traces": traces, "status": "complete" if len(traces) >= wanted else "incomplete"}


def scenario(run: Run, case: str, workers: int) -> Object:
    """Run one of the paper's workloads under FIFO, co-location and co-location with MPS."""
    models, batch = CASES[case]
    # In small, the families are those of the parts before, which are known by now.
    subjects = _subjects(run, batch, models, None if run.small else workers)
    gpus = min(len(run.gpus), COPIES_MAX)
    with run.stack(gpus_max=gpus) as stack, stack.client() as scheduler:
        session = _session(run, scheduler)
        _learn(session, scheduler, subjects)
        step_s = {p.key: p.step_s.value for p in session.profiles(subjects) if p.step_s is not None}
    if len(step_s) < len(subjects):
        return _status(run, session, complete=False)
    phases = _phases(run)
    iters = _iters(run, list(step_s.values()), len(phases))
    stamp = f"{case}-{workers}-{time.time():.0f}"
    groups = [_phase(run, phase, gpus=gpus, jobs=_batch(subjects, gpus, iters, phase[0], stamp)) for phase in phases]
    report = build([g for g in groups if g.records], session.measurements, run.out_dir, title=f"Paper A, {case} case")
    _check_groups(run, groups, len(subjects) * gpus, iters)
    numbers = {group.name: _numbers(group) for group in groups if group.records}
    base = numbers.get(FIFO)
    return {
        "case": case, "workers": workers, "iters": iters, "jobs": len(subjects) * gpus, "gpus_used": gpus,
        "groups": numbers, "changes": {name: _change(base, n) for name, n in numbers.items() if base and name != FIFO},
        "sentences": list(report.sentences), "measurements": [encode_measurement(m) for m in session.measurements],
    }  # fmt: skip


def summary(results: Mapping[str, Object], out_dir: Path) -> Object:
    """Judge the claims and draw the paper's figures from all parts."""
    profiles, measurements = all_profiles(results), all_measurements(results)
    boundaries, notes = fit_boundaries(profiles, measurements)
    histograms: dict[str, dict[str, list[float]]] = {}
    for trace in (results.get("kernels") or {}).get("traces", ()):
        for quantity, values in trace.get("values", {}).items():
            # One source a quantity, or the same kernels would be counted twice; only ncu knows bandwidth.
            if values and (trace["by"] == "ncu") == (quantity == "bandwidth"):
                histograms.setdefault(quantity, {})[trace["job"]] = values
    found = Findings(
        profiles=profiles, measurements=measurements, boundaries=boundaries, kernels=histograms, notes=notes
    )
    files = write(found, out_dir / "figures", title="Paper A on this machine")
    return {"claims": claims(results), "notes": notes, "files": [path.name for path in files]}


def _session(run: Run, scheduler: Client) -> Session:
    rules = Rules(
        steps=SMALL_STEPS if run.small else STEPS,
        reports_s=2 * HEARTBEAT_S,
        look_every_s=0.1,
        deadline_s=run.deadline_s - LAST_WORDS_S,
    )
    return Session(Profiler(scheduler, rules))


def _models(run: Run) -> Sequence[str]:
    return SMALL_MODELS if run.small else MODELS


def _batches(run: Run) -> Sequence[int]:
    return (SMALL_BATCH,) if run.small else BATCHES


def _subjects(run: Run, batch: int, models: Sequence[str] = (), workers: int | None = None) -> list[Subject]:
    names = [model for model in models or MODELS if model in _models(run)]
    return [_subject(run, model, SMALL_BATCH if run.small else batch, workers) for model in names]


def _subject(run: Run, model: str, batch: int, workers: int | None) -> Subject:
    """A built-in job; with a number of data workers it is a family of its own, for it behaves differently."""
    family = model if workers is None else f"{model}-w{workers}"
    kind = run.gpus[0].type
    data = {"dataset": "cifar10", "dataset_path": str(run.data.absolute())} if run.data else {"dataset": "synthetic"}
    request: Object = {
        "model_name": model, "name": family, "family": family, "batch_size": batch, "gpu_type": kind, **data,
        "workers": 2 if workers is None else workers, "workdir": str(ROOT), "python": sys.executable,
        "env": job_env() | (SMALL_ENV if run.small else {}), **(SMALL_JOB if run.small else {}),
    }  # fmt: skip
    return Subject(key=ProfileKey(family, batch, 1, kind), request=request)


def _status(run: Run, session: Session, *, complete: bool = True) -> Object:
    run.notes += session.notes
    if session.failures and run.left_s > LAST_WORDS_S:
        run.check("every job could be measured", not session.failures, session.failures)
    done = complete and not session.failures
    return {"status": "complete" if done else "incomplete", "failures": session.failures}


def _learn(session: Session, scheduler: Client, subjects: Sequence[Subject]) -> None:
    """Have the profiles and the set's delta known, so that the policy decides from what was measured here."""
    sets = [group for size in range(2, len(subjects) + 1) for group in sets_of(subjects, size)]
    done = {tuple(sorted(m.keys)) for m in read_measurements(scheduler)}
    session.measure_sets([group for group in sets if keys_of(group) not in done], (False,))


def _phases(run: Run) -> list[tuple[str, str, str]]:
    """Name, policy and MPS mode of each."""
    phases = [(FIFO, "fifo", "off"), (COLOCATION, "colocate", "off")]
    if run.on_cpu or not shutil.which(MPS_CONTROL):
        run.notes.append("the phase with MPS is left out: it cannot be started here")
        return phases
    return [*phases, (WITH_MPS, "colocate", "on")]


def _iters(run: Run, step_s: Sequence[float], phases: int) -> int:
    """The paper's 1000 steps, or as many as all phases have time for even if sharing gains nothing."""
    if run.small:
        return SMALL_ITERS
    for_steps_s = (run.left_s - LAST_WORDS_S) / phases - START_S * len(step_s)
    iters = max(min(ITERS, int(for_steps_s / sum(step_s))), STEPS)
    if iters < ITERS:
        run.notes.append(f"{iters} steps instead of the paper's {ITERS}: the time of a part allows no more")
    return iters


def _batch(subjects: Sequence[Subject], copies: int, iters: int, phase: str, stamp: str) -> list[Object]:
    labels = {"phase": phase, "run": stamp}
    return [{**s.request, "iters": iters, "labels": labels} for _ in range(copies) for s in subjects]


def _phase(run: Run, phase: tuple[str, str, str], *, gpus: int, jobs: Sequence[Object]) -> RunGroup:
    """Run a batch under a policy and return its records."""
    name, policy, mps = phase
    labels = dict(jobs[0]["labels"])
    with run.stack(policy, mps=mps, gpus_max=gpus) as stack, stack.client() as scheduler:
        ids = scheduler.submit_batch(jobs)
        while any(scheduler.job(job_id)["state"] not in ENDED_STATES for job_id in ids):
            if run.left_s < LAST_WORDS_S:
                run.notes.append(f"{name}: its time was used up, its jobs were stopped")
                break
            time.sleep(0.2)
        records = parse_records(list(scheduler.finished_jobs(labels=labels)))
        devices = devices_of_nodes(scheduler.nodes())
    return RunGroup(name=name, records=records, devices=devices)


def _check_groups(run: Run, groups: Sequence[RunGroup], jobs: int, iters: int) -> None:
    for group in groups:
        good = [record for record in group.records if record.succeeded]
        run.check(f"{group.name}: every job succeeded", len(good) == jobs, [r.reason for r in group.records][:3])
        run.check(f"{group.name}: every step was made", all(r.steps == iters for r in good), [r.steps for r in good])


def _numbers(group: RunGroup) -> Object:
    """Makespan, run span (the paper's JCT) and queueing of a batch (section 4.1 of the paper)."""
    ran = [record for record in group.records if record.first_start_s is not None]
    spans_s = [r.end_s - (r.first_start_s or r.end_s) for r in ran]
    queues_s = [(r.first_start_s or r.submit_s) - r.submit_s for r in ran]
    return {
        "jobs": len(ran),
        "makespan_s": max(r.end_s for r in ran) - min(r.submit_s for r in ran),
        "run_span_mean_s": sum(spans_s) / len(ran),
        "queue_mean_s": sum(queues_s) / len(ran),
    }


def _change(base: Mapping[str, Any], other: Mapping[str, Any]) -> Object:
    def percent(name: str) -> float:
        return float(100 * (other[name] / base[name] - 1))

    return {"makespan_percent": percent("makespan_s"), "run_span_percent": percent("run_span_mean_s")}


def _kineto(run: Run, subject: Subject) -> Object:
    path = run.out_dir / f"{subject.key.family}-{subject.key.batch_size}.json"
    command = [*_trace_command(run, subject), "--out", str(path)]
    return _trace(run, subject, command, path)


def _ncu(run: Run, subject: Subject) -> Object:
    path = run.out_dir / f"{subject.key.family}-{subject.key.batch_size}.csv"
    return _trace(run, subject, ["ncu", *NCU_OPTIONS, "--log-file", str(path), *_trace_command(run, subject)], path)


def _trace_command(run: Run, subject: Subject) -> list[str]:
    words = [sys.executable, "-m", "gpu.kernel_trace", "--model", subject.key.family]
    words += ["--batch-size", str(subject.key.batch_size)]
    return [*words, "--width", str(SMALL_JOB["width"])] if run.small else words


def _trace(run: Run, subject: Subject, command: Sequence[str], path: Path) -> Object:
    """Run a profiler over two steps and read what it wrote; the file itself is too large to be kept."""
    named = {"job": subject.name, "command": command[0].rpartition("/")[2]}
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=run.left_s, check=False)
        if done.returncode != 0:
            return {**named, "error": (done.stderr or done.stdout).strip().splitlines()[-1:] or done.returncode}
        trace = read_trace(path)
    except subprocess.TimeoutExpired:
        return {**named, "error": "its time was used up"}
    except (KernelTraceError, OSError) as error:
        return {**named, "error": str(error)}
    finally:
        path.unlink(missing_ok=True)
    values = {q: [round(v, 1) for v in found] for q, found in trace.histogram_values().items()}
    return {
        **named, "by": trace.by, "kernels": len(trace.kernels), "steps": trace.steps, "occupancy": trace.occupancy,
        "bandwidth": trace.bandwidth, "occupancy_known_ratio": trace.occupancy_known_ratio,
        "busy_us": trace.busy_us, "values": values,
    }  # fmt: skip


def _parts() -> dict[str, Callable[[Run], Object]]:
    parts: dict[str, Callable[[Run], Object]] = {f"alone-{b}": partial(alone, batch=b) for b in BATCHES}
    models, batch = CASES["best"]
    for name, mps in (("best-pairs", False), ("best-pairs-mps", True)):
        parts[name] = partial(together, size=2, batch=batch, mps=mps, models=models)
    for size, name in ((2, "pairs"), (3, "triples")):
        for batch in BATCHES:
            parts[f"{name}-{batch}"] = partial(together, size=size, batch=batch, mps=False)
    for size, name in ((2, "pairs"), (3, "triples")):
        for batch in BATCHES:
            parts[f"{name}-{batch}-mps"] = partial(together, size=size, batch=batch, mps=True)
    parts["kernels"] = kernels
    for case in CASES:
        for workers in (2, 10):
            parts[f"{case}-{workers}"] = partial(scenario, case=case, workers=workers)
    return parts


SCRIPT: Final = Script(
    name="paper_a",
    about="Paper A on real GPUs: step times, C and M, delta of all pairs and triples, best and worst case.",
    parts=_parts(),
    tiny_parts=("alone-64", "pairs-64", "kernels", "best-2"),
    summary=summary,
)

if __name__ == "__main__":
    sys.exit(main(SCRIPT))
