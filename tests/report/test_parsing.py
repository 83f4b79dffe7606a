from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from colane.lab.report.parsing import RecordError, devices_of_nodes, parse_records
from colane.lab.report.records import UNLABELLED, Device, group_by_label, group_by_policy
from colane.model.hardware import Gpu, GpuId, Node
from colane.model.job import Attempt, Job, JobId, JobSpec, JobState, StateChange, Totals
from colane.model.placement import Placement, Slot
from colane.model.reason import Reason, Why
from colane.server.store import documents
from colane.server.views.jobs_and_nodes import finished_view

from .batches import fifo, record


def job() -> Job:
    return Job(
        id=JobId(7),
        spec=JobSpec(name="train", family="vgg11", user="me", batch_size=64, labels={"run": "fifo"}, steps_total=3),
        submit_s=100.0,
        state=JobState.SUCCEEDED,
        attempt=2,
        placement=Placement((Slot(GpuId("node-1", 0), 0),)),
        first_start_s=101.0,
        run=Attempt(start_s=105.0),
        end_s=111.0,
        story=(StateChange(111.0, JobState.SUCCEEDED, Reason(Why.EXITED)),),
    )


def item(ended: Job | None = None, **finished: object) -> Any:
    """A record exactly as the scheduler sends it."""
    body = {"id": 7, "attempt": 2, "exit_code": 0, "outcome": "exited", "step_durations_s": [0.5, 0.25], **finished}
    document = {
        "job": documents.encode_job(ended or job()),
        "finished": body,
        "model_name": None,
        "policy": "fifo",
    }
    return json.loads(json.dumps(finished_view(document)))


def test_a_record_of_the_scheduler_is_read() -> None:
    (found,) = parse_records([item(progress={"at_s": 110.0, "steps": 3})])
    assert (found.id, found.name, found.family, found.batch_size, found.user) == (7, "train", "vgg11", 64, "me")
    assert found.labels == {"run": "fifo"}
    assert (found.policy, found.state, found.restarts) == ("fifo", JobState.SUCCEEDED, 1)
    assert (found.queue_s, found.run_span_s, found.jct_s) == (1.0, 10.0, 11.0)
    assert found.interval_s == (105.0, 111.0)
    assert found.gpus == ("node-1/0",)
    assert (found.steps, found.steps_total, found.step_s) == (3, 3, 0.25)
    assert found.reason == "exited with code 0"


def test_where_its_time_has_gone_is_read_with_what_was_lost() -> None:
    told = ((100.0, JobState.QUEUED), (102.0, JobState.LAUNCHING), (105.0, JobState.RUNNING))
    story = tuple(StateChange(at_s, state, Reason(Why.SUBMITTED)) for at_s, state in told)
    (found,) = parse_records([item(replace(job(), story=(*story, *job().story), totals=Totals(lost_s=2.0)))])
    assert found.time is not None
    assert found.time.label == "train #7"
    parts = {name: value for name, value in found.time.parts_s.items() if value}
    assert parts == {"queueing": 2.0, "launching": 3.0, "running": 4.0, "lost": 2.0}


def test_when_it_was_parked_is_read_from_its_story() -> None:
    told = ((100.0, JobState.QUEUED), (105.0, JobState.RUNNING), (107.0, JobState.PAUSED), (108.5, JobState.RUNNING))
    story = tuple(StateChange(at_s, state, Reason(Why.SUBMITTED)) for at_s, state in told)
    (found,) = parse_records([item(replace(job(), story=(*story, *job().story)))])
    assert found.pauses_s == ((107.0, 108.5),)
    assert found.ran_s == ((105.0, 107.0), (108.5, 111.0))


def test_a_job_that_never_started_is_read() -> None:
    queued = replace(
        job(), state=JobState.CANCELLED, attempt=0, placement=None, first_start_s=None, run=Attempt(), story=()
    )
    raw = item(queued, attempt=0)
    for name in ("step_durations_s", "outcome", "exit_code", "progress"):
        raw.pop(name, None)
    (found,) = parse_records([raw])
    assert (found.queue_s, found.run_span_s, found.step_s, found.steps) == (None, None, None, None)
    assert (found.restarts, found.gpus, found.jct_s) == (0, (), 11.0)


def test_without_durations_the_reported_mean_is_taken() -> None:
    (found,) = parse_records([item(step_durations_s=[], progress={"at_s": 1.0, "step_mean_s": 0.7})])
    assert found.step_s == 0.7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"submit_s": None}, "job 7: field 'submit_s': Input should be a valid number, got None"),
        ({"end_s": "now"}, "job 7: field 'end_s': Input should be a valid number, got 'now'"),
        ({"end_s": float("nan")}, "job 7: field 'end_s': Input should be a finite number, got nan"),
        ({"steps": True}, "job 7: field 'steps': Input should be a valid integer, got True"),
        ({"state": "running"}, "job 7: field 'state': must be an ended state, got 'running'"),
        ({"state": "done"}, "job 7: field 'state': "),
        ({"step_durations_s": [-1.0]}, "job 7: field 'step_durations_s.0': "),
        ({"gpus": "n/0"}, "job 7: field 'gpus': "),
    ],
)
def test_a_bad_field_is_named_with_its_record(changes: dict[str, object], message: str) -> None:
    with pytest.raises(RecordError) as caught:
        parse_records([item(), {**item(), **changes}])
    assert str(caught.value).startswith(message)


def test_what_a_newer_scheduler_says_besides_is_no_hindrance() -> None:
    assert parse_records([{**item(), "colour": "red"}]) == parse_records([item()])


@pytest.mark.parametrize("name", ["name", "family", "state", "submit_s", "end_s", "gpus", "labels", "first_start_s"])
def test_a_missing_field_is_named(name: str) -> None:
    raw = item()
    del raw[name]
    with pytest.raises(RecordError, match=f"job 7: field '{name}': missing"):
        parse_records([raw])


def test_what_is_no_record_is_named_by_its_place() -> None:
    with pytest.raises(RecordError, match="record 0: "):
        parse_records(["job"])


def test_devices_come_from_nodes() -> None:
    gpus = tuple(Gpu(index=i, uuid=f"cpu-{i}", type="cpu", memory_bytes=1) for i in range(2))
    raw = documents.encode_node(Node(name="n", gpus=gpus))
    assert devices_of_nodes([raw]) == (Device("n/0", "cpu"), Device("n/1", "cpu"))
    with pytest.raises(RecordError, match="node object: field 'gpus': missing"):
        devices_of_nodes([{"name": "n"}])


def test_groups_keep_the_order_of_submission_and_drop_no_job() -> None:
    late = record(1, 50, 50, 60, labels={"run": "late"}, policy="colocate")
    early = record(2, 10, 10, 20, labels={"run": "early"}, policy="fifo")
    none = record(3, 70, 70, 80)
    assert [group.name for group in group_by_label([late, none, early], "run")] == ["early", "late", UNLABELLED]
    assert [group.name for group in group_by_policy([late, early])] == ["fifo", "colocate"]


def test_devices_that_were_used_but_not_given_are_added_in_order() -> None:
    group = replace(fifo(), devices=(Device("n/10", "cpu"), Device("n/1", "cpu")))
    assert [device.name for device in group.all_devices] == ["n/0", "n/1", "n/10"]
