"""From a job request to what policies see and what only the agent sees, or a refusal that names the field."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from colane.api.job_request import JobRequest, in_base_units, said_name, said_twice
from colane.model import file_names
from colane.model.arrays import array_of, parse_array
from colane.model.checkpoint import parse_contract
from colane.model.field_values import groups_problem
from colane.model.job import JobSpec
from colane.model.job_fields import BY_NAME, JOB_FIELDS, RULED_NAMES, senseless
from colane.model.job_spec import CheckpointContract, PoolWay, Ranks
from colane.model.limits import POOLS_LABEL
from colane.model.phases import Array, Hold, HoldKind
from colane.model.problem import Problem
from colane.perf.shared_family import owned_problem
from colane.server.board.hardware import Hardware
from colane.server.board.submission import ASKED, Admitted, asked
from colane.server.ground.pools import PoolRules
from colane.server.ground.problems import PROBLEMS_MAX, RefusedError
from colane.server.store.documents import Body
from colane.server.submitting.asked_conditions import begin_time_s, time_text
from colane.server.submitting.family import name_of
from colane.server.submitting.lookup import Families
from colane.workloads import catalogue

TRAINER_FIELDS: Final = frozenset(field.name for field in JOB_FIELDS if field.of_trainer)
"""Fields that only a built-in job may carry."""

_SPEC_FIELDS: Final = tuple(field for field in JOB_FIELDS if field.in_spec)
_SPEC_FIELD: Final = {field.name: field for field in _SPEC_FIELDS}


@dataclass(frozen=True, slots=True)
class _Program:
    """The part of a job that depends on whether it is built in."""

    command: list[str]
    name: str
    family: str
    batch_size: int | None
    steps_total: int | None
    model_name: str | None


def admit_all(
    requests: Sequence[JobRequest],
    hardware: Hardware,
    workdir: str,
    now_s: float = 0.0,
    families: Families | None = None,
    pools: PoolRules | None = None,
) -> list[Admitted]:
    """Judge a batch; it is taken whole or not at all.

    Args:
        requests: The jobs in order.
        hardware: Nodes known now; with none, hardware is not judged.
        workdir: Working directory of jobs that name none.
        now_s: The time, from which times to begin are counted.
        families: The families of their commands, as far as they are known already.
        pools: What pools are for.

    Raises:
        RefusedError: 422 with every problem of the first bad jobs, fields as `jobs[3].batch_size`.
    """
    problems = list[Problem]()
    known, rules = families or Families(), pools or PoolRules()
    judge = partial(admit, hardware=hardware, workdir=workdir, now_s=now_s, families=known, pools=rules)
    admitted = judged(requests, 0, problems, judge)
    if problems:
        raise RefusedError(422, problems)
    return admitted


def judged(
    requests: Sequence[JobRequest], first: int, problems: list[Problem], judge: Callable[[JobRequest], Admitted]
) -> list[Admitted]:
    """Return the jobs of a part of a batch, which begins at a place of the whole; note what is wrong."""
    admitted = list[Admitted]()
    for position, request in enumerate(requests, first):
        try:
            admitted.append(judge(request))
        except RefusedError as refused:
            problems += [Problem(f"jobs[{position}].{field}", text) for field, text in refused.problems]
            if len(problems) >= PROBLEMS_MAX:
                break
    return admitted


_OF_JOB: Final = re.compile(r"jobs\[(?P<place>\d+)\]\.(?P<field>\w+)")


def named_as_given(refused: RefusedError, requests: Sequence[JobRequest]) -> RefusedError:
    """Return a refusal that names fields as the requests have them: `deadline` where they have no `deadline_s`."""
    renamed = [_as_given(problem, requests) for problem in refused.problems]
    return refused if renamed == [*refused.problems] else RefusedError(refused.status, renamed)


def _as_given(problem: Problem, requests: Sequence[JobRequest]) -> Problem:
    found = _OF_JOB.match(problem.field)
    field = None if found is None else BY_NAME.get(found["field"])
    if found is None or field is None:
        return problem
    place = int(found["place"])
    name = said_name(field, requests[place].model_fields_set)
    return Problem(f"jobs[{place}].{name}{problem.field[found.end() :]}", problem.message)


def admit(
    request: JobRequest,
    hardware: Hardware,
    workdir: str,
    now_s: float = 0.0,
    families: Families | None = None,
    pools: PoolRules | None = None,
) -> Admitted:
    """Judge one job; see `admit_all`. Raises RefusedError: 422 with what is wrong."""
    judge = partial(_in_pool, hardware, workdir, now_s, families or Families(), pools or PoolRules())
    if "," not in request.pool:
        return judge(request)
    found, causes, names = dict[str, Admitted](), dict[str, tuple[Problem, ...]](), request.pool.split(",")
    for pool in names:
        try:
            found[pool] = judge(request.model_copy(update={"pool": pool}))
        except RefusedError as refused:
            causes[pool] = refused.problems
    unknown = [pool for pool in causes if hardware.pools and pool not in hardware.pools]
    if len({*causes.values()}) == 1 and not found and not unknown:
        raise RefusedError(422, causes[names[0]])
    told = {pool: "; ".join([f"{field} {text}" for field, text in problems]) for pool, problems in causes.items()}
    if unknown or not found:
        raise RefusedError(422, [Problem("pool", "; ".join([f"{pool}: {told[pool]}" for pool in unknown or told]))])
    one = next(iter(found.values()))
    said = "; ".join([",".join(found), *[f"{pool}: {text}" for pool, text in told.items()]])
    one.launch[ASKED]["pool"] = request.pool
    several = [PoolWay(pool, each.spec.gpus, each.spec.time_limit_s) for pool, each in found.items()][len(found) == 1 :]
    return replace(one, spec=replace(one.spec, labels={**one.spec.labels, POOLS_LABEL: said}, pools=tuple(several)))


def _in_pool(
    hardware: Hardware, workdir: str, now_s: float, families: Families, pools: PoolRules, request: JobRequest
) -> Admitted:
    given, kept = request.model_fields_set, asked(request)
    request = in_base_units(request)
    request = pools.judged(request, is_limited=not given.isdisjoint({"time_limit", "time_limit_s"}))
    problems = said_twice(given) + _conflicts(request, given)
    if problems:
        raise RefusedError(422, problems)
    directory = request.workdir or workdir
    built_in = request.model_name is not None
    program = _trainer_program(request) if built_in else _command_program(request, directory, families or Families())
    spec = _spec(request, program)
    spec, misfit = hardware.sized(spec), hardware.problem(spec) or batch_problem(request, spec)
    if misfit is not None:
        raise RefusedError(422, [misfit])
    launch: Body = {"command": program.command, "workdir": directory, "env": dict(request.env)}
    launch |= {"mps": request.mps, "ranks": request.ranks, ASKED: kept}
    launch |= {name: said for name in ("output", "input", "pty") if (said := getattr(request, name))}
    if spec.sizes:
        launch["elastic"] = True
    if request.batch is not None:
        launch["batch"] = {"size": spec.batch_size, "per_gpu": spec.batch_per_gpu}
    if spec.checkpoint is not None:
        launch["checkpoint_signal"] = spec.checkpoint.signal
        launch["checkpoint_lead_s"] = spec.checkpoint.lead_s
        launch |= {"checkpoint_to_shell": True} if spec.checkpoint.to_shell else {}
    return Admitted(spec, launch, program.model_name, _holds(request, now_s), request.singleton, _array(request))


def _holds(request: JobRequest, now_s: float) -> tuple[Hold, ...]:
    """What is to keep it from starting at first: its owner, or a time before which it may not."""
    held = (Hold(HoldKind.USER, request.user or "its owner"),) if request.hold else ()
    begin = None if request.begin is None else begin_hold(request.begin, now_s, "begin")
    return held if begin is None else (*held, begin)


def _array(request: JobRequest) -> Array | None:
    """The elements that are asked for. Raises RefusedError: 422, there is no such array."""
    if request.array is None:
        return None
    if request.measurement_group is not None:
        raise RefusedError(422, [Problem("array", "is none of a measured set: leave out measurement_group")])
    try:
        return array_of(parse_array(request.array))
    except ValueError as error:
        raise RefusedError(422, [Problem("array", str(error))]) from error


def begin_hold(text: str, now_s: float, field: str) -> Hold | None:
    """Return what keeps a job from starting before the time that a text names; None where that has come.

    Raises RefusedError: 422, it names none.
    """
    try:
        begin_s = begin_time_s(text, now_s)
    except ValueError as error:
        raise RefusedError(422, [Problem(field, str(error))]) from error
    return Hold(HoldKind.BEGIN, time_text(begin_s), begin_s) if begin_s > now_s else None


def _conflicts(request: JobRequest, given: set[str]) -> list[Problem]:
    problems = [found] if (found := owned_problem(request.family, request.user)) else []
    if request.workdir is not None and not request.workdir.startswith("/"):
        problems.append(Problem("workdir", f"must be an absolute path, got {request.workdir[:60]!r}"))
    for field in ("output", "input"):
        pattern = getattr(request, field)
        flaw = file_names.problem(pattern, is_array=request.array is not None) if pattern else None
        problems += [] if flaw is None else [Problem(field, flaw)]
    if request.array and request.output and not file_names.is_apart(request.output):
        problems.append(Problem("output", "would be one file for all elements of the array: put %a or %j in its name"))
    if not RULED_NAMES.isdisjoint(request.model_fields_set):  # in base units, where `given` has texts
        said = {name: getattr(request, name) for name in request.model_fields_set}
        told = senseless(said, has_gpus=request.gpus != (0,))
        problems += [Problem(said_name(field, given), message) for field, message in told]
    each = request.gpus_per_node
    if request.anti_collocation and each > 1:
        text = f"is 1 with anti_collocation, got {each}: give one of the two"
    else:
        text = groups_problem(request.gpus, each) or ""
    problems += ([Problem("gpus_per_node", text)] if text else []) + _terminal_problems(request)
    return problems + _checkpoint_problems(request) + _kind_conflicts(request, given)


def _terminal_problems(request: JobRequest) -> list[Problem]:
    """What has no place at the one terminal of a job."""
    others = {
        "array": ("elements have no terminal each", request.array is not None),
        "input": ("it reads what is typed", request.input is not None),
        "ranks": ("one process is at the terminal, as torchrun", request.ranks == Ranks.PER_GPU),
        "multi_node": ("its terminal is on one node", request.multi_node or request.anti_collocation),
        "model_name": ("built-in training reads nothing", request.model_name is not None),
    }
    clashing = [Problem("pty", f"goes without {name}: {why}") for name, (why, is_given) in others.items() if is_given]
    return clashing if request.pty else []


def batch_problem(request: JobRequest, spec: JobSpec) -> Problem | None:
    """What is wrong with how a job's batch is to follow its GPUs; None where nothing is."""
    size = spec.batch_size
    if request.batch is None:
        return None
    if size is None:
        return Problem("batch_size", "is required with batch: how many samples a step takes, of all GPUs or of each")
    uneven = [gpus for gpus in spec.sizes or (spec.gpus,) if size % gpus]
    if spec.batch_per_gpu or not uneven:
        return None
    even = [str(gpus) for gpus in spec.sizes if not size % gpus]
    fix = f"ask for gpus {','.join(even)}" if even else "take a batch_size it divides"
    return Problem("batch_size", f"{size} cannot be split evenly over {uneven[0]} GPUs: {fix}, or batch per-gpu")


