"""Which ranks of a job are where: what is made of stacks, and who is told."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from colane.api.stacks import RawStacksObject
from colane.model.job import JobId
from colane.server.ground.access import digest_of
from colane.server.views.stacks import Frame, PlaceInCode, grouped, main_stack, place_in_code, told
from tests.server.harness import World, launched, node, report, world

SITE = "/home/ann/venv/lib/python3.12/site-packages"
STDLIB = "/usr/lib/python3.12"
C10D = f"{SITE}/torch/distributed/distributed_c10d.py"
WRAPPER = f"{SITE}/torch/distributed/c10d_logger.py"
ADAPTOR = "/state/adaptor/0123456789abcdef/_colane_adaptor"
MAIN = ("/home/ann/train.py", 90, "<module>")


def stack(*calls: tuple[str, int, str]) -> str:
    """Write a stack as the adaptor does, innermost call first."""
    return "Thread MainThread, innermost call first:\n" + "\n".join(
        f'  File "{path}", line {line}, in {function}' for path, line, function in calls
    )


ALL_REDUCE = stack(
    (C10D, 2810, "all_reduce"), (WRAPPER, 83, "wrapper"), ("/home/ann/train.py", 41, "Trainer.step"), MAIN
)
LOAD = stack(("/home/ann/data.py", 12, "Loader.load_batch"), MAIN)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ALL_REDUCE, "waits in all_reduce (train.py:41)"),
        (LOAD, "is in load_batch (data.py:12)"),
        (
            stack(
                (C10D, 300, "_store_based_barrier"), (C10D, 200, "init_process_group"), (WRAPPER, 95, "wrapper"),
                (f"{ADAPTOR}/stacks.py", 60, "init_process_group"), MAIN,
            ),
            "waits in init_process_group (train.py:90)",
        ),
        (
            stack((f"{SITE}/torch/autograd/graph.py", 820, "_engine_run_backward"),
                  (f"{SITE}/torch/_tensor.py", 620, "Tensor.backward"), MAIN),
            "is in <module> (train.py:90), which has called backward",
        ),
        (
            stack((f"{STDLIB}/selectors.py", 415, "select"), (f"{STDLIB}/threading.py", 355, "wait"), MAIN),
            "is in <module> (train.py:90), which has called wait",
        ),
        (
            stack((f"{ADAPTOR}/turns.py", 120, "TurnTaker._await_go"), (f"{ADAPTOR}/recorder.py", 140, "boundary"),
                  (f"{SITE}/torch/optim/optimizer.py", 490, "wrapper"), MAIN),
            "waits for a turn (train.py:90)",
        ),
        (stack((f"{STDLIB}/runpy.py", 88, "_run_code")), "is in _run_code (runpy.py:88)"),
        ("", "runs no Python"),
        ("Thread MainThread, innermost call first:\nnonsense\n", "runs no Python"),
        (f"{LOAD}\n\n{ALL_REDUCE}", "is in load_batch (data.py:12)"),
    ],
)  # fmt: skip
def test_where_a_process_is_in_a_few_words(text: str, said: str) -> None:
    assert str(place_in_code(main_stack(text))) == said


def test_odd_names_are_shortened() -> None:
    (frame,) = main_stack(f'  File "{"x" * 5000}.py", line {"9" * 5000}, in {"f" * 5000}')
    assert (len(frame.place), len(frame.name)) == (90, 80)
    assert main_stack('  File "<string>", line 3, in <module>') == [Frame("<string>", 3, "<module>")]


WAITS = PlaceInCode("waits", "wait", "in all_reduce (train.py:41)")
LOADS = PlaceInCode("is", "are", "in load_batch (data.py:12)")


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ([], ""),
        ([(None, LOADS)], "its process is in load_batch (data.py:12)"),
        (
            [(0, WAITS), (1, WAITS), (2, WAITS), (3, LOADS)],
            "ranks 0-2 wait in all_reduce (train.py:41), rank 3 is in load_batch (data.py:12)",
        ),
        (
            [(0, LOADS), (1, WAITS), (2, LOADS), (3, LOADS), (7, LOADS)],
            "ranks 0, 2-3, 7 are in load_batch (data.py:12), rank 1 waits in all_reduce (train.py:41)",
        ),
        ([(0, LOADS), (None, LOADS)], "rank 0 and 1 process are in load_batch (data.py:12)"),
        ([(None, LOADS), (None, LOADS)], "2 processes are in load_batch (data.py:12)"),
        ([(5, LOADS), (5, LOADS)], "rank 5 is in load_batch (data.py:12)"),
    ],
)
def test_ranks_at_one_place_are_told_of_together(known: list[tuple[int | None, PlaceInCode]], said: str) -> None:
    assert grouped(known) == said


def raw(rank: int | None, text: str = "", problem: str = "", pid: int = 42) -> RawStacksObject:
    return {"rank": rank, "pid": pid, "text": text, "problem": problem}


def test_what_cannot_be_asked_is_told_of() -> None:
    found = [("n1", raw(1, problem="does not answer: it is stopped")), ("n1", raw(0, LOAD))]
    answer = told(JobId(7), found, ["n2"], ["the agent of node n3 does not answer: refused"])
    assert answer["sentences"] == [
        "rank 0 is in load_batch (data.py:12), rank 1 does not answer: it is stopped",
        "no process of it on n2 can be asked: none has made a step or joined a group with Colane's adaptor",
        "the agent of node n3 does not answer: refused",
    ]
    assert [one["rank"] for one in answer["processes"]] == [0, 1]


async def running(w: World, **fields: Any) -> None:
    await w.good("POST", "/node", node(gpus=2))
    await w.submit(**fields)
    await w.good("POST", "/node/n1/report", report(launched(1)))


def answered(*processes: RawStacksObject) -> httpx.Response:
    return httpx.Response(200, json={"processes": list(processes)})


async def test_a_job_of_two_nodes_is_asked_on_both() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        await w.good("POST", "/node", node("n2", agent_id="a2"))
        await w.submit(gpus=2, multi_node=True, ranks="per-gpu")
        w.agents.stacks = {"n1/stacks/1/1": answered(raw(0, ALL_REDUCE)), "n2/stacks/1/1": answered(raw(1, LOAD))}
        answer = await w.good("GET", "/job/1/stacks")
        assert answer["sentences"] == ["rank 0 waits in all_reduce (train.py:41), rank 1 is in load_batch (data.py:12)"]
        assert [(one["node"], one["text"]) for one in answer["processes"]] == [("n1", ALL_REDUCE), ("n2", LOAD)]
        brief = await w.good("GET", "/job/1/stacks?text=false")
        assert brief["sentences"] == answer["sentences"]
        assert [one["text"] for one in brief["processes"]] == ["", ""]
        del w.agents.stacks["n2/stacks/1/1"]
        answer = await w.good("GET", "/job/1/stacks")
        assert answer["sentences"] == [
            "rank 0 waits in all_reduce (train.py:41)",
            "the agent of node n2 has no process of it, or is of an older version",
        ]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(500), "the agent of node n1 answered 500"),
        (
            httpx.Response(200, json={"processes": [{"rank": "x"}]}),
            "the agent of node n1 answered what is not understood",
        ),
        (httpx.Response(200, content=b"\xff"), "the agent of node n1 answered what is not understood"),
        (None, "the agent of node n1 does not answer: connection refused"),
    ],
)
async def test_an_agent_that_does_not_answer(answer: httpx.Response | None, said: str) -> None:
    async with world() as w:
        await running(w)
        w.agents.down = answer is None
        if answer is not None:
            w.agents.stacks["n1/stacks/1/1"] = answer
        assert await w.refused("GET", "/job/1/stacks") == (502, said)


async def test_a_job_that_does_not_run_has_no_stacks() -> None:
    async with world() as w:
        await w.submit()
        assert await w.refused("GET", "/job/1/stacks") == (409, "job 1 is queued: only a job that runs has stacks")
        await w.good("DELETE", "/job/1")
        assert await w.refused("GET", "/job/1/stacks") == (409, "job 1 is cancelled: only a job that runs has stacks")


async def test_stacks_are_for_the_owner_and_operators() -> None:
    async with world() as w:
        for user in ("ann", "bob"):
            await w.good("POST", "/tokens", {"digest": digest_of(f"of {user}"), "user": user})
        await running(w, user="ann")
        w.agents.stacks["n1/stacks/1/1"] = answered(raw(None, LOAD))
        said = {}
        for user in ("ann", "bob"):
            answer = await w.http.get("/job/1/stacks", headers={"Authorization": f"Bearer of {user}"})
            said[user] = answer.status_code, answer.json()
        assert said["ann"][1]["sentences"] == ["its process is in load_batch (data.py:12)"]
        refusal = "job 1 belongs to ann: only its owner or an operator may read the stacks of it; you are user bob"
        assert said["bob"] == (403, {"detail": refusal})
