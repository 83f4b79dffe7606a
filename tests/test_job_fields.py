"""The table of a job's fields and all that is made from it: a row is enough for every border."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from colane.api.job_request import JobRequest
from colane.api.jobs import DeclaredObject, NeedsObject
from colane.cli.app import make_app
from colane.cli.jobs.show import _said
from colane.cli.submit.jobfile import OTHER_NAMES, merged
from colane.cli.submit.scripts import OURS
from colane.facts.job import job_facts
from colane.lab.commands.export import _declared
from colane.lab.traces.readers.assemble import Options
from colane.lab.traces.readers.colane_csv import COLUMN_NAMES, read, write
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.field_values import (
    Amount,
    Flag,
    GpuSizes,
    Number,
    OneOf,
    SomeOf,
    Text,
    TextList,
    TextMap,
    Whole,
    within,
)
from colane.model.job import Job, JobId
from colane.model.job_fields import BY_NAME, JOB_FIELDS, JobField, Shelf, senseless
from colane.model.job_spec import CheckpointContract, JobSpec, NeedClass
from colane.server.board.submission import asked
from colane.server.views.jobs_and_nodes import job_view
from colane.settings.input_file import InputFileError
from colane.workloads import catalogue

ROWS = pytest.mark.parametrize("field", JOB_FIELDS, ids=lambda field: field.name)
OF_OTHERS = {"sizes": "gpus", "batch_per_gpu": "batch"}
"""Fields of a spec that are worked out of a field of another name."""
IMPOSED = {"sharing_domain", "cores_offered", "cores_beside", "pools"}
"""Fields of a spec that no owner fills in."""


def test_a_spec_has_the_fields_of_the_table_and_no_others() -> None:
    declared = {field.name for field in fields(JobSpec) if field.init}
    rows = {field.name for field in JOB_FIELDS if field.in_spec}
    assert declared == rows | set(OF_OTHERS) | IMPOSED
    assert set(OF_OTHERS.values()) <= set(BY_NAME)


@pytest.mark.parametrize("field", [field for field in JOB_FIELDS if field.in_spec], ids=lambda field: field.name)
def test_a_spec_that_says_nothing_has_the_defaults_of_the_table(field: JobField) -> None:
    spec = JobSpec(name="a", family="b")
    if field.name not in {"name", "family", "gpus"}:
        default = field.in_job(field.default)
        assert getattr(spec, field.name) == default


def test_the_class_of_need_has_what_decides_where_a_job_may_run() -> None:
    rows = {field.name for field in JOB_FIELDS if field.in_need}
    assert set(NeedClass._fields) == rows | {"sizes", "sharing_domain", "cores_beside", "home"}


def test_names_are_unique_under_every_of_their_names() -> None:
    names = [name for field in JOB_FIELDS for name in {field.name, field.said}]
    options = [name for field in JOB_FIELDS if field.option for name in field.option.names]
    slurm = [name for field in JOB_FIELDS for name in field.slurm]
    columns = [field.column for field in JOB_FIELDS if field.column]
    for known in (names, options, slurm, columns):
        assert sorted(known) == sorted(set(known))
    assert not set(OTHER_NAMES) & set(names), "another name for a field is no field itself"
    assert set(OURS) == set(slurm)


def test_the_trainers_fields_are_those_it_judges() -> None:
    rows = {field.name for field in JOB_FIELDS if field.of_trainer} - {"python"}
    assert rows == (set(catalogue.FIELDS) | set(catalogue.EXTRA_FIELDS)) - {"batch_size"}


@ROWS
def test_each_has_its_option(field: JobField) -> None:
    command: Any = get_command(make_app(["submit", "ps"]))
    options = {name: param for param in command.commands["submit"].params for name in param.opts}
    if field.option is not None:
        option = options[field.option.names[0]]
        assert set(field.option.names) == {*option.opts, *option.secondary_opts}
        assert option.help == field.option.help
        assert option.rich_help_panel == field.option.panel.value


@ROWS
def test_each_stands_in_the_request(field: JobField) -> None:
    schema = JobRequest.model_json_schema()["properties"]
    assert schema[field.name]["description"] == field.meaning
    if field.text:
        assert field.text in schema
    if isinstance(field.takes, OneOf | SomeOf):
        values = {one.value for one in field.takes.of}
        assert all(f"'{value}'" in str(schema[field.name]) for value in values)
    if isinstance(field.takes, Text):
        assert f"'maxLength': {field.takes.most}" in str(schema[field.name])


def test_a_request_knows_nothing_besides() -> None:
    assert set(JobRequest.model_fields) == {name for field in JOB_FIELDS for name in (field.name, field.said)}


@pytest.mark.parametrize(
    ("values", "has_gpus", "told"),
    [
        ({"anti_collocation": True}, True, ["anti_collocation"]),
        ({"anti_collocation": True, "multi_node": True}, True, []),
        ({"latency_s": 0.1}, True, ["latency_s"]),
        ({"latency_s": 0.1, "kind": "inference"}, True, []),
        ({"checkpoint_lead_s": 5.0}, True, ["checkpoint_lead_s"]),
        ({"checkpoint_lead_s": 5.0, "checkpoint": "plain"}, True, []),
        ({"gpu_type": "a", "multi_node": True}, False, ["gpu_type", "multi_node"]),
        ({"gpu_type": None, "multi_node": False, "cores": 2}, False, []),
    ],
)
def test_fields_that_make_no_sense_beside_the_others(values: dict[str, Any], has_gpus: bool, told: list[str]) -> None:
    assert [field.name for field, _ in senseless(values, has_gpus=has_gpus)] == told


def test_an_option_stands_for_what_a_file_says_in_the_base_unit() -> None:
    job = {"gpu_memory_bytes": 5, "time_limit_s": 60, "cores": 2}
    whole = merged(job, {"gpu_memory": "2GB", "cores": 3}, {})
    assert whole == {"gpu_memory": "2GB", "time_limit_s": 60, "cores": 3}


def other_than_default(field: JobField) -> Any:  # noqa: PLR0911 - one for each kind of values
    """A value as JSON has it that no job has unasked."""
    match field.takes:
        case Flag():
            return not field.default
        case Whole() | Number() as takes:
            known = (value for value in (3, takes.most) if value is not None and value != field.default)
            return next(value for value in known if within(takes, value))
        case Amount():
            return 5
        case OneOf(of):
            return next(one.value for one in of if one != field.default)
        case SomeOf(of):
            return [one.value for one in of]
        case TextMap():
            return {"a": "b"}
        case _:
            return {"checkpoint": "plain", "category": "nlp"}.get(field.name, "some text")


def a_request_says(field: JobField) -> Any:
    """A value that a request may have of a field."""
    if isinstance(field.takes, GpuSizes | TextList):
        return [1, 2] if isinstance(field.takes, GpuSizes) else ["a", "b"]
    return other_than_default(field)


def test_what_is_kept_of_a_request_is_what_it_says() -> None:
    """As pydantic writes it, but for what its launch has."""
    said = {field.name: a_request_says(field) for field in JOB_FIELDS}
    for fields_said in ([*said], [*reversed(said)], *([name] for name in said)):
        request = JobRequest.model_validate_json(json.dumps({name: said[name] for name in fields_said}))
        whole = request.model_dump(
            mode="json", exclude_unset=True, exclude_none=True, exclude={"command", "workdir", "env", "user"}
        )
        assert json.dumps(asked(request)) == json.dumps(whole)


SPOKEN = {field.name: other_than_default(field) for field in JOB_FIELDS if field.in_spec and field.name != "gpus"}
SPEC = JobSpec(**{name: BY_NAME[name].in_job(value) for name, value in SPOKEN.items()})
JOB = Job(JobId(1), SPEC, 0.0)


@ROWS
def test_each_stands_in_the_job_object_where_its_row_says(field: JobField) -> None:
    view: Any = job_view(JOB, None, "fifo", job_facts(JOB, None, None, 0.0))
    if field.shelf is not Shelf.NONE:
        body = view if field.shelf is Shelf.JOB else view["needs"]
        assert body[field.name] == (1 if field.name == "gpus" else _as_json(getattr(SPEC, field.name)))
    elif field.name != "model_name":
        assert field.name not in view
        assert field.name not in view["needs"]


def test_the_types_of_the_api_have_the_fields_that_rows_place_there() -> None:
    placed = {shelf: {field.name for field in JOB_FIELDS if field.in_spec and field.shelf is shelf} for shelf in Shelf}
    assert set(DeclaredObject.__annotations__) == placed[Shelf.JOB]
    assert set(NeedsObject.__annotations__) == placed[Shelf.NEEDS] | {"sizes", "batch_per_gpu"}


def _as_json(value: Any) -> Any:
    if isinstance(value, CheckpointContract):
        return {**value._asdict(), "saved_codes": list(value.saved_codes)}
    return value


@ROWS
def test_show_says_what_was_asked_and_nothing_else(field: JobField) -> None:
    for shelf in (Shelf.JOB, Shelf.NEEDS):
        spoken = dict(_said({field.name: SPOKEN.get(field.name)}, shelf))
        assert bool(spoken) is (bool(field.shown) and field.shelf is shelf)
        assert dict(_said({field.name: field.default}, shelf)) == {}


def test_a_trace_carries_what_has_a_column_and_gives_it_back(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    job = TraceJob(id=JobId(1), submit_s=0.0, spec=SPEC, duration_s=9.0)
    write(Workload(name="a", jobs=(job,)), path)
    [again] = read(path, path.read_text(), Options()).jobs
    for field in JOB_FIELDS:
        if field.column:
            assert field.column in COLUMN_NAMES
            assert getattr(again.spec, field.name) == getattr(SPEC, field.name), field.name


def test_what_is_exported_is_what_a_trace_can_carry() -> None:
    view = json.loads(json.dumps(job_view(JOB, None, "fifo", job_facts(JOB, None, None, 0.0))))
    told = {field.name: getattr(SPEC, field.name) for field in JOB_FIELDS if field.column}
    assert dict(_declared(view)) == told | {"nodes": f"{SPEC.nodes}-0"}  # as its cluster's file has the nodes


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        ("comm_weight", "5", "at most 4"),
        ("weight", "0", "more than 0"),
        ("kind", "dancing", "must be one of training, inference"),
        ("anti_collocation", "1", "needs multi_node"),
    ],
)
def test_a_bad_cell_is_named_with_the_fix(tmp_path: Path, column: str, cell: str, expected: str) -> None:
    with pytest.raises(InputFileError, match=expected) as raised:
        read(tmp_path / "t.csv", f"submit_s,duration_s,{column}\n0,1,{cell}\n", Options())
    assert column in str(raised.value)
