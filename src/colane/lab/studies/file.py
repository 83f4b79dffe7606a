"""A study file (TOML): what is simulated, for which jobs it is measured, and what is compared with what."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from colane.lab.report.windowed import METRICS
from colane.lab.simulate.beliefs import Belief
from colane.lab.simulate.generators import is_generator
from colane.lab.simulate.request import LIVE, SAMPLE, Request, WorldKind
from colane.lab.simulate.study import names_of
from colane.lab.simulate.table_files import MemoryFrom, folder_of
from colane.lab.traces.clusters import preset_names
from colane.lab.traces.costs import Costs, parse_to_host
from colane.lab.traces.node_events import of_trace
from colane.lab.traces.tables import SHIPPED
from colane.model.limits import QUEUED_DEFAULT, Limits, Quotas
from colane.model.nearest import nearest
from colane.model.quantities import parse_number
from colane.server.writer.limits import LimitsError, read_quotas

T = TypeVar("T", bound=StrEnum)

COMPARED_DEFAULT: Final = (
    "jct_mean_s", "jct_p95_s", "queue_mean_s", "makespan_s", "gpu_utilization_ratio", "rho_mean_ratio",
    "rho_jain_ratio",
)  # fmt: skip
"""Metrics that are compared where the file names none."""


class StudyError(ValueError):
    """A study file, or what it names, cannot be used; one line that names the key and the fix."""


class Extra(StrEnum):
    """Files that are written besides `cells.csv` and `comparisons.csv` where the study asks for them."""

    JOBS = "jobs"
    STAYS = "stays"
    TIMELINE = "timeline"
    FIGURES = "figures"
    DECISIONS = "decisions"
    FORESEEN = "foreseen"  # simulated with starts and ends foreseen


class CellKey(NamedTuple):
    """One simulation of a study; the policy is a name that reports use."""

    policy: str
    load: float
    seed: int

    def __str__(self) -> str:
        """For people."""
        return f"{self.policy}, load {self.load:g}, seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """What a study file asks for."""

    path: Path  # the file
    title: str  # heading
    policies: Mapping[str, str]  # what is simulated by the name it has in reports: a registered name, or FILE.py:NAME
    baseline: str  # the policy the others are compared with
    loads: tuple[float, ...]  # multiples of the trace's own load; submission times are divided by them
    seeds: tuple[int, ...]  # of generators and of noise
    window: tuple[int, int] | None  # places of the jobs that are measured, by submission from 0, half open; None: all
    extras: tuple[Extra, ...]  # what is written besides
    metrics: tuple[str, ...]  # what is compared
    request: Request  # all else that is simulated
    figure_inch: float | None = None  # how wide figures are; None: as on a page

    @property
    def cells(self) -> tuple[CellKey, ...]:
        """All simulations, those of one workload after one another."""
        return tuple(
            CellKey(policy, load, seed) for load in self.loads for seed in self.seeds for policy in self.policies
        )

    def request_of(self, load: float) -> Request:
        """What is simulated at a load."""
        return replace(self.request, time_scale=load)


def read_plan(path: Path) -> StudyPlan:
    """Read a study file. Raises StudyError: it cannot be read, or a key is unknown, missing or wrong."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StudyError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise StudyError(f"{path}: is not TOML: {error}") from error
    return _plan(path, {key: _read(path, key, value) for key, value in given.items()})


def _plan(path: Path, given: Mapping[str, Any]) -> StudyPlan:
    for needed in ("cluster", "trace", "policies"):
        if needed not in given:
            raise StudyError(f"{path}: {needed}: is missing; a study needs cluster, trace and policies")
    try:
        policies = names_of([_beside(path, text) for text in given["policies"]])
    except ValueError as error:
        raise StudyError(f"{path}: policies: {str(error).removeprefix('policy: ')}") from error
    baseline = given.get("baseline", next(iter(policies)))
    if baseline not in policies:
        raise StudyError(f"{path}: baseline: must be one of the policies, {', '.join(policies)}; got {baseline!r}")
    request, seeds = _request(path, given), given.get("seeds", (0,))
    if len(seeds) > 1 and not is_generator(request.trace) and request.belief is not Belief.PROFILED:
        raise StudyError(
            f"{path}: seeds: all would be alike, as the trace is no generator's and no noise is drawn; "
            'leave seeds away, or say belief = "profiled"'
        )
    return StudyPlan(
        path=path,
        title=given.get("title", path.stem),
        policies=policies,
        baseline=baseline,
        loads=given.get("loads", (1.0,)),
        seeds=seeds,
        window=given.get("jobs"),
        extras=given.get("files", ()),
        metrics=given.get("metrics", COMPARED_DEFAULT),
        request=request,
        figure_inch=given.get("figure_inch"),
    )


def _beside(path: Path, text: str) -> str:
    """A file is looked for beside the study file; any other text is left as it is."""
    first, colon, rest = text.partition(":")
    found = path.parent / first
    return f"{found}{colon}{rest}" if found.is_file() or found.is_dir() else text


def _request(path: Path, given: Mapping[str, Any]) -> Request:
    cluster, trace, limits = given["cluster"], given["trace"], Quotas(Limits(queued=QUEUED_DEFAULT))
    try:
        limits = of_trace(read_quotas(Path(_beside(path, given["limits"])))) if "limits" in given else limits
    except (LimitsError, ValueError) as error:
        raise StudyError(f"{path}: limits: {error}") from error
    kind, measured = given.get("world", WorldKind.AUTO), given.get("measured")
    tables = Path(_beside(path, given["tables"])) if "tables" in given else folder_of(None)
    if kind is WorldKind.TABLE and tables is None and measured is None:
        tables = SHIPPED
    costs = {field.name: given[field.name] for field in fields(Costs) if field.name in given}
    if "to_host" in given:
        costs["to_host_bytes_per_s"] = given["to_host"]
    plain = {key: given[key] for key in AS_THEY_ARE if key in given}
    return Request(
        cluster=cluster if cluster in preset_names() else _beside(path, cluster),
        trace=trace if trace == SAMPLE or is_generator(trace) else _beside(path, trace),
        trace_format=f"columns:{given['columns']}" if "columns" in given else given.get("format"),
        world=kind,
        tables=tables,
        measured=None if measured is None else Path(_beside(path, measured)),
        preemptible=given.get("checkpoints"),
        costs=costs,
        limits=limits,
        live=LIVE,
        foresees=Extra.FORESEEN in given.get("files", ()),
        **plain,
    )


AS_THEY_ARE: Final = (
    "demand", "belief", "noise", "skip_bad_rows", "any_pool", "multi_node", "cpu_jobs", "memory_from", "sharing",
)  # fmt: skip
"""Keys that are fields of a request by the same name."""


def _read(path: Path, key: str, value: object) -> Any:  # noqa: ANN401 - as its reader gives it
    if key not in KEYS:
        near = nearest(key, KEYS)
        hint = f"; did you mean {' or '.join(near)}?" if near else f"; known: {', '.join(KEYS)}"
        raise StudyError(f"{path}: {key}: there is no such key{hint}")
    try:
        return KEYS[key](value)
    except ValueError as error:
        raise StudyError(f"{path}: {key}: {error}") from error


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be a text, got {value!r}")
    return value


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, got {value!r}")  # noqa: TRY004 - one kind of error for all values
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise ValueError(f"must be a number, got {value!r}")
    return parse_number(value)


def _above_0(value: object) -> float:
    if not (number := _number(value)) > 0:
        raise ValueError(f"must be above 0, got {value!r}")
    return number


def _width(value: object) -> float:
    if not 2.0 <= (number := _number(value)) <= 12.0:
        raise ValueError(f"must be from 2 to 12, got {value!r}")
    return number


def _part(value: object) -> float:
    if (number := _above_0(value)) > 1:
        raise ValueError(f"must be above 0 and at most 1, got {value!r}")
    return number


def _whole(value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"must be a whole number from {least}, got {value!r}")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"must be a list of at least one, got {value!r}")
    return value


def _once(values: list[Any]) -> tuple[Any, ...]:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"names {value!r} twice")
    return tuple(values)


def _seeds(value: object) -> tuple[int, ...]:
    if isinstance(value, list):
        return _once([_whole(seed, 0) for seed in _list(value)])
    return tuple(range(_whole(value, 1)))


def _window(value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"must be two places, as [4000, 5000] for the 4,001st job to the 5,000th, got {value!r}")
    first, behind = (_whole(place, 0) for place in value)
    if first >= behind:
        raise ValueError(f"must be two places, the first before the second, got {value!r}")
    return first, behind


def _word(value: object, known: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what the word stands for
    if isinstance(value, str) and value in known:
        return known[value]
    near = nearest(str(value), known)
    hint = f"did you mean {near[0]}? " if near else ""
    raise ValueError(f"must be one of {', '.join(known)}; {hint}got {value!r}")


def _kind(kind: type[T]) -> Callable[[object], T]:
    known = {str(one.value): one for one in kind}
    return lambda value: kind(_word(value, known))


KEYS: Final[Mapping[str, Callable[[object], Any]]] = {
    "title": _text,
    "cluster": _text,
    "trace": _text,
    "format": _text,
    "columns": _text,
    "policies": lambda value: _once([_text(one) for one in _list(value)]),
    "baseline": _text,
    "loads": lambda value: _once([_above_0(one) for one in _list(value)]),
    "seeds": _seeds,
    "jobs": _window,
    "figure_inch": _width,
    "files": lambda value: _once([_kind(Extra)(one) for one in _list(value)]),
    "metrics": lambda value: _once([_word(one, {name: name for name in METRICS}) for one in _list(value)]),
    "world": _kind(WorldKind),
    "tables": _text,
    "measured": _text,
    "demand": _part,
    "belief": _kind(Belief),
    "noise": _number,
    "limits": _text,
    "sharing": lambda value: str(_word(value, {"mps": "mps", "time-slice": "time-slice"})),
    "checkpoints": _switch,
    "any_pool": _switch,
    "multi_node": _switch,
    "cpu_jobs": _switch,
    "memory_from": _kind(MemoryFrom),
    "skip_bad_rows": _switch,
    "launch_s": _number,
    "restart_s": _number,
    "stop_s": _number,
    "park_s": _number,
    "switch_s": _number,
    "to_host": parse_to_host,
}
"""Keys of a study file and how each is read."""
