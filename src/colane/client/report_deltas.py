"""What a report may leave out, so that both sides have less to do: what is said once, and what is not known.

Devices change seldom, and are described at length: they are left out while they are as the scheduler was told last. Of
samples every field that is null, or an empty text, stands for itself where it is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from colane.api.nodes import NodeObject
from colane.api.reports import RegistrationObject, ReportObject

SAMPLED: Final = ("progress", "use")


class ToldDevices:
    """What the scheduler knows of a node's devices.

    One that was started anew may go on from a store that lacks it: it is told once more.
    """

    def __init__(self) -> None:
        self._gpus: object = None
        self._epoch: object = None

    def sparing(self, report: ReportObject) -> dict[str, Any]:
        """Return a report without what the scheduler knows, or would take for the same where it is absent."""
        lean: dict[str, Any] = {**report, "jobs": [_known(job) for job in report["jobs"]]}
        if "devices" in report:
            lean["devices"] = [_said(use) for use in report["devices"]]
        if self._epoch is not None and report.get("gpus") == self._gpus:
            lean.pop("gpus", None)
        return lean

    def registered(self, node: RegistrationObject, answer: NodeObject) -> None:
        """The scheduler has taken in a registration."""
        self._gpus, self._epoch = node["gpus"], answer.get("epoch")

    def reported(self, report: ReportObject, answer: NodeObject) -> None:
        """The scheduler has taken in a report; by another start than the last, all is told once more."""
        if self._epoch is not None and answer.get("epoch") != self._epoch:
            self.forget()
        else:
            self._gpus, self._epoch = report.get("gpus"), answer.get("epoch")

    def forget(self) -> None:
        """Tell all with the next report."""
        self._gpus = self._epoch = None


def _known(job: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _said(value) if name in SAMPLED and value is not None else value for name, value in job.items()}


def _said(sample: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sample.items() if value is not None and value != ""}
