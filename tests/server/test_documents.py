"""Every model type survives the way through JSON text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.model.hardware import Gpu, GpuId, Node
from colane.model.job import Exit, Job, JobId, JobSpec, JobState, Move, Served
from colane.model.placement import Placement, Slot
from colane.model.profile import PlacePace, Profile, ProfileKey, SetMeasurement, Slowdown, Source, Value
from colane.model.reason import Reason, Why
from colane.server import documents

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
COUNTS = st.integers(0, 2**53)
IDS = COUNTS.map(JobId)
CORES = st.lists(COUNTS, max_size=3).map(tuple)
GPU_IDS = st.builds(GpuId, TEXT, COUNTS)
REASONS = st.builds(
    Reason,
    st.sampled_from(Why),
    st.dictionaries(TEXT, TEXT | COUNTS | NUMBERS, max_size=3),
    st.lists(COUNTS, max_size=3).map(tuple),
)
PLACEMENTS = st.builds(Placement, st.lists(st.builds(Slot, GPU_IDS, COUNTS), min_size=1, max_size=3).map(tuple), CORES)
SPECS = st.builds(
    JobSpec,
    name=TEXT,
    family=TEXT,
    gpu_type=st.none() | TEXT,
    gpu_memory_bytes=st.none() | COUNTS,
    time_limit_s=st.none() | NUMBERS,
    priority=st.integers(),
    share=st.booleans(),
    preemptible=st.booleans(),
    steps_total=st.none() | COUNTS,
    company=st.none() | TEXT,
    labels=st.dictionaries(TEXT, TEXT, max_size=3),
)
JOBS = st.builds(
    Job,
    id=IDS,
    spec=SPECS,
    submit_s=NUMBERS,
    state=st.sampled_from(JobState),
    placement=st.none() | PLACEMENTS,
    start_s=st.none() | NUMBERS,
    end_s=st.none() | NUMBERS,
    ending=st.none() | st.sampled_from(JobState),
    exit=st.none() | st.builds(Exit, st.none() | COUNTS, st.none() | COUNTS, TEXT),
    served=st.lists(st.builds(Served, TEXT, NUMBERS), max_size=3).map(tuple),
    story=st.lists(st.builds(Move, NUMBERS, st.sampled_from(JobState), REASONS), max_size=3).map(tuple),
)
GPUS = st.builds(Gpu, index=COUNTS, uuid=TEXT, type=TEXT, memory_bytes=COUNTS, cores=CORES, healthy=st.booleans())
NODES = st.builds(Node, name=TEXT, gpus=st.lists(GPUS, max_size=3).map(tuple), cores=CORES, pool=TEXT, agent_id=TEXT)
KEYS = st.builds(ProfileKey, TEXT, st.none() | COUNTS, COUNTS, TEXT)
KNOWN = st.builds(Value, NUMBERS, st.sampled_from(Source), COUNTS, TEXT)
VALUES = st.none() | KNOWN
PROFILES = st.builds(
    Profile,
    key=KEYS,
    step_s=VALUES,
    occupancy=VALUES,
    updated_s=NUMBERS,
    users=st.lists(TEXT).map(tuple),
    places=st.lists(st.builds(PlacePace, NUMBERS, KNOWN), max_size=2).map(tuple),
    slowdowns=st.lists(st.builds(Slowdown, KEYS, NUMBERS, KNOWN), max_size=2).map(tuple),
)
SERIES = st.lists(NUMBERS, max_size=3).map(tuple)
MEASUREMENTS = st.builds(
    SetMeasurement,
    keys=st.lists(KEYS, max_size=3).map(tuple),
    sharing=TEXT,
    step_alone_s=SERIES,
    step_together_s=SERIES,
    steps=CORES,
    delta=NUMBERS,
    delta_general=NUMBERS,
    at_s=NUMBERS,
)


@pytest.mark.parametrize(
    ("strategy", "encode", "decode"),
    [
        (JOBS, documents.encode_job, documents.decode_job),
        (NODES, documents.encode_node, documents.decode_node),
        (PROFILES, documents.encode_profile, documents.decode_profile),
        (MEASUREMENTS, documents.encode_measurement, documents.decode_measurement),
    ],
    ids=["job", "node", "profile", "measurement"],
)
def test_what_is_encoded_is_decoded_again(
    strategy: st.SearchStrategy[Any], encode: Callable[[Any], Any], decode: Callable[[Any], Any]
) -> None:
    @given(strategy)
    def through_text(value: Any) -> None:
        assert decode(json.loads(json.dumps(encode(value), allow_nan=False))) == value

    through_text()


def test_a_job_document_from_before_a_field_existed_is_readable() -> None:
    body = {"id": 7, "submit_s": 1.0, "state": "queued", "spec": {"name": "a", "family": "a"}}
    assert documents.decode_job(body) == Job(id=JobId(7), spec=JobSpec(name="a", family="a"), submit_s=1.0)
