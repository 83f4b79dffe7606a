"""`colane simulate`: the same decisions in virtual time, on a recorded or made-up workload."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from colane.cli import output
from colane.cli.errors import FAILURE, INTERRUPTED, FailureError, MisuseError, writing
from colane.cli.output import ScreenColumn
from colane.cli.service.command import option
from colane.lab.commands.export import kept_in
from colane.lab.commands.study import (
    Engine,
    FigureInch,
    Parquet,
    RayAddress,
    RunsOn,
    check_parquet,
    elsewhere,
    judge_engine,
)  # fmt: skip
from colane.lab.commands.trace import TraceColumns, format_of
from colane.model.quantities import parse_duration_s
from colane.model.words import count
from colane.settings import table as settings
from colane.settings.setting import Section, Setting, SettingError
from colane.settings.sources import gather
from colane.settings.table import CoreTunerChoice

if TYPE_CHECKING:
    from colane.core import Core
    from colane.lab.report.simulated import Study
    from colane.lab.simulate.request import Loaded, Request
    from colane.lab.simulate.study import SeededRun
    from colane.lab.simulate.watcher import Watcher
    from colane.lab.simulate.watchers import Story

DEFAULT_POLICIES = ("fifo", "colane")


def _as_live(setting: Setting[Any]) -> Any:  # noqa: ANN401 - as typer's own
    """Return the option of what a scheduler does by default, and so policies that are simulated as they run live."""
    told = f"{setting.default}, and off for policies as they were published"
    return typer.Option(setting.flag, metavar=setting.metavar, show_default=told, help=setting.help)


def _cost(option: str, help_: str) -> Any:  # noqa: ANN401 - as typer's own
    return typer.Option(option, min=0.0, show_default="as the cluster says, else 0", help=help_)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "simulate", epilog="Example: [bold]colane simulate --cluster dgx1 --trace jobs.csv -p fifo -p colane[/bold]"
    )(simulate)


def simulate(  # noqa: PLR0913, PLR0917 - a command line option is a parameter
    cluster: Annotated[
        str, typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="Machines: a YAML file, node list or preset.")
    ] = "dgx1",
    trace: Annotated[
        str,
        typer.Option(
            "--trace",
            "-t",
            metavar="FILE|GENERATOR",
            help="Jobs: a recorded trace, or a generator such as poisson:jobs=200,gap=30.",
        ),
    ] = "sample",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="NAME|FILE.py:NAME",
            show_default="fifo and colane",
            help="Policy that decides; may be repeated. FILE.py:NAME is a policy of your own.",
        ),
    ] = None,
    policy_budget: Annotated[str | None, option(settings.POLICY_BUDGET)] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of generators and of noise.")] = 0,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Run so many seeds in parallel processes.")] = 1,
    engine: Engine = RunsOn.LOCAL,
    address: RayAddress = None,
    world: Annotated[
        str, typer.Option("--world", help="The truth that moves the jobs: auto, neutral, factors or table.")
    ] = "auto",
    tables: Annotated[
        Path | None,
        typer.Option(
            "--tables",
            metavar="DIR|FILE",
            envvar="COLANE_DATA",
            show_default="those shipped, with --world table",
            help="Measured tables for the table world: a directory, or any of Gavel's throughput files.",
        ),
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option("--measured", metavar="FILE", help="What a live cluster measured, as colane export writes it."),
    ] = None,
    demand: Annotated[
        float | None,
        typer.Option(
            "--demand",
            metavar="0..1",
            show_default="0.52",
            help="Part of a GPU a job needs of which nothing was measured, in the factors world.",
        ),
    ] = None,
    belief: Annotated[
        str, typer.Option("--belief", help="What policies start from: none, or profiled (alone, with noise).")
    ] = "none",
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Tell policies the world's truth; the report says so.")
    ] = False,
    noise: Annotated[
        float, typer.Option("--noise", min=0.0, help="Sigma of the log-normal noise on profiled values.")
    ] = 0.1,
    time_scale: Annotated[
        float, typer.Option("--time-scale", metavar="X", help="Divide all submission times by this.")
    ] = 1.0,
    launch_s: Annotated[float | None, _cost("--launch-s", "From a start to the first work.")] = None,
    restart_s: Annotated[
        float | None, _cost("--restart-s", "Added to it when a job goes on from a checkpoint.")
    ] = None,
    stop_s: Annotated[float | None, _cost("--stop-s", "From the order to stop to free GPUs.")] = None,
    park_s: Annotated[
        float | None, _cost("--park-s", "Parking a job, and bringing it back, besides moving its memory.")
    ] = None,
    to_host: Annotated[
        str | None,
        typer.Option(
            "--to-host",
            metavar="BYTES/S",
            show_default="as the cluster says, else 10GB/s",
            help="How fast GPU memory moves to the host and back when a job is parked.",
        ),
    ] = None,
    switch_s: Annotated[float | None, _cost("--switch-s", "What passing on the turn of a lane costs it.")] = None,
    checkpoints: Annotated[
        bool | None,
        typer.Option(
            "--checkpoints/--no-checkpoints",
            show_default="as the trace says of each job, else none",
            help="Whether all jobs save their state when they are stopped, and may be preempted, or none.",
        ),
    ] = None,
    sharing: Annotated[
        str, typer.Option("--sharing", help="How jobs share a GPU: mps or time-slice; predictions differ by it.")
    ] = "mps",
    any_pool: Annotated[bool, typer.Option("--any-pool", help="Let every job run on any node.")] = False,
    multi_node: Annotated[
        bool, typer.Option("--multi-node", help="Let jobs larger than any node of their pool lie on several.")
    ] = False,
    cpu_jobs: Annotated[
        bool, typer.Option("--cpu-jobs", help="Keep jobs of a recorded trace that ask for no GPU.")
    ] = False,
    memory_from: Annotated[
        str | None,
        typer.Option("--memory-from", help="What stands in for memory that is not known: share (of a GPU) or model."),
    ] = None,
    limits: Annotated[Path | None, option(settings.LIMITS)] = None,
    core_tuner: Annotated[CoreTunerChoice | None, _as_live(settings.CORE_TUNER)] = None,
    core_window: Annotated[str, option(settings.CORE_WINDOW)] = str(settings.CORE_WINDOW.default),
    guard: Annotated[str | None, _as_live(settings.GUARD)] = None,
    guard_after: Annotated[str, option(settings.GUARD_AFTER)] = str(settings.GUARD_AFTER.default),
    trace_format: Annotated[
        str | None, typer.Option("--format", metavar="NAME", show_default="guessed", help="Format of the trace.")
    ] = None,
    columns: TraceColumns = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave bad rows of the trace out, and count them.")
    ] = False,
    foresee: Annotated[
        bool, typer.Option("--foresee", help="Foresee starts and ends as a live cluster does, and judge what was said.")
    ] = False,
    begin: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Go on from a state that was kept, under its policy or another."),
    ] = None,
    lasts: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", show_default="to the end", help="Simulate so long only.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="FILE", help="Keep here how all stands after --for, for --from.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Write summary, jobs, plots and a page here.")
    ] = None,
    parquet: Parquet = False,
    figure_inch: FigureInch = None,
    decisions: Annotated[
        Path | None,
        typer.Option(
            "--decisions",
            metavar="FILE",
            help="Write every decision with its reason; of several seeds FILE-seed-N each.",
        ),
    ] = None,
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="JOB", help="Tell the story of this job, by name or number.")
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Simulate policies on a workload and report what each achieves.

    Nothing live is touched. The same inputs and seed give the same results, byte for byte.
    """
    from colane.lab.traces.costs import parse_to_host  # noqa: PLC0415 - imported late
    from colane.lab.traces.workload import collector_held  # noqa: PLC0415

    if parquet:
        check_parquet(out)
    kept = None if begin is None else kept_in("--from", begin)
    if kept is not None and (cluster, trace) != ("dgx1", "sample"):
        raise MisuseError("--from: the cluster and the jobs are those of the state: leave out --cluster and --trace")
    chosen = tuple(dict.fromkeys(policy or (DEFAULT_POLICIES if kept is None else (kept.policy,))))
    request = make_request(
        cluster=cluster, trace=trace, trace_format=format_of(trace_format, columns), world=world, tables=tables,
        measured=measured,
        demand=demand, belief="oracle" if oracle else belief, noise=noise, time_scale=time_scale,
        skip_bad_rows=skip_bad_rows, any_pool=any_pool, sharing=sharing, costs={
            "launch_s": launch_s, "restart_s": restart_s, "stop_s": stop_s, "park_s": park_s, "switch_s": switch_s,
            "to_host_bytes_per_s": None if to_host is None else _parsed("--to-host", parse_to_host, to_host),
        }, preemptible=checkpoints, multi_node=multi_node, cpu_jobs=cpu_jobs,
        foresees=foresee, memory_from=memory_from,
    )  # fmt: skip
    flags = {
        "policy_budget": policy_budget, "core_tuner": core_tuner, "core_window": core_window, "limits": limits,
        "guard": guard, "guard_after": guard_after,
    }  # fmt: skip
    flags = {name: value for name, value in flags.items() if value is not None}
    request = _with_settings(request, chosen, flags)
    request, seed = (request, seed) if kept is None else (kept.goes_on, kept.seed)
    request = replace(request, lasts_s=inf if lasts is None else _parsed("--for", parse_duration_s, lasts))
    if state is not None and (lasts is None or len(chosen) > 1 or seeds > 1):
        raise MisuseError("--state: is of one run that is cut: say --for, one --policy and one seed")
    judge_engine(engine, address, seeds)
    asked = _StudyRequest(chosen, tuple(range(seed, seed + seeds)), decisions, explain, address)
    from colane.lab.report.simulated_compared import is_idle, unclaimed  # noqa: PLC0415 - imported late
    from colane.lab.report.style import as_wide_as  # noqa: PLC0415

    with collector_held():  # one process for one study: the collector would find hardly a cycle
        study, stories = _study(request, asked, state)
        with as_wide_as(figure_inch):
            _publish(study, out, stories, parquet=parquet, as_json=as_json)
    if study.is_interrupted:
        raise typer.Exit(INTERRUPTED)
    if unclaimed(study) or any(map(is_idle, study.runs)):
        raise typer.Exit(FAILURE)


