"""A large batch is read a few jobs at a time, and understood as in one go."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from fastapi.routing import APIRoute

from colane.api.job_request import JobRequest
from colane.server.ground.problems import PROBLEMS_MAX, RefusedError, from_pydantic
from colane.server.ground.yielding import ITEMS_AT_ONCE
from colane.server.http import batch_body
from colane.server.http.batch_body import parse_batch
from colane.server.http.door import FORM_BYTES_MAX, WITH_BODY
from tests.server.harness import beside, world

MANY = 5 * ITEMS_AT_ONCE + 3
JOB: dict[str, Any] = {"command": ["a", "[", "]", ",", "{", '"'], "env": {"A": "\\ \u00e4 \n", "B": '[{"jobs":['}}
JOBS = [{**JOB, "name": f"j{number}", "gpus": [1, 2]} for number in range(MANY)]
FORMS: dict[str, Callable[[list[Any]], str]] = {
    "list": json.dumps,
    "object": lambda jobs: json.dumps({"jobs": jobs}),
    "wide": lambda jobs: f"\r\n {json.dumps(jobs, indent=4)} \t",
    "object, wide": lambda jobs: f" {json.dumps({'jobs': jobs}, indent=1)} \n",
    "unescaped": lambda jobs: json.dumps(jobs, ensure_ascii=False),
}


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs were validated at once, each time."""
    monkeypatch.setattr(batch_body, "WHOLE_BYTES_MAX", 0)
    seen, validate = list[int](), batch_body._SLICE.validate_json

    class Counting:
        @staticmethod
        def validate_json(text: str) -> Any:
            seen.append(len(json.loads(text)))
            return validate(text)

    monkeypatch.setattr(batch_body, "_SLICE", Counting)
    return seen


async def told(body: bytes) -> tuple[int, Any]:
    with pytest.raises(RefusedError) as refused:
        await parse_batch(body)
    return refused.value.status, refused.value.problems


def whole(body: bytes) -> tuple[int, Any]:
    with pytest.raises(RefusedError) as refused:
        batch_body._whole(body)
    return refused.value.status, refused.value.problems


@pytest.mark.parametrize("form", FORMS)
async def test_it_is_read_in_slices_as_it_is_in_one_go(form: str, sizes: list[int]) -> None:
    body = FORMS[form](JOBS).encode()
    assert await parse_batch(body) == batch_body._whole(body)
    assert max(sizes) == ITEMS_AT_ONCE
    assert sum(sizes) == MANY


async def test_others_go_on_while_it_is_read(sizes: list[int]) -> None:
    _, went_on = await beside(parse_batch(json.dumps(JOBS).encode()))
    assert went_on >= len(sizes)