PER_GPU_FAMILY: Final = "{family} (batch per GPU)"
"""What is learnt of a job whose steps grow with its GPUs says nothing of one whose steps do not, and the reverse."""


def _checkpoint_problems(request: JobRequest) -> list[Problem]:
    try:
        _contract(request)
    except ValueError as error:
        return [Problem("checkpoint", str(error))]
    return []


def _contract(request: JobRequest) -> CheckpointContract | None:
    return None if request.checkpoint is None else parse_contract(request.checkpoint, request.checkpoint_lead_s)


def _kind_conflicts(request: JobRequest, given: set[str]) -> list[Problem]:
    if request.model_name is not None:
        both = request.command is not None
        return [Problem("command", "give command or model_name, not both")] if both else []
    if request.command is None:
        return [Problem("command", "is required (or model_name for a built-in training job)")]
    if not request.command or not request.command[0].strip():
        return [Problem("command", "must not be empty: give the program and its arguments")]
    if TRAINER_FIELDS.isdisjoint(given):
        return []
    only = sorted(name for name in given & TRAINER_FIELDS if name != "model_name")
    return [Problem(name, "belongs to built-in jobs (with model_name), not to a command") for name in only]


def _command_program(request: JobRequest, directory: str, families: Families) -> _Program:
    command = list(request.command or ())
    family = request.family or families.of(command, directory, request.user)
    name = request.name or name_of(family)
    return _Program(command, name, family, request.batch_size, request.steps_total, None)


