"""What a live cluster measured, written and read back, and jobs moved by it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from math import inf
from pathlib import Path
from typing import Any

import pytest

from colane.cli import app
from colane.client.client import Event
from colane.client.knowledge import encode_measurement, encode_profile
from colane.lab.commands.export import Exported, RunOverhead, export_jobs, fit, overhead_s
from colane.lab.simulate.request import Request, WorldKind, inputs, load
from colane.lab.simulate.run import simulate
from colane.lab.traces.read import read
from colane.lab.traces.tables import measured
from colane.model.profile import Memory, Profile, ProfileKey, SetMeasurement, Value, ValueSource
from colane.settings.input_file import InputFileError

A, B = (ProfileKey(family, 8, 1, "cpu") for family in ("a", "b"))


def value(number: float) -> Value:
    return Value(number, ValueSource.MEASURED, 10, "test")


PROFILES = [
    Profile(
        key=key, step_s=value(step_s), persistent_bytes=value(1e9), ephemeral_bytes=value(2e9),
        occupancy=value(0.6 * step_s * 2e8), bandwidth=value(0.0),
    )
    for key, step_s in ((A, 0.5), (B, 0.25))
]  # fmt: skip
PAIR = SetMeasurement(
    keys=(A, B), sharing="cpu", step_alone_s=(0.5, 0.25), step_together_s=(0.8, 0.3), steps=(20, 20), delta=0.9,
    delta_general=0.9, at_s=5.0,
)  # fmt: skip


class FakeScheduler:
    """Answers with two jobs that ran one after the other on one device, and one that never started."""

    def finished_jobs(self, labels: object = None) -> list[dict[str, Any]]:
        del labels
        return [
            _record(1, "a", 100.0, 12.0, 20), _record(2, "b", 101.0, 8.0, 20, waited_s=12.0),
            _record(3, "b", 102.0, None, 0),
        ]  # fmt: skip

    def live_jobs(self) -> list[dict[str, Any]]:
        return []

    def health(self) -> dict[str, Any]:
        return {"policy": "fifo", "events": 0}

    def events(self, after: int, until: int) -> Iterator[Event]:
        yield from [line for line in self.lines if after < line.number <= max(until, 99)]

    lines: Sequence[Event] = ()

    def nodes(self) -> list[dict[str, Any]]:
        gpu = {"index": 0, "type": "cpu", "memory_bytes": 8_000_000_000}
        return [{"name": "n", "gpus": [gpu], "cores": [0, 1], "host_memory_bytes": 10**10, "pool": "default"}]

    def profiles(self) -> list[dict[str, Any]]:
        return [encode_profile(profile) for profile in PROFILES]

    def measurements(self) -> list[dict[str, Any]]:
        return [encode_measurement(PAIR)]


def _record(
    id_: int, family: str, submit_s: float, span_s: float | None, steps: int, waited_s: float = 1.0
) -> dict[str, Any]:
    start_s = None if span_s is None else submit_s + waited_s
    step_s = {"a": 0.5, "b": 0.25}[family]
    progress = None if start_s is None else {
        "first_step_s": start_s + 1.5 + step_s, "last_step_s": start_s + 1.5 + steps * step_s, "steps": steps,
    }  # fmt: skip
    needs = {
        "gpus": 1, "gpu_type": None, "gpu_memory_bytes": None, "cores": 0, "host_memory_bytes": 0,
        "time_limit_s": None, "retries": 0, "share": True,
    }  # fmt: skip
    return {
        "id": id_, "name": family, "family": family, "user": "u", "pool": "default", "batch_size": 8, "priority": 0,
        "steps": steps, "labels": {}, "needs": needs, "state": "succeeded", "gpus": ["n/0"], "submit_s": submit_s,
        "start_s": start_s, "end_s": submit_s + waited_s + (span_s or 0.0), "progress": progress,
    }  # fmt: skip


@pytest.fixture
def made(tmp_path: Path) -> Exported:
    return export_jobs(FakeScheduler(), {}, tmp_path / "export")  # type: ignore[arg-type]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    table = measured.from_profiles(PROFILES, [PAIR], measured.Overhead(1.5, 0.75))
    measured.write(table, tmp_path / "measured.json")
    assert measured.read(tmp_path / "measured.json") == table
    assert table.jobs[A].memory == Memory(10**9, 2 * 10**9)
    assert table.jobs[A].step_s == 0.5
    assert table.jobs[A].occupancy_ratio == pytest.approx(0.6)
    assert table.slowdown(A, [B]) == pytest.approx(1.6)
    assert table.slowdown(B, [A]) == pytest.approx(1.2)
    assert table.slowdown(A, [A]) is None


class Unmeasured(FakeScheduler):
    """Other programs used the cores: no profile was learnt. Job 1 ran beside job 2 all its time, job 3 alone."""

    def __init__(self, times: float) -> None:
        self._times = times

    def finished_jobs(self, labels: object = None) -> list[dict[str, Any]]:
        del labels
        long, slowed, alone = (
            _record(1, "b", 100.0, 60.0, 200), _record(2, "a", 105.0, 12.0, 20), _record(3, "a", 300.0, 12.0, 20),
        )  # fmt: skip
        first_s, last_s = 106.0 + 1.5 + 0.5 * self._times, 106.0 + 1.5 + 10.0 * self._times
        slowed |= {"end_s": last_s + 0.5, "progress": {"first_step_s": first_s, "last_step_s": last_s, "steps": 20}}
        return [long, slowed, alone]

    def profiles(self) -> list[dict[str, Any]]:
        return []

    def measurements(self) -> list[dict[str, Any]]:
        return []


@pytest.mark.parametrize("times", [1.0, 1.6, 2.5])
def test_kinds_and_sets_that_nobody_measured_are_as_their_runs_were(times: float, tmp_path: Path) -> None:
    made = export_jobs(Unmeasured(times), {}, tmp_path)  # type: ignore[arg-type]
    table = measured.read(made.measured)
    assert [table.jobs[key].step_s for key in (A, B)] == pytest.approx([0.5, 0.25])
    assert table.slowdown(A, [B]) == pytest.approx(times)
    known = {job.spec.name: job for job in read(str(made.trace), "colane").jobs}
    assert known["job-2"].duration_s == pytest.approx(10.0)  # alone, whatever was beside it


@pytest.mark.parametrize("text", ["{}", "[]", '{"overhead_s": 1, "companies": [], "jobs": [{"family": "a"}]}', "x"])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    path.write_text(text)
    with pytest.raises(InputFileError):
        measured.read(path)


def test_overhead_is_what_a_run_takes_besides_its_steps() -> None:
    ran: Any = FakeScheduler().finished_jobs()[:2]
    assert [overhead_s(item) for item in ran] == [pytest.approx(12 - 10), pytest.approx(8 - 5)]


@pytest.mark.parametrize(
    ("seen", "alone_s", "work_ratio"),
    [
        ([], 0, 1),
        ([(4.0, 1.0)], 4, 1),
        ([(4.0, 1.0), (8.0, 2.0)], 4, 1),  # all of it is work
        ([(4.0, 1.0), (6.0, 2.0)], 4, 0.5),
        ([(4.0, 1.0), (4.0, 2.0), (4.0, 3.0)], 4, 0),
        ([(4.0, 1.0), (3.0, 3.0)], 3.5, 0),  # co-runners never make it quicker
        ([(4.0, 1.0), (10.0, 2.0)], 14 / 3, 1),  # nor slower than steps
        ([(6.0, 2.0), (10.0, 2.0)], 4, 1),  # all had like co-runners
        ([(6.0, 2.0), (8.0, 3.0)], 4, 0.5),  # neither was alone
    ],
)
def test_part_of_the_overhead_grows_with_co_runners(
    seen: list[tuple[float, float]], alone_s: float, work_ratio: float
) -> None:
    found = fit([RunOverhead(*each) for each in seen])
    assert found == pytest.approx((alone_s, work_ratio))


def test_launches_that_shared_a_device_count_as_what_it_worked_on_them(tmp_path: Path) -> None:
    class Together(FakeScheduler):
        def finished_jobs(self, labels: object = None) -> list[dict[str, Any]]:
            del labels
            return [_record(1, "a", 100.0, 12.0, 20), _record(2, "a", 100.0, 12.0, 20)]

    made = export_jobs(Together(), {}, tmp_path / "export")  # type: ignore[arg-type]
    slowdown = 1.2 * (1.6 / 1.2 + 1.2 / 1.2) / 2  # two of this kind were never measured together, as estimated below
    assert measured.read(made.measured).overhead == pytest.approx(((12 - 10) / slowdown, 1))


def test_slowdowns_hold_from_the_time_alone_that_stands_beside_them() -> None:
    earlier = dataclasses.replace(PAIR, step_alone_s=(0.4, 0.25), step_together_s=(0.7, 0.3), steps=(60, 20))
    table = measured.from_profiles(PROFILES, [PAIR, earlier])
    assert table.jobs[A].step_s == 0.5
    assert table.slowdown(A, [B]) == pytest.approx((20 * 0.8 + 60 * 0.7) / 80 / 0.5), "every step counts alike"
    assert measured.from_profiles([], [PAIR]).slowdown(A, [B]) == pytest.approx(1.6), (
        "as believed then, where none does"
    )


def test_co_runners_that_were_not_measured_are_estimated_from_sets_of_their_size() -> None:
    table = measured.from_profiles(PROFILES, [PAIR])
    # Both keep 0.6 of the device busy: work alone would slow two by 1.2. Measured were 1.6 and 1.2 beside each other.
    assert table.estimate(A, [A]) == pytest.approx(1.2 * (1.6 / 1.2 + 1.2 / 1.2) / 2)
    assert table.estimate(A, [A, B]) is None, "no three were measured together"
    assert table.estimate(A, [ProfileKey("c", 8, 1, "cpu")]) is None, "c is not known"


def test_jobs_that_never_started_are_left_out_and_counted(made: Exported) -> None:
    assert (made.jobs, made.left_out) == (2, 1)


def test_an_export_simulated_under_its_own_policy_gives_the_live_times(made: Exported) -> None:
    request = Request(cluster=str(made.cluster), trace=str(made.trace), measured=made.measured, world=WorldKind.TABLE)
    done = simulate(inputs(request, load(request, 0), "fifo", 0))
    assert list(done.ledger.rows.end_s) == [pytest.approx(12), pytest.approx(12 + 8)]


def test_measured_co_runners_move_jobs_that_share(made: Exported) -> None:
    request = Request(cluster=str(made.cluster), trace=str(made.trace), measured=made.measured, world=WorldKind.TABLE)
    loaded = load(request, 0)
    first, second = loaded.workload.jobs
    from colane.lab.simulate.world import Running  # noqa: PLC0415
    from colane.model.hardware import GpuId  # noqa: PLC0415

    a, b = (Running(job, "cpu", (GpuId("n", 0),)) for job in (first, second))
    # They overlap in the record, so each goes at the speed of its kind.
    assert loaded.world.steps_per_s(a, [b]) == pytest.approx(1 / 0.5 / 1.6)
    assert loaded.world.steps_per_s(b, [a]) == pytest.approx(1 / 0.25 / 1.2)


def test_the_command_line_takes_an_export(made: Exported, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-c", str(made.cluster), "-t", str(made.trace), "--measured", str(made.measured), "-p", "fifo", "--json"]
    assert app.run(["simulate", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "what the live cluster measured" in found["world"]
    assert found["runs"][0]["finished"] == 2


class UsedByOthers(FakeScheduler):
    """Others used half of the devices of its first job, a fourth of its second; of a third nothing is known."""

    def finished_jobs(self, labels: object = None) -> list[dict[str, Any]]:
        del labels
        used = (0.5, 0.25, None)
        ended = (_record(1, "a", 100.0, 12.0, 20), _record(2, "b", 120.0, 4.0, 8), _record(4, "b", 140.0, 9.0, 20))
        return [one | {"progress": one["progress"] | {"others_ratio": of}} for one, of in zip(ended, used, strict=True)]


def test_an_export_says_how_far_others_used_the_devices(
    tmp_path: Path, made: Exported, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made.others_ratio is None
    monkeypatch.setattr("colane.cli.jobs.objects.client", lambda: nullcontext(UsedByOthers()))
    assert app.run(["export", "--out", str(tmp_path / "used")]) == 0
    assert "others used 44 % of their devices while they ran" in capsys.readouterr().out
    assert app.run(["export", "--out", str(tmp_path / "used"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["others_ratio"] == pytest.approx((12 * 0.5 + 4 * 0.25) / 16)


class SavingScheduler(FakeScheduler):
    """Of its two jobs the first saves its state."""

    def finished_jobs(self, labels: object = None) -> list[dict[str, Any]]:
        first, *others = super().finished_jobs(labels)
        return [{**first, "needs": {**first["needs"], "preemptible": True, "abortable": False}}, *others]


@pytest.mark.parametrize(("words", "saving"), [((), 1), (("--checkpoints",), 2), (("--no-checkpoints",), 0)])
def test_a_job_that_may_be_stopped_is_kept_unless_the_command_says_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], saving: int
) -> None:
    made = export_jobs(SavingScheduler(), {}, tmp_path / "export")  # type: ignore[arg-type]
    assert [job.spec.preemptible for job in read(made.trace).jobs] == [True, False]
    made.cluster.write_text(f"costs: {{restart: 7s, to_host: 5GB/s}}\n{made.cluster.read_text()}")
    files = ["-c", str(made.cluster), "-t", str(made.trace), "--measured", str(made.measured)]
    assert app.run(["simulate", *files, "-p", "fifo", "--json", "--to-host", "2GB/s", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["preemptible_jobs"] == saving
    assert [(one["restart_s"], one["to_host_bytes_per_s"], one["park_s"]) for one in found["costs"]] == [(7, 2e9, 0)]


class HoldingScheduler(FakeScheduler):
    """Of its two jobs the second was suspended while it waited, and let go 9 s after it was submitted."""

    def finished_jobs(self, labels: object = None) -> list[dict[str, Any]]:
        first, second, *others = super().finished_jobs(labels)
        moves = [(101.0, "queued", []), (103.0, "queued", ["user"]), (110.0, "queued", []),
                 (113.0, "assigned", []), (114.0, "running", [])]  # fmt: skip
        story = [{"at_s": at_s, "state": state, "held_by": held_by} for at_s, state, held_by in moves]
        return [first, {**second, "story": story, "first_start_s": 113.0}, *others]


def test_a_job_that_was_held_is_held_as_long_when_it_is_simulated(tmp_path: Path) -> None:
    made = export_jobs(HoldingScheduler(), {}, tmp_path / "export")  # type: ignore[arg-type]
    assert [job.held_s for job in read(made.trace).jobs] == [0.0, 9.0]


class OrderedScheduler(FakeScheduler):
    """Of its jobs the second waited for the first, and for one that is not in the trace where `misses`."""

    misses = False

    def finished_jobs(self, labels: object = None) -> list[dict[str, Any]]:
        first, second, *others = super().finished_jobs(labels)
        moves = [(101.0, "queued", ["after"]), (110.0, "queued", []), (113.0, "assigned", [])]
        story = [{"at_s": at_s, "state": state, "held_by": held_by} for at_s, state, held_by in moves]
        after = f"ok:{first['id']}" + (",any:999" if self.misses else "")
        needs = {**second["needs"], "after": after}
        return [first, {**second, "needs": needs, "story": story, "first_start_s": 113.0}, *others]


@pytest.mark.parametrize("misses", [False, True])
def test_what_a_job_waited_for_goes_along_or_the_time_it_took(tmp_path: Path, misses: bool) -> None:
    scheduler = OrderedScheduler()
    scheduler.misses = misses
    made = export_jobs(scheduler, {}, tmp_path / "export")  # type: ignore[arg-type]
    first, second = read(made.trace).jobs
    assert first.after == ""
    assert (second.after, second.held_s) == (("", 9.0) if misses else (f"ok:{first.spec.name}", 0.0))


class ChangingScheduler(FakeScheduler):
    """Of its two jobs the second was given another time limit than it had declared."""

    limit_s: float | None = None

    def finished_jobs(self, labels: object = None) -> list[dict[str, Any]]:
        first, second, *others = super().finished_jobs(labels)
        declared = {**second["needs"], "time_limit_s": 5.0}
        return [first, {**second, "needs": declared, "constraints": {"time_limit_s": self.limit_s}}, *others]


@pytest.mark.parametrize("limit_s", [None, 2.0])
def test_a_limit_that_was_changed_goes_along_beside_the_declared_one(tmp_path: Path, limit_s: float | None) -> None:
    scheduler = ChangingScheduler()
    scheduler.limit_s = limit_s
    made = export_jobs(scheduler, {}, tmp_path / "export")  # type: ignore[arg-type]
    first, second = read(made.trace).jobs
    assert (first.changed_limit_s, second.spec.time_limit_s) == (None, 5.0)
    assert second.changed_limit_s == (inf if limit_s is None else limit_s)


class FailingScheduler(FakeScheduler):
    """Its second job failed twice, once while it was launched, and was retried."""

    def finished_jobs(self, labels: object = None) -> list[dict[str, Any]]:
        first, second, *others = super().finished_jobs(labels)
        moves = [("queued", "", 0.0), ("launching", "", 1.0), ("queued", "retry", 2.0), ("launching", "", 3.0)]
        moves += [("running-protected", "", 4.0), ("running", "", 6.0), ("queued", "retry", 9.5)]
        moves += [("running", "", 11.0), ("queued", "preempted", 12.0), ("running", "", 13.0)]
        story = [
            {"state": state, "why": why, "at_s": second["submit_s"] + at_s, "held_by": []} for state, why, at_s in moves
        ]
        return [first, {**second, "story": story}, *others]


def test_attempts_that_failed_and_were_followed_by_another_go_along(tmp_path: Path) -> None:
    made = export_jobs(FailingScheduler(), {}, tmp_path / "export")  # type: ignore[arg-type]
    # Each begins again in simulations, which takes 3 s: the first was over before, the second after 6.5.
    assert [one.failed_s for one in read(made.trace).jobs[:2]] == [(), (0.0, 3.5)]


class SilentScheduler(FakeScheduler):
    """One job that steps and one that shows none, both shorter than what others take besides their steps."""

    def finished_jobs(self, labels: object = None) -> list[dict[str, Any]]:
        silent = {**_record(2, "b", 101.0, 1.5, 0, waited_s=12.0), "progress": None}
        return [*super().finished_jobs(labels)[:1], silent]


def test_all_of_the_run_of_a_job_without_steps_counts(tmp_path: Path) -> None:
    made = export_jobs(SilentScheduler(), {}, tmp_path / "export")  # type: ignore[arg-type]
    request = Request(cluster=str(made.cluster), trace=str(made.trace), measured=made.measured, world=WorldKind.TABLE)
    loaded = load(request, 0)
    assert [job.duration_s for job in loaded.workload.jobs] == [pytest.approx(10), pytest.approx(1.5)]
    done = simulate(inputs(request, loaded, "fifo", 0))
    assert list(done.ledger.rows.end_s) == [pytest.approx(12), pytest.approx(12 + 1.5)]
