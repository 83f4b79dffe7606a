from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from colane.foresee.judged import Foretold, judged, judged_rows
from colane.foresee.said import QuoteBounds, StartQuote
from colane.lab.report.foreseen import foreseen_table, shared_table
from colane.lab.report.html import JOB_ROWS_MAX, OPEN_ROWS_MAX, Picture, page, without_equal
from colane.lab.report.measured import Boundary
from colane.lab.report.records import JobTime, RunGroup
from colane.lab.report.tables import Table, TableColumn
from colane.lab.report.writer import build
from colane.model.job import JobState
from colane.model.profile import Profile, Value, ValueSource
from colane.model.time_spent import TimeSpent

from .batches import DEVICES, colocate, fifo, key, measurement, record

VOID = {"meta", "br", "link", "img"}


class Reader(HTMLParser):
    """Judges nesting, gathers ids, text and everything that would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href") and not (value or "").startswith(("#", "data:")):
                self.fetched.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text.append(data)


def read(page: Path) -> Reader:
    reader = Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    reader.close()
    assert reader.open == []
    return reader


def test_a_report_of_two_runs_is_whole(tmp_path: Path) -> None:
    taken = [measurement(1.3, "a", "b"), measurement(0.8, "a", "a")]
    report = build([fifo(), colocate()], taken, tmp_path / "new" / "out", title="Best case")
    assert report.summary.startswith("Co-location ended the batch in 16 s instead of 20 s (-20 %)")
    assert report.sentences[-1].startswith("Sharing pays (delta >= 1) for 1 of 2 sets measured")
    page = read(report.html)
    said = [text.strip() for text in page.text if text.strip()]
    assert said[:3] == ["Best case", "Best case", report.summary]  # the tab's title, the heading, the sentence
    assert page.fetched == []
    assert "script" not in page.tags
    assert len(page.ids) == len(set(page.ids))
    assert page.tags.count("svg") == len(report.figures)
    names = {path.name for path in report.figures}
    assert names >= {"timeline.png", "makespan.png", "jobs_over_time.png", "run_span_cdf.png", "queue_cdf.png"}
    assert "speedup_sets.png" in names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in report.figures)


def test_the_summary_file_uses_the_common_names(tmp_path: Path) -> None:
    bounds = QuoteBounds(50.0, 100.0, 200.0, 20)
    quotes = [Foretold(StartQuote(n, 0.0, (bounds,) * 5, bounds, is_told=True), 60.0 + 50 * n, 900.0) for n in range(8)]
    foreseen = judged_rows("fifo", judged(quotes))
    ann = {
        "user": "ann", "jobs": 2, "gpu_h": 1.5, "took_h": 2.0, "alone_h": (3.0, 2.5, 3.5), "slowed": 1,
        "slowed_ratio": 1.25, "slowed_jobs": [{"job": 1, "ratio": 1.25}],
    }  # fmt: skip
    told = [foreseen_table(foreseen), shared_table([{"start_s": 0.0, "users": [ann]}])]  # type: ignore[list-item]
    report = build([fifo(), colocate()], [measurement(1.3, "a", "b")], tmp_path, title="Best case", told=told)
    (shared,) = [table for table in report.tables if table.key == "shared"]
    assert shared.texts() == [["ann", "2", "1.5", "2.0", "3.0", "2.5", "3.5", "1", "1.25"]]
    assert [table.key for table in report.tables if table.rows].count("foreseen") == 1
    assert "What was foreseen, and what came of it" in report.html.read_text()
    found = json.loads(report.summary_json.read_text())
    first, second = found["runs"]
    assert (first["policy"], first["jobs"], first["finished"], first["makespan_s"]) == ("fifo", 3, 3, 20.0)
    for name in ("jct_s", "queue_s", "run_span_s"):
        assert set(first[name]) == {"mean", "p50", "p95", "p99"}
    assert set(first) >= {"gpu_active_ratio", "restarts", "slowdown_variance"}
    assert second["queue_s"]["mean"] == 0.0
    assert found["summary"] == report.summary
    assert found["comparisons"][0]["makespan_percent"] == pytest.approx(-20.0)
    assert found["measured_sets"][0]["verdict"] == "pays"
    assert found["not_measured"] == list(report.notes)


def test_where_time_went_is_drawn_and_told_as_the_mean_of_a_job(tmp_path: Path) -> None:
    times = [JobTime("job-1", TimeSpent(1.0, 2.0, 6.0, 0.0, 1.0), 2.0), JobTime("job-2", TimeSpent(3.0, 2.0, 4.0))]
    jobs = [replace(record, time=time) for record, time in zip(fifo().records, [*times, None], strict=True)]
    report = build([RunGroup("fifo", tuple(jobs))], [], tmp_path, title="x")
    assert tmp_path / "time_spent.png" in report.figures
    (row,) = json.loads(report.summary_json.read_text())["time_spent"]
    told = {
        "queueing_s": 2.0,
        "launching_s": 2.0,
        "running_s": 4.0,
        "lost_s": 1.0,
        "checkpointing_s": 0.5,
        "untold_s": 0.0,
    }
    assert row == {"group": "fifo", "jobs": 2, "paused_s": 0.0, **told, "whole_s": sum(told.values())}


def test_every_job_is_in_the_csv(tmp_path: Path) -> None:
    report = build([fifo(), colocate()], [], tmp_path, title="x")
    rows = list(csv.DictReader(report.jobs_csv.read_text(encoding="utf-8").splitlines()))
    assert [(row["group"], row["id"]) for row in rows] == [
        ("fifo", "1"), ("fifo", "2"), ("fifo", "3"), ("colocate", "4"), ("colocate", "5"), ("colocate", "6"),
    ]  # fmt: skip
    assert rows[3]["shared_ratio"] == "1.0"


def test_tables_are_plain_rows_for_a_terminal(tmp_path: Path) -> None:
    report = build([fifo(), colocate()], [], tmp_path, title="x")
    tables = {table.key: table for table in report.tables}
    assert set(tables) == {"groups", "comparisons", "measured_sets", "step_times", "time_spent", "jobs"}
    assert tables["groups"].texts()[1][:4] == ["colocate", "3", "3", "16 s"]
    assert tables["comparisons"].texts()[0][:3] == ["colocate", "fifo", "-20 %"]
    for table in report.tables:
        assert all(len(row) == len(table.columns) for row in table.texts())
    json.dumps([table.records() for table in report.tables], allow_nan=False)


NEVER = record(1, 0, None, 5, state=JobState.CANCELLED, family="x")
ODD: dict[str, list[RunGroup]] = {
    "no group": [],
    "an empty group": [RunGroup("fifo", ())],
    "an empty group beside another": [RunGroup("fifo", ()), colocate()],
    "one job": [RunGroup("fifo", (record(1, 0, 1, 2),))],
    "a job of no length": [RunGroup("fifo", (record(1, 3, 3, 3),))],
    "a job that never started": [RunGroup("fifo", (NEVER,), DEVICES)],
    "all failed": [RunGroup("fifo", (record(1, 0, 1, 2, state=JobState.FAILED),)), fifo().__class__("x", ())],
    "clocks that differ": [RunGroup("fifo", (record(1, 10, 4, 2),))],
    "no step durations": [replace(fifo(), devices=())],
    "a job that ran nowhere": [RunGroup("fifo", (record(1, 0, 1, 2, gpus=()),))],
}


@pytest.mark.parametrize("name", ODD)
def test_odd_groups_are_reported_and_said(name: str, tmp_path: Path) -> None:
    report = build(ODD[name], [], tmp_path, title=name)
    page = read(report.html)
    assert report.summary in page.text
    assert any("No set of jobs was measured together" in note for note in report.notes)
    json.loads(report.summary_json.read_text(), parse_constant=pytest.fail)


def test_names_are_escaped_everywhere(tmp_path: Path) -> None:
    evil = "<script>alert('x')</script> $x_1$ & \"q\""
    job = record(1, 0, 1, 2, name=evil, family=evil, user=evil, state=JobState.FAILED, reason=evil)
    groups = [RunGroup(evil, (job, record(2, 0, 1, 2, name=evil, family=evil))), colocate()]
    taken = [measurement(1.3, evil, evil, sharing="../" + evil)]
    profiles = [Profile(key=key(evil), occupancy=Value(3.0, ValueSource.MEASURED))]
    report = build(groups, taken, tmp_path / "out", title=evil, profiles=profiles)
    page = read(report.html)
    assert "script" not in page.tags
    assert any(evil in text for text in page.text)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_profiles_add_their_figures(tmp_path: Path) -> None:
    profiles = [
        Profile(
            key=key(family, batch),
            step_s=Value(batch / 1000, ValueSource.MEASURED),
            occupancy=Value(1e6 * batch, ValueSource.MEASURED),
            bandwidth=Value(5e5 * batch, ValueSource.MEASURED),
        )
        for family in "ab"
        for batch in (64, 128)
    ]
    taken = [measurement(1.3, "a", "b", sharing="mps"), measurement(1.1, "a", "b", sharing="time-slice")]
    report = build([], taken, tmp_path, title="x", profiles=profiles, boundary=Boundary(2.0, -1e-8))
    names = {path.name for path in report.figures}
    assert names >= {"throughput.png", "speedup_plane_mps.png", "speedup_plane_time-slice.png", "mps_gain.png"}


def test_a_thousand_jobs_and_more_stay_one_page(tmp_path: Path) -> None:
    jobs = tuple(record(i, i, i, i + 3, step_durations_s=(1.0,) * 3) for i in range(JOB_ROWS_MAX + 500))
    report = build([RunGroup("fifo", jobs, DEVICES)], [], tmp_path, title="x")
    text = report.html.read_text(encoding="utf-8")
    assert f"The first {JOB_ROWS_MAX:,} of {JOB_ROWS_MAX + 500:,} rows; jobs.csv has all." in text
    assert len(text) < 5_000_000
    assert len(report.jobs_csv.read_text().splitlines()) == JOB_ROWS_MAX + 501


def test_three_sentences_come_first_and_whatever_is_put_in_is_escaped() -> None:
    said = ["One <b>.", "Two & more.", "Three.", "Four."]
    long = Table("jobs", "Jobs", (TableColumn("id", "Job", str),), tuple((f"<{n}>",) for n in range(OPEN_ROWS_MAX + 1)))
    text = page("A < B", said, [long], [Picture("p", "<svg></svg>", "What it <shows>.")], ["Note <i>."])
    assert re.findall(r'<p class="summary">(.*?)</p>', text) == ["One &lt;b&gt;.", "Two &amp; more.", "Three."]
    assert "<li>Four.</li>" in text
    assert "<svg></svg>" in text
    assert '<details id="jobs">' in text, "folded up"
    for raw in ("<b>", "<i>", "<shows>", "<0>", "A < B"):
        assert raw not in text


def test_the_same_input_gives_the_same_files(tmp_path: Path) -> None:
    one, two = (build([fifo(), colocate()], [], tmp_path / name, title="x") for name in ("one", "two"))
    for path in (one.html, one.summary_json, one.jobs_csv, *one.figures):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    assert one.tables[0].rows == two.tables[0].rows


def test_two_groups_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="groups must have different names, got 'fifo' twice"):
        build([fifo(), fifo()], [], tmp_path, title="x")


def test_light_and_dark_both_have_every_colour(tmp_path: Path) -> None:
    text = build([fifo()], [], tmp_path, title="x").html.read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{([^}]*)\}", text)
    used = set(re.findall(r"var\((--\w+)\)", text))
    for scheme in (light, dark):
        assert used <= set(re.findall(r"(--\w+):", scheme))


def test_importing_the_package_is_cheap() -> None:
    code = "import sys, colane.lab.report; print(*(m for m in ('matplotlib', 'numpy', 'pydantic') if m in sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_columns_that_say_the_same_everywhere_are_said_once() -> None:
    columns = (TableColumn("id", "Job", str), TableColumn("user", "User", str), TableColumn("s", "Time", str))
    table = Table("jobs", "Jobs", columns, tuple((number, "me", number % 2) for number in range(5)), "Note.")
    shown = without_equal(table)
    assert [column.heading for column in shown.columns] == ["Job", "Time"]
    assert shown.rows[1] == (1, 1)
    assert shown.note == "Note. The same in every row: User: me."
    assert without_equal(replace(table, rows=table.rows[:2])).columns == columns


def test_step_times_alone_and_together_are_drawn_of_several_kinds_of_jobs(tmp_path: Path) -> None:
    jobs = (
        record(7, 200, 200, 212, step_durations_s=(5.0, 1.2)),
        record(8, 200, 200, 212, family="b", step_durations_s=(5.0, 2.4)),
    )
    report = build([fifo(), RunGroup("packed", jobs, DEVICES)], [], tmp_path / "two", title="x")
    assert "step_times.png" in {path.name for path in report.figures}
    report = build([fifo(), colocate()], [], tmp_path / "one", title="x")
    assert "step_times.png" not in {path.name for path in report.figures}


def test_one_set_is_told_and_not_drawn(tmp_path: Path) -> None:
    report = build([fifo(), colocate()], [measurement(1.3, "a", "b")], tmp_path, title="x")
    assert "speedup_sets.png" not in {path.name for path in report.figures}
    tables = {table.key: table for table in report.tables}
    assert len(tables["measured_sets"].texts()) == 1
