"""Where the processes of a running job are in their code, asked of the agents of all its nodes at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple

import httpx
from pydantic import TypeAdapter, ValidationError

from colane.api.stacks import ProcessStacksObject, RawStacksAnswer, RawStacksObject, StacksAnswer
from colane.model.job import JobId
from colane.model.words import count
from colane.server.board.read_model import AgentDoor
from colane.server.ground.problems import RefusedError

ASK_MAX_S: Final = 10.0  # an agent answers within three seconds, whatever the processes do
SHOWN_MAX: Final = 80  # characters of a name that are shown in a sentence

_FRAME: Final = re.compile(r'  File "(.*)", line (\d+), in (.*)')
_LIBRARY: Final = re.compile(r"/(site|dist)-packages/|/lib(64)?/python3[^/]*/|^<frozen ")
_ADAPTOR: Final = re.compile(r"/_colane_adaptor/|/colane/adaptor/")
_TURNS: Final = re.compile(r"/(_colane_adaptor|colane/adaptor)/turns\.py$")
_MEETING: Final = re.compile(r"/torch/distributed/")
_ANSWER: Final = TypeAdapter(RawStacksAnswer)


class NodeOfJob(NamedTuple):
    """A node on which a job has processes: its name, and how its agent is called (no address: it is gone)."""

    name: str
    door: AgentDoor


class Frame(NamedTuple):
    """A call in progress."""

    path: str
    line: int
    function: str

    @property
    def place(self) -> str:
        """Where it is, as `train.py:41`."""
        return f"{PurePosixPath(self.path).name[-SHOWN_MAX:]}:{self.line}"

    @property
    def name(self) -> str:
        """Its function, without those that it is defined in."""
        return self.function.rpartition(".")[2][:SHOWN_MAX]


class PlaceInCode(NamedTuple):
    """Where a process is: its verb for one and for several, and what follows."""

    one: str
    several: str
    rest: str

    def __str__(self) -> str:
        return f"{self.one} {self.rest}"


async def ask_all(client: httpx.AsyncClient, job: JobId, attempt: int, nodes: Sequence[NodeOfJob]) -> StacksAnswer:
    """Ask the agents of a job's nodes for the stacks of its processes.

    Raises RefusedError: 502, none of them answers.
    """
    answers = await asyncio.gather(*(_ask(client, job, attempt, node) for node in nodes))
    named = [(node.name, answer) for node, answer in zip(nodes, answers, strict=True)]
    problems = [answer for _, answer in named if isinstance(answer, str)]
    if len(problems) == len(nodes):
        raise RefusedError.because(502, "; ".join(problems))
    found = [(name, one) for name, answer in named if not isinstance(answer, str) for one in answer]
    return told(job, found, [name for name, answer in named if not answer], problems)


async def _ask(client: httpx.AsyncClient, job: JobId, attempt: int, node: NodeOfJob) -> list[RawStacksObject] | str:
    """Return what the processes on one node say, or why its agent does not answer."""
    if not node.door.address:
        return f"node {node.name} is not registered any more"
    url = f"{node.door.address}/stacks/{job}/{attempt}"
    try:
        answer = await client.get(url, headers=node.door.headers, timeout=ASK_MAX_S)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return f"the agent of node {node.name} has no process of it, or is of an older version"
        answer.raise_for_status()
        return _ANSWER.validate_json(answer.content)["processes"]
    except httpx.HTTPStatusError as error:
        return f"the agent of node {node.name} answered {error.response.status_code}"
    except ValidationError:
        return f"the agent of node {node.name} answered what is not understood"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"the agent of node {node.name} does not answer: {str(error) or type(error).__name__}"


def told(
    job: JobId, found: Iterable[tuple[str, RawStacksObject]], silent: Sequence[str], problems: Sequence[str]
) -> StacksAnswer:
    """Make the answer of what was found, by node.

    Args:
        job: The job.
        found: What each process says.
        silent: Nodes on which no process could be asked.
        problems: What the other nodes' agents say instead.
    """
    by_rank = sorted(found, key=lambda one: (one[1]["rank"] is None, one[1]["rank"] or 0, one[0], one[1]["pid"]))
    known = [(node, one, _place_of_process(one)) for node, one in by_rank]
    processes: list[ProcessStacksObject] = [
        {"node": node, "rank": one["rank"], "pid": one["pid"], "sentence": str(where), "text": one["text"]}
        for node, one, where in known
    ]
    silent_ones = [f"no process of it on {node} can be asked: none {_NOT_HERE}" for node in silent]
    said = grouped([(one["rank"], where) for _, one, where in known])
    return {"id": job, "sentences": [*([said] if said else []), *silent_ones, *problems], "processes": processes}


_NOT_HERE: Final = "has made a step or joined a group with Colane's adaptor"


def grouped(known: Iterable[tuple[int | None, PlaceInCode]]) -> str:
    """Say which ranks are where: `ranks 0-2 wait in all_reduce (train.py:41), rank 3 is in load (data.py:12)`."""
    groups: dict[PlaceInCode, list[int | None]] = {}
    for rank, where in known:
        groups.setdefault(where, []).append(rank)
    return ", ".join(_group(ranks, where) for where, ranks in groups.items())


def _group(ranks: Sequence[int | None], where: PlaceInCode) -> str:
    numbers = sorted({rank for rank in ranks if rank is not None})
    unnumbered = ranks.count(None)
    who = [f"{'ranks' if len(numbers) > 1 else 'rank'} {_spans(numbers)}"] if numbers else []
    who += ["its process" if unnumbered == len(ranks) == 1 else count(unnumbered, "process")] if unnumbered else []
    verb = where.one if len(numbers) + unnumbered == 1 else where.several
    return f"{' and '.join(who)} {verb} {where.rest}"


def _spans(numbers: Sequence[int]) -> str:
    """Write numbers in rising order, as `0-2, 7`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _place_of_process(one: RawStacksObject) -> PlaceInCode:
    if one["problem"]:
        verb, _, rest = one["problem"].partition(" ")
        return PlaceInCode(verb, {"does": "do", "has": "have"}.get(verb, verb), rest)
    return place_in_code(main_stack(one["text"]))


def main_stack(text: str) -> list[Frame]:
    """Return the calls of the first thread of a process's stacks, which is the main one; the innermost first."""
    lines = text.partition("\n\n")[0].splitlines()
    found = [match for match in map(_FRAME.fullmatch, lines) if match is not None]
    return [Frame(match[1], int(match[2][:9]), match[3]) for match in found]


def place_in_code(stack: Sequence[Frame]) -> PlaceInCode:
    """Say where a thread is: in which function of the script, and in which call that it waits, where that is known."""
    if not stack:
        return PlaceInCode("runs", "run", "no Python")
    depth = next((depth for depth, frame in enumerate(stack) if not _is_library(frame)), None)
    own = stack[-1 if depth is None else depth]
    inside = stack[:depth]
    if any(_TURNS.search(frame.path) for frame in inside):
        return PlaceInCode("waits", "wait", f"for a turn ({own.place})")
    meeting = next((one for one in inside if _MEETING.search(one.path) and not one.name.startswith("_")), None)
    if meeting is not None:
        return PlaceInCode("waits", "wait", f"in {meeting.name} ({own.place})")
    called = next((one.name for one in reversed(inside) if not one.name.startswith("_")), "")
    behind = f", which has called {called}" if called else ""
    return PlaceInCode("is", "are", f"in {own.name} ({own.place}){behind}")


def _is_library(frame: Frame) -> bool:
    return bool(_LIBRARY.search(frame.path) or _ADAPTOR.search(frame.path))
