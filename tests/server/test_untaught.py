"""Why nothing is known of a job's speed: its runs were disturbed, or told no steps."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.harness import finished, launched, node, report, world
from tests.server.test_time import Machine

STEPS = {"at_s": 9.0, "first_step_s": 1.0, "last_step_s": 9.0, "steps": 80}
BY_OTHERS = "disturbed by work that is not Colane's, which used"


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        ([], None),
        ([{**STEPS, "others_ratio": 0.6}] * 4, f"4 runs of its family, each {BY_OTHERS} 60 % of its devices"),
        ([{**STEPS, "others_ratio": 0.9}], f"1 run of its family {BY_OTHERS} 90 % of its devices"),
        ([{**STEPS, "others_ratio": 0.5}, STEPS], f"2 runs of its family, 1 of them {BY_OTHERS} 50 % of its devices"),
        ([{**STEPS, "others_ratio": 0.6}], "60 % of its devices; runs there of 20 s and more teach how it goes"),
        ([{**STEPS, "others_ratio": 0.97}], "97 % of its devices; they leave too little to learn from"),
        ([STEPS, {**STEPS, "others_ratio": 0.1}], None),
        ([{"at_s": 9.0}] * 3, "nothing is known of its speed, so it shares no GPU: 3 runs of its family told no steps"),
    ],
)
@pytest.mark.parametrize("place", ["waits", "runs"])
async def test_unknown_has_a_cause(runs: list[dict[str, Any]], says: str | None, place: str) -> None:
    train = {"command": ["python", "train.py"], "family": "one"}
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        for sample in runs:
            number = await w.submit(**train)
            assert (await w.good("POST", "/finished_job", finished(number, progress=sample)))["believed"] is True
        if place == "waits":
            await w.submit(command=["sleep", "9"], share=False)
        number = await w.submit(**train)
        if place == "runs":
            await w.good("POST", "/node/n1/report", report(launched(number)))
        now = (await w.good("GET", f"/job/{number}/why"))["now"]
        found = [line for line in now if "of its family" in line]
        assert len(found) == (says is not None)
        assert says is None or says in found[0]


async def test_a_program_without_steps_is_told_what_three_lines_change() -> None:
    machine = Machine()
    async with world(clocks=machine.clocks(), node_timeout_s=1e6) as w:
        await w.good("POST", "/node", node(gpus=1))
        number = await w.submit(command=["./loop"])
        await w.good("POST", "/node/n1/report", report(launched(number)))
        assert not [line for line in (await w.good("GET", f"/job/{number}/why"))["now"] if "three lines" in line]
        machine.steady.skip(42.0)
        await w.submit(command=["./loop"])  # what is due is done with what comes
        now = (await w.good("GET", f"/job/{number}/why"))["now"]
        told = [line for line in now if "three lines" in line]
        assert told
        assert "it shares no GPU" in told[0]
        assert "import colane.adaptor as colane; steps = colane.attach(); steps.step()" in told[0]


async def test_what_is_measured_needs_no_cause() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        train = {"command": ["python", "train.py"], "family": "one"}
        number = await w.submit(**train)
        await w.good("POST", "/finished_job", finished(number, progress={**STEPS, "others_ratio": 0.6}))
        await w.good("PUT", "/profiles", {"key": {"family": "one", "gpu_type": "cpu"}, "step_s": 0.5})
        number = await w.submit(**train)
        assert not [line for line in (await w.good("GET", f"/job/{number}/why"))["now"] if "of its family" in line]
