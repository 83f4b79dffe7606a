"""From the options of `sbatch` and `srun` to a job request."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
from collections.abc import Callable
from getpass import getuser
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from colane.client.shell import shell_environment
from colane.integrations.slurm import quantities, steps
from colane.integrations.slurm.contact import SlurmError
from colane.integrations.slurm.options import SlurmOptions
from colane.model.checkpoint import CHECKPOINT_SIGNALS, SLURM
from colane.model.hardware import DEFAULT_POOL, nodes_named
from colane.model.job_fields import JOB_FIELDS

SESSION_NAMES: Final = frozenset({"bash", "interactive"})
"""Lightning takes a job of such a name for a session, in which it does not look for its ranks."""

LABEL: Final = "account"
QOS: Final = "qos"
TASKS: Final = "ntasks"
REQUEUE: Final = "requeue"
"""Labels of what was said that Colane's jobs have no field for: `TASKS` of more than one, `REQUEUE` of `no`."""
RANDOM: Final = re.compile(r"[0-9a-f]{16,}")
T = TypeVar("T")


def read(options: SlurmOptions, name: str, parse: Callable[[str], T]) -> T | None:
    """Return what an option says, None where it was not given.

    Raises SlurmError: it cannot be read; the option and its place are named.
    """
    value = options.get(name)
    if value is None:
        return None
    try:
        return parse(value.strip())
    except ValueError as error:
        raise SlurmError(f"{options.place(name)} {error}") from error


_OF_GPUS: Final = ("gpus", "gpus-per-node", "gres", "gpus-per-task")
_MORE_OPTIONS: Final = {
    "gpus": _OF_GPUS,
    "gpu_type": _OF_GPUS,
    "gpus_per_node": ("gpus-per-node", "gres", "gpus", "gpus-per-task"),
    "multi_node": ("nodes",),
    "cores": ("cpus-per-task", "cpus-per-gpu"),
    "host_memory_bytes": ("mem", "mem-per-cpu", "mem-per-gpu"),
    "host_memory": ("mem", "mem-per-cpu", "mem-per-gpu"),
    "whole_node": ("exclusive",),
    "nodes": ("nodelist", "exclude"),
    "priority": ("priority", "nice"),
    "checkpoint": ("signal",),
    "checkpoint_lead_s": ("signal",),
    "qos": ("qos",),
    "labels.account": ("account",),
    "labels.notify": ("mail-user", "mail-type"),
}
OPTIONS_OF: Final = {
    name: tuple(option.removeprefix("--") for option in field.slurm if option.startswith("--"))
    for field in JOB_FIELDS
    if field.slurm
    for name in (field.name, field.said)
} | _MORE_OPTIONS
"""Options that fill each field of a request."""


def typed_of(options: SlurmOptions) -> dict[str, str]:
    """Return for each field of a request the option that filled it and where it stands, else the one that could."""
    said = {field: [name for name in names if name in options.said] for field, names in OPTIONS_OF.items()}
    return {field: options.place(said[field][0]) if said[field] else f"--{OPTIONS_OF[field][0]}" for field in said}


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise ValueError(f"must be a number, at least 1, got {text!r}")
    return int(text)


def count_of(options: SlurmOptions, name: str) -> int | None:
    """Return the number that an option says, None where it was not given. Raises SlurmError: it is no number."""
    return read(options, name, _count)


def job_name(options: SlurmOptions, default: str) -> str:
    """Return a job's name, which is never one that frameworks take for a session's."""
    name = options.get("job-name") or default
    return f"{name}-job" if name in SESSION_NAMES else name


def nodes_of(options: SlurmOptions) -> int:
    """Return over how many machines a job is to lie. Raises SlurmError: it is no number."""

    def parse(text: str) -> int:
        least, _, most = text.partition("-")
        if most not in {"", least}:
            raise ValueError(f"{text} is not done here: give one number of machines, as {least}")
        return _count(least)

    return read(options, "nodes", parse) or 1


class BatchLayout(NamedTuple):
    """How a job lies on its machines."""

    nodes: int  # how many machines
    gpus: int  # GPUs on each of them
    tasks: int  # tasks that `srun` starts on each of them


