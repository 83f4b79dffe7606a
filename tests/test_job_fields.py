"""The table of a job's fields and all that is made from it: a row is enough for every border."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from typer.main import get_command

from colane.cli.app import make_app
from colane.cli.jobfile import OTHER_NAMES, merged
from colane.cli.scripts import OURS
from colane.model.field_values import OneOf, SomeOf, Text
from colane.model.job_fields import BY_NAME, JOB_FIELDS, JobField, senseless
from colane.model.job_spec import JobSpec, NeedClass
from colane.server.job_request import JobRequest
from colane.workloads import catalogue

ROWS = pytest.mark.parametrize("field", JOB_FIELDS, ids=lambda field: field.name)
OF_OTHERS = {"sizes": "gpus", "batch_per_gpu": "batch"}
"""Fields of a spec that are worked out of a field of another name."""
IMPOSED = {"circle", "cores_asked"}
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
    assert set(NeedClass._fields) == rows | {"sizes", "circle", "home"}


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
