"""The REST API as one page to read: no script, nothing from elsewhere, so it works on machines without the internet."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from jinja2 import Template

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