def layout_of(options: SlurmOptions) -> BatchLayout:
    """Return how a job over several machines lies on them. Raises SlurmError: it asks for what is not done here."""
    nodes = nodes_of(options)
    tasks = read(options, "ntasks-per-node", _count)
    all_tasks = read(options, "ntasks", _count)
    if tasks is None and all_tasks is not None:
        tasks = _divided(all_tasks, nodes, options.place("ntasks"))
    asked = [read(options, "gpus-per-node", quantities.gpus), read(options, "gres", quantities.gres)]
    numbers = {one[0] for one in asked if one is not None}
    if (total := read(options, "gpus", quantities.gpus)) is not None:
        numbers.add(_divided(total[0], nodes, options.place("gpus")))
    if (each := read(options, "gpus-per-task", quantities.gpus)) is not None:
        numbers.add(each[0] * (tasks or 1))
    if len(numbers) > 1:
        raise SlurmError("--gpus, --gpus-per-node, --gpus-per-task and --gres name different numbers of GPUs")
    gpus = max(numbers, default=0)
    if not gpus:
        raise SlurmError(f"{options.place('nodes')} {nodes} needs GPUs on each machine: add --gres=gpu:1")
    per_gpu = read(options, "ntasks-per-gpu", _count)
    return BatchLayout(nodes, gpus, tasks or (per_gpu * gpus if per_gpu else 1))


def _divided(number: int, nodes: int, place: str) -> int:
    if number % nodes:
        raise SlurmError(f"{place} {number} must be a multiple of --nodes={nodes}")
    return number // nodes


def gpus_of(options: SlurmOptions) -> tuple[int, str | None]:
    """Return how many GPUs a job asks for, and of which type; none where it says nothing of them."""
    asked = [read(options, name, quantities.gpus) for name in ("gpus", "gpus-per-node")]
    asked.append(read(options, "gres", quantities.gres))
    each = read(options, "gpus-per-task", quantities.gpus)
    if each is not None:
        asked.append((each[0] * (_tasks_said(options) or 1), each[1]))
    said = {one for one in asked if one is not None}
    if len({number for number, _ in said}) > 1 and nodes_of(options) == 1:
        raise SlurmError("--gpus, --gpus-per-node, --gpus-per-task and --gres name different numbers of GPUs")
    types = {kind for _, kind in said if kind is not None}
    return max((number for number, _ in said), default=0), min(types, default=None)


def _tasks_said(options: SlurmOptions) -> int | None:
    found = [read(options, name, _count) for name in ("ntasks", "ntasks-per-node")]
    return max((one for one in found if one is not None), default=None)


def tasks_of(options: SlurmOptions, gpus: int) -> int:
    """Return how many tasks `srun` starts."""
    each = read(options, "ntasks-per-gpu", _count)
    return _tasks_said(options) or (each * max(gpus, 1) if each is not None else 1)


def build(options: SlurmOptions, name: str, source: Path | None) -> dict[str, Any]:  # noqa: C901 - a line for each option
    """Return a job request without its command.

    Args:
        options: All that was said.
        name: Of the job where none was said.
        source: Its script, None for one that is no file.

    Raises:
        SlurmError: An option says what cannot be.
    """
    layout = layout_of(options) if nodes_of(options) > 1 else None
    gpus, kind = gpus_of(options)
    tasks, each = tasks_of(options, gpus), read(options, "cpus-per-task", _count)
    if layout is not None:
        gpus, tasks = layout.nodes * layout.gpus, layout.nodes * layout.tasks
    per_gpu = read(options, "cpus-per-gpu", _count)
    cores = each * tasks if each else (per_gpu or 0) * gpus
    named, workdir = job_name(options, name), str(Path.cwd() / Path(options.get("chdir") or ".").expanduser())
    request: dict[str, Any] = {"name": named, "gpus": gpus, "workdir": workdir, "family": _family(named, source)}
    if kind is not None:
        request["gpu_type"] = kind
    if cores:
        request["cores"] = cores
    memory = _memory(options, cores or tasks, gpus, 1 if layout is None else layout.nodes)
    if memory:
        request["host_memory_bytes"] = memory
    limit_s = read(options, "time", quantities.seconds)
    if limit_s:
        request["time_limit_s"] = limit_s
    for option, field in (("partition", "pool"), ("qos", "qos"), ("comment", "comment"), ("array", "array")):
        if options.get(option):
            request[field] = options.get(option)
    labels = {name: options.get(name) for name in (LABEL,) if options.get(name)}
    labels |= {TASKS: str(tasks)} if tasks > 1 else {}
    labels |= _mail(options)
    labels |= {REQUEUE: "no"} if options.get("no-requeue") is not None and options.get("requeue") is None else {}
    if labels:
        request["labels"] = labels
    if (begin := read(options, "begin", quantities.begin)) is not None:
        request["begin"] = begin
    request |= _order(options)
    if options.get("hold") is not None:
        request["hold"] = True
    if options.get("exclusive") is not None:
        request["whole_node"] = True
    request |= _nodes(options, nodes_of(options)) | _priority(options)
    request |= _saving(options)
    request["env"] = _environment(options, request, tasks, each)
    if layout is not None:
        request |= {"multi_node": True, "gpus_per_node": layout.gpus}
        request["env"] = _over_nodes(request["env"], layout, memory)
    return request


