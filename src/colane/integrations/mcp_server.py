"""`AssistantSession` over the Model Context Protocol, on standard input and output. Needs the extra `mcp`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import Tool, ToolAnnotations

from colane.client.errors import SchedulerError
from colane.integrations.assistant import CHANGING, DEEDS, LOOKING, AssistantError, AssistantSession

INSTRUCTIONS: Final = f"""Colane runs deep-learning jobs on shared GPU machines. Look with queue, job, why, logs, nodes.
Before you submit, ask plan (or whatif, for a job like an existing one); submit takes the index of a plan of this
session, and is refused where the plan does not hold any more. What else is done to a job ({", ".join(DEEDS)})
is asked of plan_change first; change takes its index."""


class StrictServer(FastMCP[Any]):
    """Refuses arguments that a tool does not take: the protocol's library passes them over."""

    async def list_tools(self) -> list[Tool]:
        """Return the tools, each of which says that it takes no other arguments."""
        listed = await super().list_tools()
        for tool in listed:
            tool.inputSchema["additionalProperties"] = False
        return listed

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - as the library has it
        """Call a tool. Raises ToolError: it is refused."""
        taken = {tool.name: list(tool.inputSchema["properties"]) for tool in await self.list_tools()}.get(name)
        unknown = [] if taken is None else [word for word in arguments if word not in taken]
        if taken is not None and unknown:
            place = f"; fields of a job go into {FIELDS_IN[name]}" if name in FIELDS_IN else ""
            raise ToolError(f"{name} takes no {unknown[0]!r}, but {', '.join(taken) or 'no arguments'}{place}")
        return await super().call_tool(name, arguments)


FIELDS_IN: Final = {"plan": "options", "whatif": "changes"}


def make_server(session: AssistantSession) -> FastMCP[Any]:
    """Return a server whose tools are what a session offers."""
    server = StrictServer("colane", instructions=INSTRUCTIONS)
    for name in (*LOOKING, *CHANGING):
        changes = name in CHANGING
        hints = ToolAnnotations(readOnlyHint=not changes, destructiveHint=changes)
        server.add_tool(_tool(getattr(session, name)), annotations=hints, structured_output=False)
    return server


def _tool(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose refusals are told in their own words; what it answers is sent as JSON."""

    @wraps(method)
    def tool(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - as the method has them
        try:
            return method(*args, **named)
        except (SchedulerError, AssistantError) as error:
            raise ToolError(str(error)) from error

    return tool
