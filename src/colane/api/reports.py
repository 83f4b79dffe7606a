"""What agents say: objects that `wire_nodes` judges, which says what fields they have.

An agent makes them a second long for each of its jobs, so they are dictionaries, and no models that would be checked
where they are made; `tests/agent/fake_scheduler.py` judges each that an agent sends in a test, to the last field.
"""

from __future__ import annotations

from typing import Any, Final

ENDS_MAX: Final = 100
"""An agent tells of at most so many ends with one request."""

RegistrationObject = dict[str, Any]
"""A node as its agent registers it: `NodeBody`."""
JobReportObject = dict[str, Any]
"""One attempt as its agent sees it: `JobReport`."""
HostMemoryObject = dict[str, Any]
"""Of a sample: what of a job's GPU memory lies on the host, and whether it can be moved there."""
BandwidthObject = dict[str, Any]
"""Which job used how much of its memory's bandwidth: `BandwidthBody`."""
NoticeObject = dict[str, Any]
"""Notice of the machine's end: `NoticeBody`."""
HeardObject = dict[str, Any]
"""What an agent has heard of its cluster: `epoch` and `events_seen` of a report."""
ReportObject = dict[str, Any]
"""What an agent observes of its node: `ReportBody`."""
FinishedObject = dict[str, Any]
"""How an attempt's process ended: `FinishedBody`. Who says so is added when it is told."""
