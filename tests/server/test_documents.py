"""Every stored type survives the way through JSON text, with every field its class has."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from enum import Enum
from functools import cache
from itertools import product
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colane.api.forms import MAPPING, field_names, maybe, record, row
from colane.api.topologies import decode_topology, encode_topology
from colane.core.lifecycle import PHASES
from colane.core.usage import UsedGpus
from colane.model.hardware import GpuId, Node, Topology
from colane.model.job import Job, JobId, JobSpec, JobState
from colane.model.job_spec import Category, CommPattern, Constraints, IfNever, JobKind
from colane.model.phases import Hold, HoldKind
from colane.model.placement import Placement, Slot
from colane.model.profile import Profile, SetMeasurement
from colane.model.progress import Progress
from colane.model.reason import Reason, Why
from colane.scheduling.registry import preset
from colane.server.board.clock import CLOCK_MARK, ClockMark
from colane.server.board.read_model import COUNTERS, Counters, NodeRecord, decode_record, encode_record
from colane.server.store import documents
from tests.core.worlds import World
from tests.examples import examples

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
COUNTS = st.integers(0, 2**53)
SCALARS: Mapping[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: COUNTS,
    float: NUMBERS,
    bool: st.booleans(),
    NoneType: st.none(),
}


def any_of(hint: Any) -> st.SearchStrategy[Any]:
    """Every value that a type allows; of a record, with something in every field."""
    hint = getattr(hint, "__supertype__", hint)
    origin, parts = get_origin(hint), get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint]
    if origin in {Union, UnionType, Final}:
        return st.one_of([any_of(part) for part in parts])
    if origin is not None:
        return any_group_of(origin, parts)
    return st.sampled_from(hint) if issubclass(hint, Enum) else record_of(hint)


def any_group_of(origin: Any, parts: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    if issubclass(origin, Mapping):
        return st.dictionaries(TEXT, any_of(parts[1]), max_size=1)
    assert origin is tuple
    if parts[-1] is Ellipsis:
        return st.lists(any_of(parts[0]), max_size=1).map(tuple)
    return st.tuples(*(any_of(part) for part in parts))


@cache
def record_of(kind: Any) -> st.SearchStrategy[Any]:
    assert is_dataclass(kind) or issubclass(kind, tuple), kind
    hints = get_type_hints(kind)
    parts = {name: any_of(hints[name]) for name in field_names(kind)}
    if kind is Placement:
        parts["slots"] = st.tuples(record_of(Slot))  # it is never empty
    return st.builds(kind, **parts)


@pytest.mark.parametrize(
    ("kind", "encode", "decode"),
    [
        (Job, documents.encode_job, documents.decode_job),
        (Node, documents.encode_node, documents.NODE.read),
        (NodeRecord, encode_record, decode_record),
        (Profile, documents.encode_profile, documents.decode_profile),
        (SetMeasurement, documents.encode_measurement, documents.decode_measurement),
        (Progress, documents.encode_progress, documents.decode_progress),
        (Reason, documents.REASON.write, documents.REASON.read),
        (Topology, encode_topology, decode_topology),
        (UsedGpus, documents.USED.write, documents.USED.read),
        (Counters, COUNTERS.write, COUNTERS.read),
        (ClockMark, CLOCK_MARK.write, CLOCK_MARK.read),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_is_encoded_is_decoded_again(
    kind: Any, encode: Callable[[Any], Any], decode: Callable[[Any], Any]
) -> None:
    @settings(examples(25), suppress_health_check=list(HealthCheck))
    @given(record_of(kind))
    def through_text(value: Any) -> None:
        again = decode(json.loads(json.dumps(encode(value), allow_nan=False)))
        assert again == value
        assert repr(again) == repr(value), "a field is equal but of another type, such as text in the place of a state"

    through_text()


def test_a_job_document_from_before_a_field_existed_is_readable() -> None:
    body = {"id": 7, "submit_s": 1.0, "state": "queued", "spec": {"name": "a", "family": "a"}}
    assert documents.decode_job(body) == Job(id=JobId(7), spec=JobSpec(name="a", family="a"), submit_s=1.0)


LEFT_OUT: Final[Mapping[str, Mapping[str, Any]]] = {
    "spec": {
        "sizes": (), "gpu_type": None, "gpu_memory_bytes": None, "cores": 0, "host_memory_bytes": 0, "gpus": 1,
        "host_bandwidth_bytes_per_s": 0, "priority": 0, "time_limit_s": None, "retries": 0, "share": True,
        "deadline_s": None, "batch_size": None, "steps_total": None, "steps_limit": None, "measurement_group": None,
        "measurement_group_size": 1, "preemptible": False, "abortable": False, "kind": JobKind.TRAINING,
        "latency_s": None, "group": "", "multi_node": False, "anti_collocation": False, "gpus_per_node": 0,
        "comm_weight": None, "comm_pattern": CommPattern.ALL, "sharing_domain": "", "cores_offered": 0,
        "cores_beside": 0, "comment": "",
        "category": Category.UNKNOWN, "core_hints": (), "checkpoint": None, "batch_per_gpu": False, "after": "",
        "if_never": IfNever.CANCEL, "nodes": "", "whole_node": False, "pools": (),
    },
    "constraints": {
        "isolated": False, "not_preemptible": False, "checkpoint": None, "sizes_lost": (), "cores": None,
        "sharing_domain": "", "gpu_memory_bytes": None, "steps_total_doubted": False, "steps_total_said": None,
        "family": "",
        "needs_cores": False, "time_limit": None, "after": "", "promised": None, "away": (),
    },
    "run": {
        "assigned_s": None, "start_s": None, "first_step_s": None, "launch_s": None, "paused_since_s": None,
        "saves_asked": 0, "host_refusal": "", "ended_on": (), "is_broken_off": False, "went_on_s": None,
        "began_s": None, "exit": None,
    },
    "totals": {
        "served": (), "steps_kept": 0, "failures": 0, "losses": 0, "preemptions": 0, "saves_failed": 0, "sent_back": 0,
        "requeued": 0,
    },
}  # fmt: skip
"""What documents leave out, and what it means: stores hold it so, whatever the defaults of a later Colane are."""


def test_what_a_document_leaves_out_means_what_it_meant() -> None:
    plain = Job(id=JobId(7), spec=JobSpec(name="a", family="a"), submit_s=1.0)
    body = documents.encode_job(plain)
    for part, meant in LEFT_OUT.items():
        kind = type(getattr(plain, part))
        assert set(field_names(kind)) - body[part].keys() == meant.keys(), part
        read = getattr(documents.decode_job(body), part)
        assert {name: getattr(read, name) for name in meant} == meant


def test_what_an_older_colane_wrote_over_a_declaration_is_put_beside_it() -> None:
    spec = {"name": "a", "family": "a", "cores": 5, "cores_asked": 3, "circle": "user ann", "share": False}
    job = documents.decode_job({"id": 7, "submit_s": 1.0, "state": "queued", "spec": spec})
    assert job.spec == JobSpec(name="a", family="a", cores=3, share=False)
    assert job.constraints == Constraints(cores=5, sharing_domain="user ann")
    assert (job.effective.cores_offered, job.effective.sharing_domain) == (5, "user ann")


def flat(job: Job) -> dict[str, Any]:
    """The document of a job from before its phases were records: their fields stood among its own."""
    body: dict[str, Any] = json.loads(json.dumps(documents.encode_job(job)))
    body |= {**body.pop("run"), **body.pop("totals"), "falls_back_to": None, "launches_failed": 0}
    suspension, back = body.pop("suspension"), body.pop("falls_back")
    if back is not None:
        body |= {"falls_back_to": back["to"], "launches_failed": back["launches_failed"]}
    body |= {"suspended": suspension is not None, "suspended_via": job.suspended_via.value, "suspended_by": ""}
    if suspension is not None:
        body["suspended_by"] = suspension["by"]
    leaving, parking, on_host = body.pop("leaving"), body.pop("parking"), body.pop("on_host")
    body |= {"parked": parking is not None, "home": "", "preempted_for": None}
    body |= {"ending": None, "resizes_to": None, "isolates": False, "is_loss": False}
    body |= {"on_host_bytes": None, "left_beside": []}
    if parking is not None:
        body |= {"home": parking["home"], "preempted_for": parking["for_job"]}
    if leaving is not None:
        body |= {**leaving, "preempted_for": leaving["for_job"]}
    if on_host is not None:
        body |= {"on_host_bytes": on_host["size_bytes"], "left_beside": on_host["left_beside"]}
    return body


def test_documents_from_before_phases_were_records_are_read() -> None:
    seen = set[str]()
    for seed, name in product(range(10), ("srtf", "colane")):
        world = World(preset(name, quantum_s=2.0), seed)
        for _ in range(150):
            for job in world.step(world.random_event()).jobs:
                seen |= {phase for phase in PHASES if getattr(job, phase)}
                if job.leaving is not None and job.leaving.is_requeued:
                    continue  # no record of before tells of a requeue
                assert documents.decode_job(flat(job)) == job
    assert seen == PHASES.keys() - {"halted"}, "which came later"


def as_before(job: Job) -> Job:
    """The job as read from a record that says only by its story what has fields of its own now."""
    return documents.decode_job({name: value for name, value in flat(job).items() if name not in TOLD_BY_STORY})


TOLD_BY_STORY = {
    "suspended_by", "parked", "home", "preempted_for", "resizes_to", "isolates", "is_loss", "assigned_s",
    "paused_since_s", "paused_before_s", "losses", "reason", "story_left_out",
}  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_records_of_before_are_read_from_their_stories(seed: int) -> None:
    world = World(preset("srtf", quantum_s=2.0), seed)
    for _ in range(150):
        for job in world.step(world.random_event()).jobs:
            if Why.PARKED in {told.reason.why for told in job.story}:
                continue  # no job was parked before there were fields for it
            if job.spec.checkpoint is not None:
                continue  # nor asked to save its state
            if job.leaving is not None and job.leaving.is_requeued:
                continue  # nor told of a requeue
            before = as_before(job)
            assert before.run.paused_before_s == pytest.approx(job.run.paused_before_s)
            run = before.run._replace(paused_before_s=job.run.paused_before_s, host_refusal=job.run.host_refusal)
            assert replace(before, run=run) == job


@pytest.mark.parametrize(
    ("via", "holds"), [("lane", (Hold(HoldKind.USER, "ann"),)), ("limit", ())], ids=["by a user", "by a limit"]
)
def test_a_job_that_was_suspended_while_it_waited_is_held(via: str, holds: tuple[Hold, ...]) -> None:
    job = Job(id=JobId(7), spec=JobSpec(name="a", family="a"), submit_s=1.0, reason=Reason(Why.HELD, {"by": "ann"}))
    body = {**flat(job), "suspended": True, "suspended_via": via, "suspended_by": "ann"}
    del body["holds"]
    read = documents.decode_job(body)
    assert (read.suspension, read.holds) == (None, holds)


def test_a_job_that_ended_suspended_is_not_suspended_any_more() -> None:
    job = Job(id=JobId(7), spec=JobSpec(name="a", family="a"), submit_s=1.0, state=JobState.CANCELLED)
    assert documents.decode_job({**flat(job), "suspended": True, "suspended_via": "host", "suspended_by": "ann"}) == job


def test_a_field_the_type_does_not_know_is_ignored() -> None:
    body = documents.encode_job(Job(id=JobId(7), spec=JobSpec(name="a", family="a"), submit_s=1.0))
    newer = {**body, "colour": "red", "spec": {**body["spec"], "colour": "red"}}
    assert documents.decode_job(newer) == documents.decode_job(body)


def test_a_row_of_another_length_takes_defaults_and_leaves_out_the_rest() -> None:
    form = row(GpuId)
    assert form.read(["n", 1, "more"]) == GpuId("n", 1)
    with pytest.raises(TypeError, match="number"):
        form.read(["n"])


def test_a_form_for_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(TypeError, match="JobSpec has no field colour"):
        record(JobSpec, colour=maybe(MAPPING))
