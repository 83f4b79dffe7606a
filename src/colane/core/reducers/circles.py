"""Whose jobs may share a GPU: every job has a circle, and only jobs of one circle share.

A circle is worked out from the setting when a job is submitted, and anew when the scheduler starts: what runs then
stays together, but nobody of another circle joins.
"""

from __future__ import annotations

from dataclasses import replace

from colane.core.lifecycle import evolve
from colane.model.job import Job, JobSpec
from colane.model.lane import ShareBetween


def circle(spec: JobSpec, between: ShareBetween) -> str:
    """The circle of a job; empty, and so the same for all, where everybody may share."""
    if between is ShareBetween.ALL:
        return ""
    if between is ShareBetween.GROUP and spec.group:
        return f"group {spec.group}"
    return f"user {spec.user}"


def within(spec: JobSpec, between: ShareBetween) -> JobSpec:
    """The spec with its circle."""
    name = circle(spec, between)
    return spec if spec.circle == name else replace(spec, circle=name)


def in_circle(job: Job, between: ShareBetween) -> Job:
    """The job with its circle."""
    spec = within(job.spec, between)
    return job if spec is job.spec else evolve(job, spec=spec)
