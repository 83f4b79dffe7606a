"""`srun`: within a job, start its tasks; outside of one, submit a job of one command and follow it to its end."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, Final

from colane.integrations.slurm import contact, quantities, steps
from colane.integrations.slurm.contact import SlurmError
from colane.integrations.slurm.launch import BatchFiles, command
from colane.integrations.slurm.options import SlurmOptions, parse
from colane.integrations.slurm.request import build, count_of, job_name, nodes_of, read, tasks_of
from colane.integrations.slurm.sbatch import hand_in, open_mode, settle_place, tell
from colane.integrations.slurm.slots import StepSlots
from colane.model.words import count

if TYPE_CHECKING:
    from colane.client.client import Client

PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
"""Signals that go to the tasks."""

OF_STEP: Final = ("output", "error", "input", "open-mode")
FIXED: Final = frozenset({"/dev/null", "none"})
_PLACE: Final = re.compile(r"%(?P<width>[0-9]*)(?P<letter>[A-Za-z%])")
NOT_FOUND: Final = 127
SIGNALLED: Final = 128


def run(words: Sequence[str], shims: str) -> int:
    """Run a command; return its exit code, the greatest of several tasks.

    Raises SlurmError: something of it cannot be.
    """
    if list(words[:1]) == ["--lead"]:
        return steps.StepLeader().run(words[1:])
    if list(words) == ["--member"]:
        return steps.StepMember().run()
    options = parse("srun", words)
    if not options.rest:
        raise SlurmError("No command given to execute: srun [OPTIONS] COMMAND...")
    if os.environ.get("SLURM_JOB_ID") and os.environ.get("COLANE_JOB_ID") == os.environ["SLURM_JOB_ID"]:
        asked = options.get("jobid")
        if asked not in {None, os.environ["SLURM_JOB_ID"]}:
            raise SlurmError(f"--jobid must be this job, {os.environ['SLURM_JOB_ID']}, got {asked!r}")
        share = steps.own_share()
        return (
            _step_over_nodes(options, words) if share is None and steps.LEADER in os.environ else _step(options, share)
        )
    if options.get("jobid") is not None:
        raise SlurmError("--jobid is not done here: steps are started from within their job")
    return _as_job(options, shims)


def _as_job(options: SlurmOptions, shims: str) -> int:
    if options.get("pty") is not None:
        return at_terminal("srun", options, shims)
    request = _request(options, ["srun", *_of_step(options), *options.rest], shims)
    from colane.integrations.slurm.following import copy_log, exit_code, until_ended  # noqa: PLC0415 - of this way alone

    with contact.client() as scheduler:
        job_id = _handed_in(scheduler, options, request, "srun")
        try:
            copy_log(scheduler, job_id)
            return exit_code(until_ended(scheduler, job_id))
        except KeyboardInterrupt:
            scheduler.cancel(job_id)
            raise


def _request(options: SlurmOptions, words: Sequence[str], shims: str) -> dict[str, Any]:
    """Return the request of a job of one command."""
    request = build(options, job_name(options, Path(options.rest[0]).name), None)
    open_mode(options)
    request["command"] = command(shims, BatchFiles(), "/bin/sh", f"#!/bin/sh\nexec {shlex.join(words)}\n", ())
    return request


def _handed_in(scheduler: Client, options: SlurmOptions, request: dict[str, Any], verb: str) -> int:
    tell((), options, verb)
    settle_place(scheduler, options, request)
    job_id = hand_in(scheduler, request, options, verb)
    contact.note(verb, f"job {job_id} queued")
    return job_id


def at_terminal(verb: str, options: SlurmOptions, shims: str) -> int:
    """Run a command at the terminal of a job of its own, which ends with this program; return its exit code.

    The command is the job's first process, with no `srun` above it that would pass the keyboard's signals on once more.
    Raises SlurmError: something of it cannot be.
    """
    request = {**_request(options, options.rest, shims), "pty": True}
    from colane.client.terminal import Seat  # noqa: PLC0415 - of this way alone
    from colane.integrations.slurm.following import exit_code, until_ended  # noqa: PLC0415

    with contact.client() as scheduler:
        job_id = _handed_in(scheduler, options, request, verb)
        try:
            has_ended = Seat(contact.client, job_id, lambda text: contact.note(verb, text)).sit(ends_job=True)
            return exit_code(until_ended(scheduler, job_id)) if has_ended else 0
        except KeyboardInterrupt:
            scheduler.cancel(job_id)
            raise


def _of_step(options: SlurmOptions) -> list[str]:
    """The options that are of the step: how many tasks, where they write and read, and how their output is marked."""
    is_counted = nodes_of(options) == 1 and (options.get("ntasks") or options.get("ntasks-per-node"))
    kept = [f"--ntasks={tasks_of(options, 0)}"] if is_counted else []
    kept += [f"--{name}={value}" for name in OF_STEP if (value := options.get(name)) is not None]
    return [*kept, *(["--label"] if options.get("label") is not None else []), "--"]


# -- steps


def _step_over_nodes(options: SlurmOptions, words: Sequence[str]) -> int:
    """Start a step from the script of a job over several machines."""
    own, whole = [int(one) for one in os.environ[steps.TASKS].split(",")], count_of(options, "ntasks")
    _demand_room(options, whole or 0, sum(own), _said_number("SLURM_GPUS_ON_NODE") * len(own))
    nodes, tasks = steps.shared_out(
        os.environ["SLURM_JOB_NODELIST"].split(","), own,
        nodes=options.get("nodes"), named=[name for name in (options.get("nodelist") or "").split(",") if name],
        each=count_of(options, "ntasks-per-node"), whole=whole,
    )  # fmt: skip
    for pattern in (options.get("output"), options.get("error")):
        if pattern is not None and not _is_apart(pattern) and not _is_added_to(options, os.environ):
            _opened(pattern, options, {**os.environ, "SLURM_PROCID": "0"}).close()
    kills = options.get("kill-on-bad-exit") not in {None, "0"}
    return steps.follow(words, nodes, tasks, kills=kills)


def _said_number(name: str) -> int:
    """A number that the job was told; 0 where it was not."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 0


