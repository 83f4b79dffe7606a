"""The FastAPI application: routes in their files, one shape for every error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException

from colane.model.versions import own_version
from colane.server.ground.problems import RefusedError
from colane.server.http import (
    routes_jobs,
    routes_nodes,
    routes_pages,
    routes_records,
    routes_samples,
    routes_seeing,
)
from colane.server.http.batch_body import refused_of
from colane.server.http.door import Gate, GateRules, refusal_response
from colane.server.http.refusals import DeclaredRoute
from colane.server.http.short_route import ShortRoute
from colane.server.service import Service
from colane.server.store.store import StoreError
from colane.server.store.unreadable import refusal_of

if TYPE_CHECKING:
    from jinja2 import Template


# -- The REST API as one page to read: no script, nothing from elsewhere, so it works on machines without the
# internet.

TEMPLATES: Final = Path(__file__).parent / "templates"


def api_page(openapi: Mapping[str, Any]) -> str:
    """Return the page of an OpenAPI document: each path with its method, parameters and body, then the bodies."""
    requests = [
        (method.upper(), path, operation)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    ]
    return _template().render(openapi=openapi, requests=requests)


@cache
def _template() -> Template:
    """Everything that is put in is escaped; what a document may leave out is empty."""
    from jinja2 import Environment, FileSystemLoader  # noqa: PLC0415 - a scheduler whose page is not read needs none

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    return environment.get_template("api.html.j2")


def create_app(service: Service, rules: GateRules) -> FastAPI:
    """Return the application of a service."""
    app = _App(title="Colane scheduler", version=own_version(), docs_url=None, redoc_url=None, telemetry=NO_TELEMETRY)
    app.state.service = service
    app.state.sessions = rules.sessions
    own = routes_nodes, routes_jobs, routes_records, routes_samples, routes_seeing, routes_pages
    for routes in own:
        app.router.routes.extend(routes.router.routes)  # finding a route in included routers costs up to 0.2 ms more
    app.router.routes.sort(key=lambda route: not isinstance(route, ShortRoute))  # they are tried in order
    app.add_api_route("/docs", _docs, include_in_schema=False, response_class=HTMLResponse)
    for kind in _ANSWERS:
        app.add_exception_handler(kind, _refused)
    app.add_exception_handler(Exception, _failed)
    app.add_middleware(Gate, rules=rules)
    return app


NO_TELEMETRY: Final[TelemetryConfig] = {"tracing": False, "metrics": False, "logs": False}
"""FastAPI looks at each request whether OpenTelemetry has been set up; `/metrics` tells of what the scheduler does."""


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI, worked out when it is first asked for."""
        if self.openapi_schema is None:
            routes = [each.described() if isinstance(each, DeclaredRoute) else each for each in self.routes]
            self.openapi_schema = get_openapi(title=self.title, version=self.version, routes=routes)
        return self.openapi_schema


async def _docs(request: Request) -> HTMLResponse:
    return HTMLResponse(api_page(request.app.openapi()))


_ANSWERS: Final[Mapping[type[Exception], Callable[[Any], JSONResponse]]] = {
    RefusedError: refusal_response,
    StoreError: lambda error: refusal_response(refusal_of(error)),
    RequestValidationError: lambda error: refusal_response(refused_of(error.errors())),
    HTTPException: lambda error: JSONResponse({"detail": error.detail}, error.status_code, headers=error.headers),
}


async def _refused(_request: Request, error: Exception) -> JSONResponse:
    return next(answer for kind, answer in _ANSWERS.items() if isinstance(error, kind))(error)


async def _failed(request: Request, error: Exception) -> JSONResponse:
    service: Service = request.app.state.service
    return refusal_response(service.driver.faults.refuse(error))
