"""`colane why`: why a job is where it is."""

from __future__ import annotations

import typer

from colane.cli import jobs, output


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("why", epilog="Example: [bold]colane why 7[/bold]")(explain)


def explain(job: jobs.JobArgument, as_json: output.Json = False) -> None:
    """Say in one sentence why a job waits, runs or has ended, and list the jobs in its way or company."""
    with jobs.client() as scheduler:
        reason = scheduler.why(job)
        state = scheduler.job(job)["state"]
        others = {other["id"]: other for other in scheduler.live_jobs()} if reason["jobs"] else {}
    if as_json:
        output.print_json({"id": job, "state": state, **reason})
        return
    output.say(f"job {job} is {state}: {reason['sentence']}")
    for other in reason["jobs"]:
        output.say(f"  {_describe(other, others.get(other))}")


def _describe(job_id: int, job: jobs.Object | None) -> str:
    if job is None:
        return f"job {job_id} has ended meanwhile"
    where = f" on {', '.join(job['gpus'])}" if job["gpus"] else ""
    eta_s = jobs.eta_s(job)
    left = f", about {output.duration(eta_s)} left" if eta_s is not None else ""
    return f"job {job_id} ({job['name']}, {job['user'] or 'nobody'}): {job['state']}{where}{left}"