def _nodes(options: SlurmOptions, count: int) -> dict[str, Any]:
    """Which machines it may use: as many as it lies on are named, or those that it may not."""
    named, left_out = read(options, "nodelist", nodes_named), read(options, "exclude", nodes_named) or []
    found = {} if options.get("constraint") is None else {"features": options.get("constraint")}
    if named is None:
        return {**found, **({"nodes": f"not:{','.join(left_out)}"} if left_out else {})}
    named = [name for name in named if name not in left_out]
    if len(named) != count:
        said = f"{options.place('nodelist')} names {len(named)} machines, and this job lies on {count}"
        raise SlurmError(f"{said}: name as many as --nodes says, or leave others out (--exclude)")
    return {**found, "nodes": ",".join(named)}


MAIL: Final = {
    "BEGIN": ("start",), "END": ("end", "failure"), "FAIL": ("failure",), "REQUEUE": ("preempted",),
    "ALL": ("start", "end", "failure", "preempted"), "NONE": (), "TIME_LIMIT": ("failure",), "INVALID_DEPEND": (),
    "ARRAY_TASKS": (), "STAGE_OUT": (), "TIME_LIMIT_90": (), "TIME_LIMIT_80": (), "TIME_LIMIT_50": (),
}  # fmt: skip
"""What is told by mail, by Slurm's words for it."""


def _mail(options: SlurmOptions) -> dict[str, str]:
    """The address that is written to, and of what; as with Slurm nothing where no type is named."""

    def told(text: str) -> list[str]:
        words = text.upper().split(",")
        if unknown := [word for word in words if word not in MAIL]:
            raise ValueError(f"must be of {', '.join(MAIL)}, got {unknown[0]!r}")
        return list(dict.fromkeys(on for word in words for on in MAIL[word]))

    on = read(options, "mail-type", told)
    return {"mail": options.get("mail-user") or getuser(), "mail-on": ",".join(on)} if on else {}


def _priority(options: SlurmOptions) -> dict[str, Any]:
    """Below others: `--nice` alone is 100 less, as with Slurm."""

    def whole(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]+", text):
            raise ValueError(f"must be a whole number, got {text!r}")
        return int(text)

    priority, nice = read(options, "priority", whole), read(options, "nice", lambda text: whole(text or "100"))
    return {} if priority is None and nice is None else {"priority": (priority or 0) - (nice or 0)}


