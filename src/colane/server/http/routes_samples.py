"""How devices and jobs use what they have, over time."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from colane.api.samples import ClusterSamplesAnswer, JobSamplesAnswer, NodeSamplesAnswer
from colane.model.job import JobId
from colane.server.http.refusals import REFUSALS, DeclaredRoute, answered
from colane.server.http.requests import JobIdPath, TheCaller, TheService
from colane.server.http.routes_nodes import NamePath
from colane.server.views import sampled

HOUR_S: Final = 3600.0
LAST_MAX_S: Final = 90 * 86_400.0
router = APIRouter(responses=REFUSALS, route_class=DeclaredRoute)
Last = Annotated[float, Query(gt=0, le=LAST_MAX_S, description="The last so many seconds")]
LastOfJob = Annotated[
    float | None, Query(gt=0, le=LAST_MAX_S, description="The last so many seconds; else since its first start")
]
Until = Annotated[float | None, Query(ge=0, le=1e12, description="Unix time of the end; else now")]


@router.get("/samples/cluster", responses=answered(ClusterSamplesAnswer))
async def of_all(service: TheService, caller: TheCaller, last_s: Last = HOUR_S, until_s: Until = None) -> JSONResponse:
    """Return how many devices worked and how many jobs ran and waited, at the finest resolution kept for so long."""
    with_jobs = service.sight(caller).is_whole
    found = await sampled.cluster(service.samples, service.driver.now(), last_s, until_s, with_jobs=with_jobs)
    return JSONResponse(found)


@router.get("/samples/nodes/{name}", responses=answered(NodeSamplesAnswer))
async def of_node(
    service: TheService, caller: TheCaller, name: NamePath, last_s: Last = HOUR_S, until_s: Until = None
) -> JSONResponse:
    """Return how the devices of a node were used, at the finest resolution that is kept for so long."""
    service.nodes.node(name, caller)
    return JSONResponse(await sampled.node(service.samples, name, service.driver.now(), last_s, until_s))


@router.get("/samples/jobs/{number}", responses=answered(JobSamplesAnswer))
async def of_job(
    service: TheService, caller: TheCaller, number: JobIdPath, last_s: LastOfJob = None, until_s: Until = None
) -> JSONResponse:
    """Return how a job used what it had, live or ended: to those who are told of the job."""
    times = await service.attempts.times_of(JobId(number), caller)
    return JSONResponse(await sampled.job(service.samples, number, service.driver.now(), times, last_s, until_s))
