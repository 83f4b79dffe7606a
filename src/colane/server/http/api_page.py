"""The REST API as one page to read: no script, nothing from elsewhere, so it works on machines without the internet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

Schema = Mapping[str, Any]

STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1.5rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; } code, h2 { font-family: ui-monospace, monospace; }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem .15rem 0; text-align: left; vertical-align: top; }
.quiet { opacity: .7; }
"""


def api_page(openapi: Schema) -> str:
    """Return the page of an OpenAPI document: each path with its method, parameters and body, then the bodies."""
    info = openapi["info"]
    title = f"{info['title']} {info['version']}"
    parts = [f"<h1>{escape(title)}</h1>", '<p>For programs: <a href="openapi.json">openapi.json</a>.</p>']
    for path, methods in openapi["paths"].items():
        parts += [part for method, operation in methods.items() for part in _operation(path, method, operation)]
    parts += [part for name, schema in openapi["components"]["schemas"].items() for part in _body(name, schema)]
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _operation(path: str, method: str, operation: Schema) -> Iterator[str]:
    yield f"<h2>{method.upper()} {escape(path)}</h2>"
    yield f"<p>{escape(operation.get('description') or operation.get('summary', ''))}</p>"
    rows = [
        (one["name"], f"in {one['in']}", _type(one.get("schema", {})), one.get("description", ""))
        for one in operation.get("parameters", ())
    ]
    content = operation.get("requestBody", {}).get("content", {})
    rows += [("body", kind, _type(one.get("schema", {})), "") for kind, one in content.items()]
    yield _table(rows)


def _body(name: str, schema: Schema) -> Iterator[str]:
    yield f'<h2 id="{escape(name)}">{escape(name)}</h2>'
    yield f"<p>{escape(schema.get('description', ''))}</p>"
    required = set(schema.get("required", ()))
    yield _table(
        [
            (field, "required" if field in required else "", _type(one), one.get("description", ""))
            for field, one in schema.get("properties", {}).items()
        ]
    )


def _table(rows: list[tuple[str, str, str, str]]) -> str:
    """Rows of name, place, type (HTML already) and description."""
    cells = (
        f'<tr><td><code>{escape(name)}</code></td><td class="quiet">{escape(place)}</td><td>{kind}</td>'
        f"<td>{escape(said)}</td></tr>"
        for name, place, kind, said in rows
    )
    return f"<table>{''.join(cells)}</table>" if rows else ""


def _type(schema: Schema) -> str:
    """A type in words; named ones are links to their table."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{escape(name)}">{escape(name)}</a>'
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return " or ".join(_type(one) for one in options)
    if "enum" in schema or "const" in schema:
        return " | ".join(f"<code>{escape(str(one))}</code>" for one in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return escape(str(schema.get("type", "anything")))
