"""The page of the REST API: types in words, and nothing that a description says becomes part of the page."""

from __future__ import annotations

from typing import Any

from colane.server.http.app import api_page

FIELDS: dict[str, Any] = {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/Node"}},
    "level": {"enum": ["low", "high"]},
    "size": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "GPUs & <b>cores</b>"},
    "any": {},
    "list": {"type": "array"},
}
DOCUMENT: dict[str, Any] = {
    "info": {"title": "Colane", "version": "<1>"},
    "paths": {"/node/{name}": {"get": {"summary": "<script>alert(1)</script>"}}},
    "components": {"schemas": {"Node": {"required": ["level"], "properties": FIELDS}}},
}


def test_types_are_said_in_words() -> None:
    page = api_page(DOCUMENT)
    for type_ in (
        'list of <a href="#Node">Node</a>', "<code>low</code> | <code>high</code>", "integer or null",
        "<td>anything</td>", "<td>list of anything</td>",
    ):  # fmt: skip
        assert type_ in page
    assert '<td><code>level</code></td><td class="quiet">required</td>' in page
    assert '<a href="#GET-/node/{name}">GET /node/{name}</a>' in page


def test_what_is_said_is_no_part_of_the_page() -> None:
    page = api_page(DOCUMENT)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<h1>Colane &lt;1&gt;</h1>" in page
    assert "GPUs &amp; &lt;b&gt;cores&lt;/b&gt;" in page
    assert "<script" not in page
