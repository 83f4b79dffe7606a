"""Which jobs may share a GPU: every job has a sharing domain, and only jobs of one domain share.

A domain is worked out from the setting when a job is submitted, and anew when the scheduler starts: jobs that run
together then go on together, but no job of another domain joins.
"""

from __future__ import annotations

from colane.model.job import Job
from colane.model.job_spec import ShareBetween, sharing_domain


def in_sharing_domain(job: Job, between: ShareBetween) -> Job:
    """The job with its sharing domain."""
    name = sharing_domain(job.spec, between)
    return job if job.constraints.sharing_domain == name else job.under(job.constraints._replace(sharing_domain=name))
