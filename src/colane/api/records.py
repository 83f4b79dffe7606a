"""Answers about what has happened and what is known: health, use, profiles, measurements, tokens."""

from __future__ import annotations

from typing_extensions import TypedDict


class HealthDetailObject(TypedDict, total=False):
    """Why a scheduler is not what it should be; missing where it is."""

    detail: str


class StoreObject(TypedDict):
    """Of which kind a store is, what it may lose of what it has acknowledged, and what its server does not tell."""

    kind: str
    risks: list[str]
    unchecked: list[str]


class SomeQuotesObject(TypedDict):
    """Some quotes: what their medians `said`, how many, which part `holds`, and the median relative `error`."""

    said: str
    quotes: int
    holds: float | None
    error: float | None


class ForeseenObject(TypedDict):
    """How good quotes of starts were lately, by method: what is shown, and the baselines that others would say.

    Attributes:
        policy: Under which.
        method: `foreseen` is what is shown; `end` the same of ends.
        quotes: How many were judged.
        holds: Part of them that held; four of five are to.
        early: Part that came sooner than said.
        late: Part that came later.
        score: Winkler's of logarithms; less is better.
        median_error: Of the median.
        p90_over_p10: How wide half of them were at most.
        horizons: Of each horizon.
        known: Of those that were said to be known.
        brier: Brier's score of the probability of a start within a minute; less is better.
        brier_base: The same of the rate of all.
    """

    policy: str
    method: str
    quotes: int
    holds: float
    early: float
    late: float
    score: float
    median_error: float
    p90_over_p10: float
    horizons: list[SomeQuotesObject]
    known: SomeQuotesObject
    brier: float
    brier_base: float


class ServiceHealthObject(HealthDetailObject):
    """A scheduler's state in numbers."""

    status: str
    role: str
    cluster_id: str
    former_cluster_ids: list[str]
    epoch: int
    policy: str
    mechanisms: dict[str, str]
    queued: int
    running: int
    nodes: int
    lost_nodes: int
    store: StoreObject
    unreadable: list[str]
    faults: int
    state_version: int
    events: int
    started_s: float
    longest_decision_cpu_s: float
    foreseen: list[ForeseenObject]


class HealthAnswer(ServiceHealthObject):
    """The answer of `/health`."""

    version: str


class UsageObject(TypedDict):
    """What one user has had, and has now; see `docs/reference/interfaces.md`.

    `gpu_busy_ratio` is the part of the time of their GPUs in which the user's last jobs used them; None is unknown.
    """

    user: str
    jobs: int
    failed: int
    gpu_s: float
    running: int
    gpus: int
    waiting: int
    gpu_busy_ratio: float | None


class TokenObject(TypedDict):
    """What is known of a token: which user or node it stands for, and who made it when."""

    id: str
    role: str
    name: str
    made_s: float
    made_by: str


class TokenAnswer(TypedDict):
    """The id of a token that was made."""

    id: str


class RevokedAnswer(TypedDict):
    """The id of a token that was revoked."""

    revoked: str


class RemovedAnswer(TypedDict):
    """Whether what was asked is removed."""

    removed: bool


class DeclaredAnswer(TypedDict):
    """Whether what was declared is taken in."""

    declared: bool


class ForgottenAnswer(TypedDict):
    """How many profiles, measured sets and lengths were forgotten."""

    forgotten: int


class ReloadedAnswer(TypedDict):
    """Which files now say something else."""

    limits: bool
    notify: bool


class HandedOverAnswer(TypedDict):
    """Number of the start of the scheduler that ends for a standby to lead."""

    handed_over: int


class AdoptedAnswer(TypedDict):
    """How many changes are lost of a store that an operator goes on from, which nodes know them, jobs to be ended."""

    lost: int
    nodes: list[str]
    jobs: list[int]