def make_request(  # noqa: PLR0913
    *, world: str, tables: Path | None, measured: Path | None, demand: float | None, belief: str, noise: float,
    time_scale: float, sharing: str, costs: Mapping[str, float | None], memory_from: str | None,
    **plain: Any,  # noqa: ANN401 - fields of its own
) -> Request:  # fmt: skip
    """A request of command line values. Raises MisuseError: one of them is not possible; the near ones are named."""
    from colane.lab.simulate.beliefs import Belief  # noqa: PLC0415 - imported late
    from colane.lab.simulate.factors import PHILLY_DEMAND  # noqa: PLC0415
    from colane.lab.simulate.request import Request, WorldKind  # noqa: PLC0415
    from colane.lab.simulate.table_files import MemoryFrom  # noqa: PLC0415

    if not 0 < time_scale < inf:
        raise MisuseError(f"--time-scale: must be a number above 0, got {time_scale:g}")
    ordered = {name: value for name, value in costs.items() if value is not None}
    for name, value in {"noise": noise, **ordered}.items():
        if not isfinite(value):
            raise MisuseError(f"--{name.replace('_', '-')}: must be a finite number, got {value:g}")
    if demand is not None and not 0 < demand <= 1:
        raise MisuseError(f"--demand: must be above 0 and at most 1, got {demand:g}")
    from colane.lab.traces.tables import SHIPPED  # noqa: PLC0415

    kind = WorldKind(_one_of("--world", world, [kind.value for kind in WorldKind]))
    return Request(
        **plain,
        world=kind,
        tables=SHIPPED if kind is WorldKind.TABLE and tables is None and measured is None else tables,
        measured=measured,
        demand=PHILLY_DEMAND if demand is None else demand,
        belief=Belief(_one_of("--belief", belief, [kind.value for kind in Belief])),
        noise=noise,
        time_scale=time_scale,
        sharing=_one_of("--sharing", sharing, ["mps", "time-slice"]),
        costs=ordered,
        memory_from=None
        if memory_from is None
        else MemoryFrom(_one_of("--memory-from", memory_from, list(MemoryFrom))),
    )


