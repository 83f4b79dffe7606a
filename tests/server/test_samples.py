"""Samples: what reports bring is kept in rings, beside the store, and shown to those who are told of the job."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colane.model.choices import See
from colane.model.device_use import DeviceUsage, JobUsage
from colane.server.samples.codec import DEVICE, JOB, Join, Kind, SampleField, joined, mask_of, words_of
from colane.server.samples.file import ASIDE
from colane.server.samples.keeper import POINTS_MAX, SampleKeeper, together, window
from colane.server.samples.rings import LEVELS
from colane.server.views import sampled
from colane.server.views.sampled import Times
from tests.server.harness import finished, launched, node, report, world
from tests.server.test_users import guest

HOUR_S, DAY_S = 3600.0, 86_400.0
T0 = 1_800_000_000.0
USE = {"busy_ratio": 0.5, "device_bytes": 4096, "cpu_cores": 1.25, "host_bytes": 8192, "steps_per_s": 3.5, "share_ratio": 0.75}  # fmt: skip  # noqa: E501
SEEN = {"index": 0, "busy_ratio": 0.25, "used_bytes": 2048, "power_w": 99.5, "temperature_c": 50.0, "throttle": ["thermal"], "xid": 31}  # fmt: skip  # noqa: E501


@pytest.fixture
def samples(tmp_path: Path) -> Iterator[SampleKeeper]:
    kept = SampleKeeper.at(tmp_path / "samples.db")
    yield kept
    kept.close()


def device(**values: Any) -> list[DeviceUsage]:
    return [DeviceUsage(0, **values)]


async def shown(samples: SampleKeeper, now_s: float, last_s: float = HOUR_S, until_s: float | None = None) -> Any:
    return await sampled.node(samples, "n1", now_s, last_s, until_s)


def test_a_sample_comes_back_as_it_was_and_unknown_is_not_zero() -> None:
    data = bytearray(DEVICE.unknown * 3)
    DEVICE.pack_into(data, 1, (0.5, 3 * 1024, 250.5, 61, mask_of(("power-cap", "hw-thermal")), 79))
    DEVICE.pack_into(data, 2, (0.0, 0, 0.0, 0, 0, None))
    columns = DEVICE.read(data)
    assert all(np.isnan(values[0]) for values in columns.values())
    assert [values[1] for values in columns.values()] == [0.5, 3072, 250.5, 61, 0b10001, 79]
    assert [values[2] for values in columns.values()][:5] == [0, 0, 0, 0, 0]
    assert np.isnan(columns["xid"][2])
    assert words_of(0b10001) == ["power-cap", "hw-thermal"]


def test_a_value_beyond_what_is_kept_is_the_largest_not_unknown() -> None:
    data = bytearray(JOB.unknown)
    JOB.pack_into(data, 0, (9e9, 2**53, 1e12, 2**53, 1e300, 5.0))
    assert not any(np.isnan(values[0]) for values in JOB.read(data).values())


@pytest.mark.parametrize("kind", [DEVICE, JOB], ids=["devices", "jobs"])
def test_things_joined_together_come_to_what_each_does_alone(kind: Kind) -> None:
    chance = random.Random(3)
    for number in range(50):
        reports, things = chance.randint(1, 5), chance.randint(1, 9)
        known = chance.choice([1.0, 0.8, 0.1])

        def drawn(of: SampleField, known: float = known) -> float | None:
            most = 63 if of.join is Join.ANY else 250 / of.scale if of.scale else 250
            value = chance.choice([0.0, chance.uniform(0, most), chance.uniform(0, 1000 * most)])
            return (round(value) if of.scale == 0.0 and of.code != "f" else value) if chance.random() < known else None

        rows = [[[drawn(of) for of in kind.fields] for _ in range(things)] for _ in range(reports)]
        packed, values = kind.joined_many(np.array(rows, np.float64))
        for thing in range(things):
            alone, data = kind.joined([row[thing] for row in rows]), bytearray(kind.size_bytes)
            kind.pack_into(data, 0, alone)
            assert values[thing] == pytest.approx(tuple(alone)), number
            seen, expected = kind.read(packed[thing]), kind.read(data)
            for of in kind.fields:
                step = 1 / of.scale if of.scale else 1e-3  # a mean on the edge between two
                assert seen[of.name] == pytest.approx(expected[of.name], rel=1e-6, abs=step, nan_ok=True), (number, of)


async def test_ticks_are_means_and_peaks_and_what_was_not_seen_is_a_gap(samples: SampleKeeper) -> None:
    for second, busy, used in ((0, 0.2, 1024), (4, 0.4, 9216), (30, 1.0, 2048), (41, 0.0, 1024)):
        samples.take("n1", T0 + second, device(busy_ratio=busy, used_bytes=used), {})
    found = await shown(samples, T0 + 41, 41.0)
    assert (found["start_s"], found["step_s"]) == (T0, 10.0)
    (only,) = found["devices"]
    assert only["busy_ratio"] == [0.3, None, None, 1.0, None], "the last tick is being filled"
    assert only["used_bytes"] == [9216, None, None, 2048, None]
    assert only["power_w"] == [None] * 5
    assert found["now"][0]["busy_ratio"] == 0.0


async def test_minutes_are_made_of_ticks_and_ten_minutes_of_these(samples: SampleKeeper) -> None:
    for second in range(0, 1300, 10):
        samples.take("n1", T0 + second, device(busy_ratio=0.5 if second % 60 else 1.0, xid=second or None), {})
    day = await shown(samples, T0 + 1300, 2 * HOUR_S)
    assert day["step_s"] == 60.0
    minutes = [value for value in day["devices"][0]["busy_ratio"] if value is not None]
    assert len(minutes) == 21
    assert minutes[0] == pytest.approx(0.585, abs=0.01)
    week = await shown(samples, T0 + 1300, 5 * DAY_S)
    assert week["step_s"] == 600.0
    assert [value for value in week["devices"][0]["xid"] if value is not None][:1] == [590]


async def test_what_is_in_the_file_and_what_is_not_yet_are_shown_as_one(tmp_path: Path) -> None:
    first = SampleKeeper.at(tmp_path / "s.db")
    for second in range(0, 400, 10):
        first.take("n1", T0 + second, device(busy_ratio=0.5), {})
        if second == 200:
            await first.flush(T0 + second)
    before = await shown(first, T0 + 400, 400.0)
    await first.flush(T0 + 400, closing=True)
    first.close()
    later = SampleKeeper.at(tmp_path / "s.db")
    later.take("n1", T0 + 420, device(busy_ratio=1.0), {})
    later.take("n1", T0 + 431, device(busy_ratio=1.0), {})
    await later.flush(T0 + 431)
    values = (await shown(later, T0 + 431, 431.0))["devices"][0]["busy_ratio"]
    assert before["devices"][0]["busy_ratio"][:39] == [0.5] * 39
    assert values[:44] == [0.5] * 40 + [None, None, 1.0, None]
    later.close()


async def test_a_series_never_grows_beyond_its_rings(tmp_path: Path) -> None:
    samples = SampleKeeper.at(tmp_path / "s.db")
    chunk_s = LEVELS[0].chunk_s
    for chunk in range(40):
        samples.take("n1", T0 + chunk * chunk_s, device(busy_ratio=1.0), {})
        samples.take("n1", T0 + chunk * chunk_s + 10, device(busy_ratio=1.0), {})
        await samples.flush(T0 + chunk * chunk_s)
    samples.close()
    with sqlite3.connect(tmp_path / "s.db") as file:
        count = file.execute("SELECT count(*) FROM chunks WHERE level = 0").fetchone()[0]
    file.close()
    assert count == LEVELS[0].chunks


async def test_what_is_too_old_goes(samples: SampleKeeper) -> None:
    samples.take("n1", T0, device(busy_ratio=1.0), {7: JobUsage(busy_ratio=1.0)})
    await samples.flush(T0, closing=True)
    assert (await shown(samples, T0 + 60, 120.0))["devices"]
    await samples.prune(T0 + 200 * DAY_S)
    for level in range(len(LEVELS)):
        assert samples.file.read("a", "z", level, range(2**40)) == []


async def test_a_clock_that_jumps_breaks_nothing(samples: SampleKeeper) -> None:
    for at_s in (T0, T0 + 10, T0 - 5 * HOUR_S, T0 - 5 * HOUR_S + 10, T0 + 20, T0 + 30):
        samples.take("n1", at_s, device(busy_ratio=0.5), {})
        await samples.flush(at_s)
    values = (await shown(samples, T0 + 30, 30.0))["devices"][0]["busy_ratio"]
    assert values[0] == 0.5
    assert values[2] == 0.5


@pytest.mark.parametrize("content", [b"", b"this is no database" * 100])
async def test_a_file_that_is_lost_or_damaged_is_begun_anew(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "samples.db"
    path.write_bytes(content)
    samples = SampleKeeper.at(path)
    samples.take("n1", T0, device(busy_ratio=1.0), {})
    await samples.flush(T0, closing=True)
    assert (await shown(samples, T0, 20.0))["devices"][0]["busy_ratio"][-1] == 1.0
    samples.close()
    if content:
        assert "samples are begun anew" in caplog.text
        assert path.with_name(path.name + ASIDE).read_bytes() == content


async def test_without_a_place_for_the_file_samples_are_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    samples = SampleKeeper.at(tmp_path / "missing" / "samples.db")
    samples.take("n1", T0, device(busy_ratio=1.0), {})
    await samples.flush(T0, closing=True)
    assert (await shown(samples, T0, 20.0))["devices"]
    assert "kept in memory alone" in caplog.text
    samples.close()


def test_the_points_of_an_answer_are_bounded() -> None:
    for last_s in (1.0, HOUR_S, 1.1 * HOUR_S, DAY_S, 2 * DAY_S, 90 * DAY_S, 1e9):
        one = window(T0 - last_s, T0, T0)
        assert 1 <= one.ticks // one.joined <= POINTS_MAX
        assert one.ticks % one.joined == 0
        assert one.start_s <= T0 <= one.start_s + one.ticks * LEVELS[one.level].step_s


async def test_a_job_on_two_nodes_is_one(samples: SampleKeeper) -> None:
    parts = [JobUsage(0.5, 1024, 1.0, 2048, 2.0, None), JobUsage(1.0, 3072, 2.0, 2048, None, None)]
    for name, use in zip(("n1", "n2"), parts, strict=True):
        for second in (0, 10):
            samples.take(name, T0 + second, [], {7: use})
    both: Any = await sampled.job(samples, 7, T0 + 10, Times(T0, None), None, None)
    assert both["now"] == {
        "busy_ratio": 0.75, "device_bytes": 4096, "cpu_cores": 3.0, "host_bytes": 4096, "steps_per_s": 2.0,
        "share_ratio": None,
    }  # fmt: skip
    for name in ("busy_ratio", "device_bytes", "cpu_cores", "host_bytes", "steps_per_s", "share_ratio"):
        assert both[name][0] == both["now"][name], name
    assert together([parts[0], JobUsage()]).cpu_cores is None, "a part that is not known hides the whole"


@pytest.mark.parametrize(("join", "expected"), [(Join.MEAN, 2.0), (Join.MOST, 3.0), (Join.ANY, 3.0), (Join.LAST, 1.0)])
def test_long_times_are_joined_as_ticks_are(join: Join, expected: float) -> None:
    values = np.array([np.nan, 3.0, 1.0, np.nan, np.nan, np.nan])
    found = joined(values, 3, join)
    assert found[0] == expected
    assert np.isnan(found[1])


async def test_what_agents_report_is_shown_of_nodes_and_jobs() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        job = await w.submit()
        await w.good("POST", "/node/n1/report", report(launched(job, use=USE), devices=[SEEN]))
        assert (await w.good("GET", "/samples/nodes/n1"))["now"] == [SEEN]
        of_job = await w.good("GET", f"/samples/jobs/{job}")
        assert of_job["now"] == USE
        assert len(of_job["busy_ratio"]) == len(of_job["steps_per_s"]) >= 1
        await w.good("POST", "/finished_job", finished(job))
        assert (await w.good("GET", f"/samples/jobs/{job}"))["now"] is None


async def test_an_older_agent_says_nothing_of_use_and_nothing_is_made_up() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        job = await w.submit()
        await w.good("POST", "/node/n1/report", report(launched(job)))
        found = await w.good("GET", "/samples/nodes/n1")
        assert (found["devices"], found["now"]) == ([], [])
        of_job = await w.good("GET", f"/samples/jobs/{job}")
        assert of_job["now"] is None
        assert set(of_job["busy_ratio"]) == {None}


async def test_a_report_of_an_attempt_that_is_not_believed_is_no_sample() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        job = await w.submit()
        await w.good("POST", "/node/n1/report", report(launched(job, 9, use=USE), launched(44, use=USE)))
        assert (await w.good("GET", f"/samples/jobs/{job}"))["now"] is None
        assert w.service.samples.jobs == {}


async def test_samples_of_a_job_are_as_secret_as_the_job() -> None:
    async with world(see=See.OWN) as w:
        ann, bob = await guest(w, "a", user="ann"), await guest(w, "b", user="bob")
        await w.good("POST", "/node", node())
        job = await w.submit(user="ann")
        assert (await ann.ask("GET", f"/samples/jobs/{job}"))[0] == 200
        assert await bob.ask("GET", f"/samples/jobs/{job}") == await bob.ask("GET", f"/job/{job}")
        assert (await bob.ask("GET", "/samples/nodes/n1"))[0] == 200


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/samples/nodes/n9", 404, "no node 'n9'"),
        ("/samples/jobs/9", 404, "no job 9"),
        ("/samples/nodes/n1?last_s=0", 422, "last_s"),
        ("/samples/nodes/n1?last_s=1e9", 422, "last_s"),
        ("/samples/nodes/n1?until_s=-1", 422, "until_s"),
    ],
)
async def test_what_cannot_be_shown_is_said(path: str, status: int, says: str) -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        told, detail = await w.refused("GET", path)
        assert told == status
        assert says in str(detail)