def _over_nodes(env: dict[str, str], layout: BatchLayout, memory_bytes: int) -> dict[str, str]:
    """Return what a job over several machines has in its environment."""
    of_each = {"SLURM_MEM_PER_NODE": memory_bytes // layout.nodes // 2**20, "SLURM_NTASKS_PER_NODE": layout.tasks}
    own = {steps.KEY: secrets.token_hex(16), steps.PER_NODE: str(layout.tasks)}
    kept = {name: value for name, value in env.items() if name not in steps.MEETING}
    return {**kept, **{name: str(value) for name, value in of_each.items() if name in env}, **own}


def _order(options: SlurmOptions) -> dict[str, Any]:
    found = read(options, "dependency", quantities.after)
    if found is None:
        return {}
    after, is_single = found
    fate = {"if_never": "cancel" if options.get("kill-on-invalid-dep") == "yes" else "hold"} if after else {}
    return {**({"after": after} if after else {}), **({"singleton": True} if is_single else {}), **fate}


def _saving(options: SlurmOptions) -> dict[str, Any]:
    """What `--signal` says of how a job is told to save: one that is not started again, of its limit alone."""

    def parse(text: str) -> tuple[str, float]:
        said, _, lead = text.partition("@")
        marks, _, named = said.rpartition(":")
        name = f"SIG{named.upper().removeprefix('SIG')}"
        known = {"SIG10": "SIGUSR1", "SIG12": "SIGUSR2", "SIG15": "SIGTERM", "SIG2": "SIGINT", "SIG1": "SIGHUP"}
        name = known.get(name, name)
        if name not in CHECKPOINT_SIGNALS or not set(marks.upper()) <= set("BR:"):
            raise ValueError(f"must be one of {', '.join(CHECKPOINT_SIGNALS)}, with @SECONDS behind it, got {text!r}")
        if lead and not (lead.isdecimal() and int(lead)):
            raise ValueError(f"must have a number of seconds behind @, got {text!r}")
        return f"{SLURM}{'B:' if 'B' in marks.upper() else ''}{name}", float(lead or 60)

    found = read(options, "signal", parse)
    if found is None:
        return {}
    return {
        "checkpoint": found[0],
        "checkpoint_lead_s": found[1],
        **({} if options.get("no-requeue") is None else {"preemptible": False}),
    }


def _memory(options: SlurmOptions, cores: int, gpus: int, nodes: int) -> int:
    factors = (("mem", nodes), ("mem-per-cpu", cores), ("mem-per-gpu", gpus))
    return max((factor * (read(options, name, quantities.size_bytes) or 0) for name, factor in factors), default=0)


def _family(name: str, source: Path | None) -> str:
    """Jobs of one script are of one family; scripts that a program has written go by their job's name."""
    if source is None or RANDOM.search(source.name):
        return f"{name}@{_hash(getuser(), str(Path.cwd()))}"
    return f"{source.name}@{_hash(getuser(), str(source.resolve().parent))}"


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def _environment(options: SlurmOptions, request: dict[str, Any], tasks: int, each: int | None) -> dict[str, str]:
    """Return the submitting shell's variables as `--export` says, and Slurm's that do not depend on the place."""
    kept = {name: value for name, value in shell_environment()[0].items() if not name.startswith(steps.OWN_PREFIX)}
    export = options.get("export")
    words = ["ALL"] if export is None else export.split(",")
    env: dict[str, str] = (
        dict(kept) if "ALL" in words else {name: kept[name] for name in ("PATH", "HOME", "USER") if name in kept}
    )
    for word in words:
        variable, equals, value = word.partition("=")
        if equals:
            env[variable] = value
        elif variable in kept:
            env[variable] = kept[variable]
    return {**env, "PWD": request["workdir"], **_told(options, request, tasks, each)}


def _told(options: SlurmOptions, request: dict[str, Any], tasks: int, each: int | None) -> dict[str, str]:
    """Return what Slurm tells a job, as far as it does not depend on its place; what does, its prologue adds."""
    gpus, memory_bytes, limit_s = request["gpus"], request.get("host_memory_bytes"), request.get("time_limit_s")
    told: dict[str, object] = {
        "SLURM_JOB_NAME": request["name"],
        "SLURM_JOB_USER": getuser(),
        "SLURM_JOB_UID": os.getuid(),
        "SLURM_JOB_PARTITION": request.get("pool", DEFAULT_POOL),
        "SLURM_JOB_ACCOUNT": options.get("account"),
        "SLURM_CLUSTER_NAME": "colane",
        "SLURM_SUBMIT_DIR": Path.cwd(),
        "SLURM_SUBMIT_HOST": socket.gethostname(),
        "SLURM_JOB_NUM_NODES": 1,
        "SLURM_NNODES": 1,
        "SLURM_NODEID": 0,
        "SLURM_PROCID": 0,
        "SLURM_LOCALID": 0,
        "SLURM_GTIDS": 0,
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_TASKS_PER_NODE": tasks,
        "SLURM_NTASKS_PER_NODE": tasks if options.get("ntasks-per-node") else None,
        "SLURM_CPUS_PER_TASK": each,
        "SLURM_GPUS": gpus or None,
        "SLURM_GPUS_ON_NODE": gpus or None,
        "SLURM_GPUS_PER_NODE": options.get("gpus-per-node"),
        "SLURM_GPUS_PER_TASK": gpus_each[0] if (gpus_each := read(options, "gpus-per-task", quantities.gpus)) else None,
        "SLURM_MEM_PER_NODE": memory_bytes and memory_bytes // 2**20,
        "SLURM_TIMELIMIT_S": limit_s and int(limit_s),
    }
    return {name: str(value) for name, value in told.items() if value is not None}