def _with_settings(request: Request, policies: Iterable[str], flags: Mapping[str, object]) -> Request:
    """Add what a scheduler is told by the same flags."""
    from colane.lab.simulate.request import LiveSettings  # noqa: PLC0415
    from colane.lab.traces.node_events import of_trace  # noqa: PLC0415
    from colane.policyfiles.guard import budget_s  # noqa: PLC0415 - imported late
    from colane.server.config import quotas  # noqa: PLC0415

    wanted = (
        settings.POLICY_BUDGET, settings.CORE_TUNER, settings.CORE_WINDOW, settings.LIMITS, settings.GUARD,
        settings.GUARD_AFTER,
    )  # fmt: skip
    try:
        values = gather(Section("simulate", wanted), flags, environment={})
        limits = of_trace(quotas(values))
    except SettingError as error:
        raise MisuseError(str(error)) from error
    except ValueError as error:
        raise MisuseError(str(values.fault(settings.LIMITS, f"{values[settings.LIMITS]}: {error}"))) from error
    try:
        found_s = budget_s(policies, values[settings.POLICY_BUDGET])
    except ValueError as error:
        raise MisuseError(f"{settings.POLICY_BUDGET.flag}: {error}") from error
    live = LiveSettings(settings.tuning(values), values[settings.GUARD])
    return replace(
        request, policy_budget_s=found_s, limits=limits, live=live, guard_after_s=values[settings.GUARD_AFTER],
        tuning=live.tuning if settings.CORE_TUNER.name in flags else None,
        guard_margin_ratio=live.guard_margin_ratio if settings.GUARD.name in flags else None,
    )  # fmt: skip