def _trainer_program(request: JobRequest) -> _Program:
    wanted: dict[str, Any] = request.model_dump(
        include=set(TRAINER_FIELDS - {"python"}) | {"batch_size"}, exclude_unset=True, exclude_none=True
    )
    problems = [Problem(field, message) for field, message in catalogue.problems(wanted)]  # its data is where it runs
    if problems:
        raise RefusedError(422, problems)
    job = catalogue.complete(wanted)
    model = str(job["model_name"])
    command = [request.python or sys.executable, *catalogue.command(wanted)]
    family = request.family or catalogue.family(wanted)
    return _Program(
        command, request.name or model, family, job["batch_size"], request.steps_total or job["iters"], model
    )


def _spec(request: JobRequest, program: _Program) -> JobSpec:
    said = request.model_fields_set & _SPEC_FIELD.keys()
    values: dict[str, Any] = {name: _SPEC_FIELD[name].in_job(getattr(request, name)) for name in said}
    contract = _contract(request)
    per_gpu = request.batch == "per-gpu"
    values |= {
        "name": program.name,
        "family": PER_GPU_FAMILY.format(family=program.family) if per_gpu else program.family,
        "batch_size": program.batch_size,
        "steps_total": program.steps_total,
        "gpus": request.gpus[-1],
        "checkpoint": contract,
        "preemptible": request.preemptible if "preemptible" in said else contract is not None,
    }
    return JobSpec(**values, sizes=request.gpus if len(request.gpus) > 1 else (), batch_per_gpu=per_gpu)