def _whole_share(options: SlurmOptions) -> steps.TaskShare:
    """The tasks of a step in a job on one machine. Raises SlurmError: it asks for more than the job has."""
    if nodes_of(options) > 1:
        raise SlurmError(f"--nodes must be 1, the machines of this job, got {options.get('nodes')!r}")
    own = _said_number("SLURM_NTASKS") or 1
    number = tasks_of(options, 0) if options.get("ntasks") or options.get("ntasks-per-node") else own
    _demand_room(options, number, own, _said_number("SLURM_GPUS_ON_NODE"))
    return steps.TaskShare(0, [os.environ.get("SLURM_JOB_NODELIST", "")], [number])


def _demand_room(options: SlurmOptions, tasks: int, own: int, gpus: int) -> None:
    """Refuse a step of more tasks than its job has, unless that has a core or a GPU for each.

    Raises SlurmError: it has not.
    """
    each, cores = count_of(options, "cpus-per-task") or 1, own * (_said_number("SLURM_CPUS_PER_TASK") or 1)
    if tasks > own and tasks * each > max(cores, gpus) and options.get("overcommit") is None:
        has = f"{count(own, 'task')}, {count(cores, 'core')}, {count(gpus, 'GPU')}"
        raise SlurmError(f"{tasks} tasks are more than this job has room for ({has}): sbatch --ntasks, or --overcommit")