def _parsed(option: str, parse: Callable[[str], float], text: str) -> float:
    try:
        return parse(text)
    except ValueError as error:
        raise MisuseError(f"{option}: {error}") from error


def _one_of(option: str, value: str, known: list[str]) -> str:
    if value in known:
        return value
    from difflib import get_close_matches  # noqa: PLC0415 - for misuse only

    near = get_close_matches(value, known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise MisuseError(f"{option}: unknown value {value!r}; {hint}known: {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class _StudyRequest:
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    decisions: Path | None = None
    explain: str | None = None
    address: str | None = None


def _keep(path: Path, request: Request, loaded: Loaded, one: SeededRun, policy: str) -> None:
    from colane.api.states import write  # noqa: PLC0415 - imported late
    from colane.lab.simulate.request import KeptRun  # noqa: PLC0415

    if one.run.state is None:
        raise FailureError("--state: all jobs had ended before that: nothing is kept")
    asked = replace(request, kept=None, lasts_s=inf)
    with writing(f"--state: {path}"):
        path.write_bytes(write(KeptRun(asked, one.seed, policy, loaded.cluster, loaded.workload, one.run.state)))


def _study(request: Request, asked: _StudyRequest, state: Path | None = None) -> tuple[Study, dict[str, Story]]:
    from colane.lab.simulate.driver import StandstillError  # noqa: PLC0415
    from colane.lab.simulate.request import load  # noqa: PLC0415
    from colane.lab.simulate.study import comparable, run_seeds  # noqa: PLC0415
    from colane.policyfiles.guard import PolicyFaultError  # noqa: PLC0415 - imported late

    if len(asked.seeds) > 1 and asked.explain:
        raise MisuseError("--explain: tells of one run: leave --seeds away, or choose with --seed")
    if asked.decisions and asked.address:
        raise MisuseError("--decisions: is written by this machine's processes: leave --engine ray away")
    try:
        if len(asked.seeds) == 1:
            loaded, runs, stories = _one_seed(request, asked)
            if state is not None and runs:
                _keep(state, request, loaded, runs[0], asked.policies[0])
            return make_study(request, asked, {asked.seeds[0]: loaded}, runs), stories
        there = elsewhere(asked.address)
        path = asked.decisions
        with _opened(path):  # whether it can be written is told before anything runs
            runs = run_seeds(request, asked.policies, asked.seeds, on_done=_count, executor=there, decisions=path)
        if path is not None:
            path.unlink()  # each seed has a file of its own
        runs = comparable(runs, asked.policies)
        loads = {run.seed: load(request, run.seed) for run in runs}
        return make_study(request, asked, loads, runs), {}
    except PolicyFaultError as error:
        raise FailureError(f"policy: {error}") from error
    except StandstillError as error:
        raise FailureError(str(error)) from error
    except ValueError as error:
        raise MisuseError(str(error)) from error


def _count(done: int, total: int) -> None:
    import sys  # noqa: PLC0415 - for terminals only

    if sys.stderr.isatty():
        sys.stderr.write(f"\r{done} of {count(total, 'run')}" + ("\n" if done == total else ""))
        sys.stderr.flush()


def _one_seed(request: Request, asked: _StudyRequest) -> tuple[Loaded, list[SeededRun], dict[str, Story]]:
    from colane.lab.commands.simulation import progress  # noqa: PLC0415 - imported late
    from colane.lab.simulate.study import run_policies  # noqa: PLC0415
    from colane.lab.simulate.watchers import DecisionLog, Story, find_job  # noqa: PLC0415

    stories: dict[str, Story] = {}

    def watch(policy: str, core: Core, loaded: Loaded) -> Iterator[Watcher]:
        if file is not None:
            yield DecisionLog(file, policy, core)
        if asked.explain is not None:
            job = find_job(loaded.workload, asked.explain)
            if job is None:
                raise MisuseError(f"--explain: there is no job {asked.explain!r} in {loaded.workload.name}")
            stories[policy] = Story(job.id, core)
            yield stories[policy]

    with _opened(asked.decisions) as file, progress() as show:
        loaded, runs = run_policies(request, asked.policies, asked.seeds[0], watch=watch, on_ready=show)
    return loaded, runs, stories


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO | None]:
    if path is None:
        yield None
        return
    with writing(f"--decisions: {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w", encoding="utf-8")
    with file:
        yield file


def make_study(request: Request, asked: _StudyRequest, loads: dict[int, Loaded], runs: list[SeededRun]) -> Study:
    """What is reported of runs."""
    from colane.lab.commands.simulation import details, inputs_object, notes, seed_notes  # noqa: PLC0415 - imported late
    from colane.lab.report.simulated import Study  # noqa: PLC0415
    from colane.lab.studies.reported import simulated_run  # noqa: PLC0415

    if not runs:
        raise FailureError("simulate: stopped before anything was simulated")
    loaded = loads[runs[0].seed]
    return Study(
        title=f"{loaded.workload.name} on {loaded.cluster.name}",
        inputs=inputs_object(loaded, details(request, loaded)),
        runs=tuple(simulated_run(one.run, one.seed, loads[one.seed]) for one in runs),
        jobs={seed: {job.id: job for job in load.workload.jobs} for seed, load in loads.items()},
        notes=(*notes(request, loaded), *seed_notes(request, len(loads))),
        runs_asked=len(asked.policies) * len(asked.seeds),
    )


def _publish(study: Study, out: Path | None, stories: dict[str, Story], *, parquet: bool, as_json: bool) -> None:
    from colane.lab.commands.simulation import story_lines  # noqa: PLC0415 - imported late
    from colane.lab.report import simulated_writer as writer  # noqa: PLC0415 - matplotlib comes with it

    written = None
    if out is not None:
        with writing(f"--out: {out}"):
            written = writer.write(study, out)
            if parquet:
                writer.write_parquet(written.jobs_csv)
    if as_json:
        told = {policy: [chapter._asdict() for chapter in story.chapters] for policy, story in stories.items()}
        output.print_json(writer.summary_object(study) | ({"stories": told} if told else {}))
        return
    for table in writer.terminal_tables(study):
        output.print_table([ScreenColumn(c.heading, c.is_number) for c in table.columns], table.texts(), table.title)
        output.say()
    for sentence in writer.said(study):
        output.say(sentence)
    for policy in study.policies:
        runs = [run for run, _ in study.of(policy)]
        seeds = "" if len(runs) == 1 else f", {len(runs)} seeds"
        output.note(f"{policy}{seeds}: {sum(r.events for r in runs):,} events in {sum(r.wall_s for r in runs):.2f} s")
    if written is not None:
        output.say(f"report: {written.html}")
    for line in story_lines(stories):
        output.say(line)