WRONG: dict[str, list[Any]] = {
    "the last": [*JOBS, {**JOB, "gpus": "none at all"}],
    "some": [{**job, "cores": -1} if place % 100 == 7 else job for place, job in enumerate(JOBS)],
    "no object": [*JOBS, 7, *JOBS],
    "two fields of one": [*JOBS, {**JOB, "cores": "x", "priority": "y"}],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("wrong", WRONG)
async def test_what_is_wrong_is_told_as_in_one_go(wrong: str, form: str, sizes: list[int]) -> None:
    body = FORMS[form](WRONG[wrong]).encode()
    assert await told(body) == whole(body)
    assert max(sizes) <= ITEMS_AT_ONCE


async def test_a_batch_wrong_throughout_is_read_no_further_than_what_is_told_of_it(sizes: list[int]) -> None:
    body = json.dumps([{**job, "duration": 5} for job in JOBS]).encode()
    status, problems = await told(body)
    assert (status, len(problems)) == (422, PROBLEMS_MAX)
    assert (status, problems) == whole(body)
    assert sizes == [ITEMS_AT_ONCE]


TAKEN = {"[]"}
OTHER_FORMS = [
    "", "[", "[]", "{}", "null", "[{}", "[{},]", "[{}]]", '{"jobs": [{}]', '{"jobs": [{}], "more": 1}', "[{} {}]",
    '[{"command": ["\\ud800"]}]', '[{"command": ["a"]}] x', "[nul]", '{"jobs": {}}', "\ufeff[{}]", "[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("text", OTHER_FORMS, ids=lambda text: text[:20])
async def test_another_form_is_told_as_in_one_go(text: str, sizes: list[int]) -> None:
    body = text.encode()
    if text in TAKEN:
        assert await parse_batch(body) == batch_body._whole(body)
    else:
        assert await told(body) == whole(body)
    assert max(sizes, default=0) <= ITEMS_AT_ONCE


async def test_bytes_that_are_no_text_are_refused(sizes: list[int]) -> None:
    body = b'[{"command": ["\xff"]}]'
    assert await told(body) == whole(body)
    assert sizes == []


async def test_too_many_are_refused_unread(monkeypatch: pytest.MonkeyPatch, sizes: list[int]) -> None:
    monkeypatch.setattr(batch_body, "BATCH_JOBS_MAX", 2 * ITEMS_AT_ONCE)
    monkeypatch.setattr(batch_body, "_NUMBER", batch_body.at_most(2 * ITEMS_AT_ONCE))
    status, problems = await told(json.dumps(JOBS).encode())
    assert status == 422
    assert "at most 128 entries" in str(problems)
    assert sum(sizes) <= 2 * ITEMS_AT_ONCE


OVERFULL: dict[str, Any] = {
    "fields": [{f"a{number}": 1 for number in range(200_000)}],
    "fields of the last job": [{"command": ["a"]}, {f"a{number}": 1 for number in range(200_000)}],
    "variables": [{"command": ["a"], "env": {f"a{number}": 1 for number in range(200_000)}}],
    "words": [{"command": [1] * 1_000_000}],
    "jobs": [{}] * 400_000,
    "fields beside the jobs": {"jobs": [], **{f"a{number}": 1 for number in range(200_000)}},
}


@pytest.mark.parametrize("kind", OVERFULL)
async def test_much_that_is_wrong_is_refused_before_each_of_it_is_told(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To judge them all would take seconds in which no agent is answered."""
    told = list[int]()

    def counted(errors: list[Any], known: Any) -> Any:
        told.append(len(errors))
        return from_pydantic(errors, known)

    monkeypatch.setattr(batch_body, "from_pydantic", counted)
    async with world() as w:
        wrong: Any = OVERFULL[kind]
        body = json.dumps(wrong).encode()
        ones = [] if kind in {"jobs", "fields beside the jobs"} else [("/job", json.dumps(wrong[-1]).encode())]
        for path, one in (("/jobs", body), ("/plan", body), *ones):
            answer = await w.http.post(path, content=one, headers={"Content-Type": "application/json"})
            assert answer.status_code == 422
            assert len(answer.content) < 5_000
        assert sum(told) <= 3 * PROBLEMS_MAX


async def test_a_job_with_all_that_one_may_have_is_taken() -> None:
    word = 'a, "quoted" word'
    job = {"command": [word] * 10_000, "env": {f"NAME_{number}": word for number in range(10_000)}}
    assert len(await parse_batch(json.dumps([job, job]).encode())) == 2


def _wrong(fields: list[str]) -> dict[str, bytes]:
    """Bodies of a megabyte and more that are wrong in their first line and in each that follows."""
    return {
        "fields": json.dumps({f"a{number}": 1 for number in range(80_000)}).encode(),
        "a list": b"[" + b'{"a":[1]},' * 100_000 + b"{}]",
        "no JSON at the end": b"[" + b'{"command":["a"]},' * 60_000 + b"x",
        "its fields": json.dumps({name: [{}] * (500_000 // len(fields)) for name in fields}).encode(),
    }


async def test_no_large_body_is_read_slowly_whatever_the_route_and_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What FastAPI reads it reads whole, and tells all that is wrong: seconds for 4 MB in which nobody is answered."""
    slowly, asked = list[int](), list[str]()

    def loads(text: bytes | str) -> Any:
        slowly.append(len(text))
        return json.loads(text)

    monkeypatch.setattr("starlette.requests.json", SimpleNamespace(loads=loads))
    async with world() as w:
        for route in w.app.routes:
            if isinstance(route, APIRoute) and route.methods and (methods := route.methods & WITH_BODY):
                kind = route.body_field.field_info.annotation if route.body_field else JobRequest
                kinds = [one for one in (kind, *get_args(kind)) if hasattr(one, "model_fields")]
                path = re.sub(r"\{\w+(:\w+)?\}", "1", route.path)
                for name, body in _wrong(list(kinds[0].model_fields)).items():
                    answer = await w.http.request(
                        min(methods), path, content=body, headers={"Content-Type": "application/json"}
                    )
                    assert 400 <= answer.status_code < 500, (path, name, answer.text)
                    assert len(answer.content) < 10_000
                asked.append(path)
    assert len(asked) > 15
    assert {"/jobs", "/plan", "/job", "/node", "/node/1/report", "/finished_jobs", "/profiles"} <= set(asked)
    assert max(slowly, default=0) <= FORM_BYTES_MAX