def _devices(options: SlurmOptions, share: steps.TaskShare, slots: StepSlots) -> Sequence[Mapping[str, str]]:
    """Take what the step has of the job to itself, and return what shows each task its GPUs.

    A step that says nothing of GPUs, or overlaps with others, takes none: its tasks see all that the job has. Raises
    SlurmError: it asks for more GPUs than the job has on this machine.
    """
    here, is_alone = len(share.ranks), len(share.nodes) == 1
    names = [name for name in os.environ.get("SLURM_JOB_GPUS", "").split(",") if name]
    have = len(names) or _said_number("SLURM_GPUS_ON_NODE")
    of_task = read(options, "gpus-per-task", quantities.gpus)
    inherited = _said_number("SLURM_GPUS_PER_TASK")
    whole = [read(options, name, quantities.gpus) for name in ("gpus", "gpus-per-node")]
    whole.append(read(options, "gres", quantities.gres))
    of_step = next((number for number, _ in filter(None, whole)), None)
    if of_step is not None and options.get("gpus") is not None:
        of_step = -(-of_step // len(share.nodes))
    each = of_task[0] if of_task is not None else inherited if of_step is None else 0
    gpus = of_step if of_step is not None else each * here
    if gpus > have and options.get("overcommit") is None and (of_task is not None or of_step is not None):
        raise SlurmError(f"the step asks for {count(gpus, 'GPU')} of a machine, and this job has {have}")
    is_shared = options.get("overlap") is not None or not is_alone
    is_exact = any(options.get(word) is not None for word in ("exact", "exclusive"))
    own = _said_number("SLURM_NTASKS") if is_alone and is_exact and not is_shared else 0
    taken = [*range(min(gpus, have))] if is_shared else slots.take(min(here, own), own, min(gpus, have), have)
    if (of_step is None and not each) or gpus > have:
        return [{}] * here
    if not each or options.get("gpu-bind") == "none":
        return [_shown(names, taken)] * here
    return [_shown(names, taken[at * each : (at + 1) * each]) for at in range(here)]


def _shown(names: Sequence[str], places: Sequence[int]) -> dict[str, str]:
    """What shows a process these of the job's GPUs alone."""
    told = {"SLURM_GPUS_ON_NODE": str(len(places)), "SLURM_STEP_GPUS": ",".join(map(str, places))}
    if not names:
        return told
    positions = ",".join(str(at) for at in range(len(places)))
    if "ROCR_VISIBLE_DEVICES" not in os.environ:
        return {**told, "CUDA_VISIBLE_DEVICES": ",".join(names[place] for place in places)}
    uuids = os.environ["ROCR_VISIBLE_DEVICES"].split(",")
    return {
        **told, "ROCR_VISIBLE_DEVICES": ",".join(uuids[place] for place in places),
        "HIP_VISIBLE_DEVICES": positions or "-1", "CUDA_VISIBLE_DEVICES": positions,
    }  # fmt: skip


def _step(options: SlurmOptions, share: steps.TaskShare | None) -> int:
    slots, is_whole = StepSlots(), share is None
    share = share or _whole_share(options)
    devices = _devices(options, share, slots)
    if is_whole:
        share = share._replace(step=slots.number())
    workdir = options.get("chdir")
    with ExitStack() as opened:
        tasks, labelled = list[subprocess.Popen[bytes]](), list[threading.Thread]()
        _pass_signals_on(tasks)
        for rank in share.ranks:
            env = {**_told(options, share, rank), **devices[rank - share.ranks[0]]}
            outputs = _outputs(options, env, opened)
            try:
                task = subprocess.Popen(
                    options.rest, env=env, cwd=workdir, stdin=_input(options, rank, opened),
                    stdout=outputs[0], stderr=outputs[1],
                )  # fmt: skip
            except OSError as error:
                _end(tasks)
                contact.note("srun", f"error: {options.rest[0]}: {error.strerror}")
                return NOT_FOUND
            tasks.append(task)
            pairs = ((task.stdout, sys.stdout.buffer), (task.stderr, sys.stderr.buffer))
            labelled += [_labelled(source, to, rank) for source, to in pairs if source is not None]
        codes = _awaited(tasks, options.get("kill-on-bad-exit"))
        for thread in labelled:
            thread.join()
    return max((SIGNALLED - code if code < 0 else code for code in codes), default=0)


def _told(options: SlurmOptions, share: steps.TaskShare, rank: int) -> dict[str, str]:
    """Return a task's environment."""
    number, here = sum(share.tasks), share.ranks
    own: dict[str, object] = {
        "SLURM_NTASKS": number, "SLURM_NPROCS": number, "SLURM_PROCID": rank, "SLURM_LOCALID": rank - here[0],
        "SLURM_NODEID": share.node, "SLURM_STEP_ID": share.step, "SLURM_STEPID": share.step,
        "SLURM_STEP_NUM_TASKS": number,
        "SLURM_NNODES": len(share.nodes), "SLURM_STEP_NUM_NODES": len(share.nodes),
        "SLURM_STEP_NODELIST": ",".join(share.nodes), "SLURM_STEP_TASKS_PER_NODE": steps.tasks_per_node(share.tasks),
        "SLURM_TASKS_PER_NODE": steps.tasks_per_node(share.tasks), "SLURM_GTIDS": ",".join(map(str, here)),
        "SLURM_SRUN_COMM_HOST": os.environ.get("MASTER_ADDR", "") if len(share.nodes) > 1 else "127.0.0.1",
    }  # fmt: skip
    if options.get("cpus-per-task"):
        own["SLURM_CPUS_PER_TASK"] = options.get("cpus-per-task")
    env = {name: value for name, value in os.environ.items() if name != steps.SHARE}
    for word in (options.get("export") or "").split(","):
        name, equals, value = word.partition("=")
        if equals:
            env[name] = value
    return {**env, **{name: str(value) for name, value in own.items()}}


def _outputs(options: SlurmOptions, env: Mapping[str, str], opened: ExitStack) -> tuple[Any, Any]:
    """Return where a task writes: files, pipes whose lines are marked with its number, or where this program does."""
    out, err = options.get("output"), options.get("error")
    unnamed = None if options.get("label") is None else subprocess.PIPE
    first = unnamed if out is None else opened.enter_context(_opened(out, options, env))
    return first, first if err is None else opened.enter_context(_opened(err, options, env))


def _opened(pattern: str, options: SlurmOptions, env: Mapping[str, str]) -> IO[bytes]:
    if pattern in FIXED:
        return Path(os.devnull).open("ab")
    path = Path(options.get("chdir") or ".") / placed(pattern, env)
    is_first = env["SLURM_PROCID"] == "0" and steps.SHARE not in os.environ  # over machines it is the script's step
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _is_added_to(options, env) and (is_first or _is_apart(pattern)):
            path.open("wb").close()
        return path.open("ab")  # tasks of one file add to it, so that none overwrites the others
    except OSError as error:
        raise SlurmError(f"{path} cannot be written: {error.strerror}") from error


def _is_added_to(options: SlurmOptions, env: Mapping[str, str]) -> bool:
    """Whether what is in a file stays."""
    return options.get("open-mode") == "append" or int(env.get("SLURM_RESTART_COUNT", "0")) > 0


def _is_apart(pattern: str) -> bool:
    """Whether each task writes to a file of its own."""
    return any(found["letter"] == "t" for found in _PLACE.finditer(pattern))


def placed(pattern: str, env: Mapping[str, str]) -> str:
    """Return a file's name: `%j`, `%A`, `%a`, `%t`, `%n`, `%s`, `%x`, `%u`, `%N`, with a width as `%4t`."""
    job = env.get("SLURM_JOB_ID", "0")
    values = {
        "j": job, "J": f"{job}.{env.get('SLURM_STEP_ID', '0')}", "A": env.get("SLURM_ARRAY_JOB_ID", job),
        "a": env.get("SLURM_ARRAY_TASK_ID", "4294967294"), "t": env.get("SLURM_PROCID", "0"),
        "n": env.get("SLURM_NODEID", "0"), "s": env.get("SLURM_STEP_ID", "0"), "x": env.get("SLURM_JOB_NAME", ""),
        "u": env.get("SLURM_JOB_USER", ""), "N": env.get("SLURMD_NODENAME", ""), "%": "%",
    }  # fmt: skip

    def value(match: re.Match[str]) -> str:
        found = values.get(match["letter"])
        if found is None:
            return match.group()
        return found.zfill(int(match["width"])) if match["width"] and found.isdecimal() else found

    return _PLACE.sub(value, pattern)


def _input(options: SlurmOptions, rank: int, opened: ExitStack) -> Any:  # noqa: ANN401 - what Popen takes
    name = options.get("input")
    if name is None:
        return None if rank == 0 else subprocess.DEVNULL
    try:
        return subprocess.DEVNULL if name in FIXED else opened.enter_context(Path(name).open("rb"))
    except OSError as error:
        raise SlurmError(f"--input: {name} cannot be read: {error.strerror}") from error


def _pass_signals_on(tasks: Sequence[subprocess.Popen[bytes]]) -> None:
    def pass_on(number: int, frame: FrameType | None) -> None:
        del frame
        for task in tasks:
            with suppress(ProcessLookupError):
                task.send_signal(number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)


def _end(tasks: Sequence[subprocess.Popen[bytes]]) -> None:
    for task in tasks:
        if task.poll() is None:
            task.terminate()
    for task in tasks:
        task.wait()


def _awaited(tasks: Sequence[subprocess.Popen[bytes]], kill: str | None) -> list[int]:
    """Wait for all; with `--kill-on-bad-exit` the others end with the first that fails."""
    by_pid = {task.pid: task for task in tasks}
    codes = list[int]()
    while by_pid:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        pid = 0 if found is None else found.si_pid
        task = by_pid.pop(pid, None)
        if task is None:
            os.waitpid(pid, 0)
            continue
        codes.append(task.wait())
        if codes[-1] and kill is not None and kill != "0":
            for other in by_pid.values():
                other.terminate()
    return codes


def _labelled(source: IO[bytes], to: IO[bytes], rank: int) -> threading.Thread:
    def copy() -> None:
        for line in source:
            to.write(f"{rank}: ".encode() + line)
            to.flush()

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread
