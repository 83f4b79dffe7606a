"""Made-up workloads by name: `poisson:jobs=200,gap=30` is a generator with its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

from colane.lab.simulate.table_files import gavel_models, has_sources
from colane.lab.traces import generate
from colane.lab.traces.coda import Coda, coda
from colane.lab.traces.generate import JobModel
from colane.lab.traces.workload import Workload
from colane.model.nearest import did_you_mean
from colane.model.quantities import parse_count, parse_duration_s, parse_number

Parse = Callable[[str], Any]
JOBS_MAX: Final = 10_000_000  # of one made-up workload; a simulated job takes some kilobytes


def _some_s(text: str) -> float:
    return _some(text, parse_duration_s)


def _some(text: str, parse: Parse = parse_number) -> float:
    number = float(parse(text))
    if number == 0:
        raise ValueError(f"must be more than 0, got {text!r}")
    return number


def _jobs(text: str) -> int:
    return parse_count(text, least=1, most=JOBS_MAX)


class _Context(NamedTuple):
    """What a generator may need besides its parameters."""

    seed: int
    gpus: int
    tables: Path | None


class Generator(NamedTuple):
    """A generator: what it makes, its parameters with parser and default, and how it is called."""

    title: str
    parameters: Mapping[str, tuple[Parse, Any]]
    make: Callable[[Mapping[str, Any], _Context], Workload]


PLAIN_MODELS: Sequence[JobModel] = (
    JobModel(family="small", weight=0.7),
    JobModel(family="medium", gpus=2, weight=0.2),
    JobModel(family="large", gpus=4, weight=0.1),
)
"""Drawn where no measured table is at hand."""


def _models(context: _Context) -> Sequence[JobModel]:
    return gavel_models(context.tables) if has_sources(context.tables) else PLAIN_MODELS


SWEPT: Final = JobModel(family="sweep", steps_per_s=1.0)

GENERATORS: Mapping[str, Generator] = {
    "poisson": Generator(
        "Poisson arrivals of Gavel's 26 one-GPU models with Gavel's run times",
        {"jobs": (_jobs, 200), "gap": (parse_duration_s, 400.0)},
        lambda given, of: generate.poisson(
            _models(of), jobs=given["jobs"], mean_gap_s=given["gap"], seed=of.seed
        ),
    ),
    "heavy-tailed": Generator(
        "log-normal run times, like the 100 jobs of Salus",
        {"jobs": (_jobs, 100), "mean": (_some_s, 180.0), "span": (_some_s, 2220.0)},
        lambda given, of: generate.heavy_tailed(
            _models(of), jobs=given["jobs"], seed=of.seed, mean_s=given["mean"], span_s=given["span"]
        ),
    ),
    "topology": Generator(
        "the generator of the SC 2017 topology-aware scheduler",
        {"jobs": (_jobs, 100), "gap": (parse_duration_s, 10.0)},
        lambda given, of: generate.topology(jobs=given["jobs"], seed=of.seed, mean_gap_s=given["gap"]),
    ),
    "sweep": Generator(
        "a hyper-parameter search: alike jobs at once",
        {"jobs": (_jobs, 300), "duration": (_some_s, 600.0), "spread": (parse_number, 0.0)},
        lambda given, of: generate.sweep(
            SWEPT, jobs=given["jobs"], seed=of.seed, duration_s=given["duration"], spread_ratio=given["spread"]
        ),
    ),
    "heavy-load": Generator(
        "any load on the cluster, for benchmarks",
        {"jobs": (_jobs, 10_000), "load": (_some, 1.2), "mean": (_some_s, 3600.0)},
        lambda given, of: generate.heavy_load(
            jobs=given["jobs"], gpus=of.gpus, seed=of.seed, load=given["load"], mean_s=given["mean"]
        ),
    ),
    "coda": Generator(
        "a month of CPU and GPU jobs like CODA's", {"jobs": (_jobs, 100_000), "days": (_some, 30.0)},
        lambda given, of: coda(Coda(jobs=given["jobs"], days=given["days"]), seed=of.seed),
    ),
}  # fmt: skip
"""Generators by name; gaps, means, spans and durations are seconds, or as `10m`."""


def is_generator(text: str) -> bool:
    """Whether a text names a generator, rightly or with a slip in its name or parameters."""
    name = text.partition(":")[0]
    if name in GENERATORS:
        return True
    return bool(get_close_matches(name, GENERATORS, n=1, cutoff=0.8)) and not Path(text).exists()


def make_workload(text: str, *, seed: int, gpus: int, tables: Path | None = None) -> Workload:
    """Make the workload that a text such as `poisson:jobs=200,gap=30` names.

    Some load so many GPUs, or draw from the models of measured tables. Raises ValueError: an unknown generator, or an
    unknown or bad parameter.
    """
    name, _, rest = text.partition(":")
    if name not in GENERATORS:
        known = ", ".join(GENERATORS)
        raise ValueError(f"{name}: is neither a file nor a generator{did_you_mean(name, GENERATORS)}; known: {known}")
    generator = GENERATORS[name]
    given = {key: default for key, (_, default) in generator.parameters.items()}
    for part in filter(None, rest.split(",")):
        key, _, value = map(str.strip, part.partition("="))
        takes = generator.parameters
        if key not in takes:
            raise ValueError(f"{name}: has no parameter {key!r}{did_you_mean(key, takes)}; it has {', '.join(takes)}")
        try:
            given[key] = takes[key][0](value)
        except ValueError as error:
            raise ValueError(f"{name}: {key}: {error}") from None
    return generator.make(given, _Context(seed, gpus, tables))
