"""Where the processes of a job are: what agents answer, and what is made of it."""

from __future__ import annotations

from typing_extensions import TypedDict


class RawStacksObject(TypedDict):
    """What one process has answered its agent.

    Attributes:
        rank: Its number among all of its job; None where it does not know.
        pid: Its number as it sees it.
        text: The stacks of its threads, the main one first, the innermost call of each first; at most 64 kB.
        problem: Why it says nothing; empty where it does.
    """

    rank: int | None
    pid: int
    text: str
    problem: str


class RawStacksAnswer(TypedDict):
    """What an agent answers at `/stacks/{job}/{attempt}`."""

    processes: list[RawStacksObject]


class ProcessStacksObject(TypedDict):
    """Where one process of a job is.

    Attributes:
        node: Its node.
        rank: Its number among all of its job; None where it does not know.
        pid: Its number as it sees it.
        sentence: Where its main thread is, in a few words: `waits in all_reduce (train.py:41)`.
        text: The stacks of its threads, the main one first, the innermost call of each first; empty where it says
            nothing, and `sentence` says why.
    """

    node: str
    rank: int | None
    pid: int
    sentence: str
    text: str


class StacksAnswer(TypedDict):
    """The answer of `/job/{id}/stacks`.

    Attributes:
        id: The job.
        sentences: Which ranks are where; which nodes do not answer, and why.
        processes: Each process, by rank.
    """

    id: int
    sentences: list[str]
    processes: list[ProcessStacksObject]
