from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

from colane.api.nodes import NodeObject
from colane.api.of_record import as_object
from colane.api.wire_nodes import ReportBody
from colane.client.agent_link import ToldDevices
from colane.model.device_use import DeviceUsage, JobUsage
from colane.model.progress import Progress
from tests.server.harness import gpu, launched, node, report
from tests.server.test_api_types import STEPS
from tests.server.test_samples import SEEN, USE


def answer(epoch: int = 1) -> NodeObject:
    return cast("NodeObject", {"epoch": {"number": epoch, "id": str(epoch)}})


def whole(**fields: Any) -> Any:
    """A report that says all there is to say, some of it null."""
    progress: dict[str, Any] = STEPS
    use: dict[str, Any] = USE
    jobs = [launched(1, progress=as_object(Progress(**progress)), use=as_object(JobUsage(**use))), launched(2)]
    devices = [{**SEEN, "power_w": None, "throttle": []}]
    return report(*jobs, gpus=[gpu(0)], devices=devices, **fields)


def read(said: Any) -> tuple[Any, ...]:
    """What a scheduler takes of a report."""
    body = ReportBody.model_validate(said)
    samples = [(Progress(**job.progress), JobUsage(**job.use)) for job in body.jobs if job.progress and job.use]
    jobs = [job.model_copy(update={"progress": None, "use": None}) for job in body.jobs]
    devices = [DeviceUsage(**use) for use in body.devices]
    assert samples
    assert devices
    return body.model_copy(update={"jobs": jobs, "devices": []}), samples, devices


class TestSparing:
    def test_it_says_the_same_in_fewer_words(self) -> None:
        lean = ToldDevices().sparing(whole())
        assert read(lean) == read(whole())
        assert "loss" not in lean["jobs"][0]["progress"]
        assert lean["devices"][0]["throttle"] == []

    def test_what_may_be_left_out_is_what_is_assumed(self) -> None:
        """Of samples, whatever may be null, or an empty text, is that where it is left out."""
        for kind in (Progress, JobUsage, DeviceUsage):
            for field in fields(kind):
                if isinstance(field.default, str | None):
                    assert field.default in {None, ""}, field.name

    def test_devices_are_told_once(self) -> None:
        told = ToldDevices()
        assert "gpus" in told.sparing(whole())
        told.reported(whole(), answer())
        assert "gpus" not in told.sparing(whole())
        ill: Any = {**whole(), "gpus": [gpu(0, healthy=False)]}
        assert told.sparing(ill)["gpus"] == [gpu(0, healthy=False)]
        told.forget()
        assert "gpus" in told.sparing(whole())

    def test_what_it_was_registered_with_last_counts(self) -> None:
        told = ToldDevices()
        told.reported(whole(), answer())
        told.registered(node(gpus=2), answer())
        assert "gpus" in told.sparing(whole())

    def test_a_scheduler_that_was_started_anew_is_told_all(self) -> None:
        told = ToldDevices()
        told.reported(whole(), answer(1))
        told.reported(whole(), answer(2))
        assert "gpus" in told.sparing(whole())
        told.reported(whole(), answer(2))
        assert "gpus" not in told.sparing(whole())

    def test_a_report_may_say_nothing_of_devices(self) -> None:
        silent: Any = {name: value for name, value in report().items() if name != "gpus"}
        told = ToldDevices()
        told.reported(silent, answer())
        assert "gpus" not in told.sparing(silent)
