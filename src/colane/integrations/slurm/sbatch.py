"""`sbatch`: submit a script."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from getpass import getuser
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from colane.client.client import Client
from colane.client.errors import Refused
from colane.client.told import past_begin
from colane.client.typed_fields import as_typed
from colane.integrations.slurm import contact
from colane.integrations.slurm.contact import SlurmError
from colane.integrations.slurm.launch import SCRIPT_BYTES_MAX, BatchFiles, command
from colane.integrations.slurm.options import SaidValue, SlurmOptions, merged, parse
from colane.integrations.slurm.request import build, typed_of
from colane.integrations.slurm.rows import moment
from colane.model.field_values import Flag, Number, TextMap, Whole
from colane.model.job_fields import JOB_FIELDS, JobField
from colane.model.job_spec import is_among
from colane.model.limits import POOLS_LABEL

if TYPE_CHECKING:
    from colane.api.plans import PlanAnswer


# -- Batch scripts: their `#SBATCH` lines, their `#COLANE` lines, and what surprises people about both.

_LINE: Final = re.compile(r"#(?P<mark>SBATCH|COLANE)(?P<gap>\s*)(?P<words>.*)")

OURS: Final = {name: field for field in JOB_FIELDS if field.option is not None for name in field.option.names}


class BatchScript(NamedTuple):
    """A batch script that has been read."""

    name: str  # of its file, for complaints
    text: str  # the whole of it
    options: SlurmOptions  # what its `#SBATCH` lines say
    fields: dict[str, Any]  # what its `#COLANE` lines say, as fields of a job request
    notes: list[str]  # what to tell its owner

    @property
    def interpreter(self) -> str:
        """What its first line names."""
        return self.text.partition("\n")[0][2:].strip()


def read_script(name: str, text: str) -> BatchScript:
    """Return a script with what it says of itself.

    Raises SlurmError: it is none, or a line of it cannot be; the line is named.
    """
    if "\0" in text:
        raise SlurmError(f"{name} is a program and no script; run it from one: sbatch --wrap {shlex.quote(name)}")
    if "\r\n" in text:
        raise SlurmError(f"{name} has DOS line breaks, which shells do not read: sed -i 's/\\r$//' {name}")
    if not text.startswith("#!"):
        raise SlurmError(f"{name} does not say what runs it: its first line must be #!/bin/bash or the like")
    parts, fields, notes = list[SlurmOptions](), dict[str, Any](), list[str]()
    for mark, place, words in _directives(name, text, notes):
        if mark == "SBATCH":
            found = parse("sbatch", words, place)
            if found.rest:
                way = ": submit each part as a job, with --dependency" if found.rest[0] == "hetjob" else ""
                raise SlurmError(f"{place}: {found.rest[0]} is {'not done here' if way else 'no option'}{way}")
            parts.append(found)
        else:
            for field, value in _ours(words, place):
                fields[field] = {**fields.get(field, {}), **value} if isinstance(value, dict) else value
    return BatchScript(name, text, merged(parts), fields, notes)


def _directives(name: str, text: str, notes: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    is_head, late = True, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.match(line)
        if match is None:
            is_head = is_head and (not line.strip() or line.lstrip().startswith("#"))
            continue
        place = f"{name}:{number}"
        if not is_head:
            late.append(str(number))
            continue
        if not match["gap"] and match["words"]:
            if not match["words"].startswith("-"):  # another word that begins alike
                continue
            notes.append(f"{place}: a blank is missing behind #{match['mark']}; it is read all the same")
        try:
            yield match["mark"], place, shlex.split(match["words"], comments=True)
        except ValueError as error:
            raise SlurmError(f"{place}: a quotation mark has no partner") from error
    if late:
        notes.append(f"{name}: lines behind the first command are not read: {', '.join(late)}")


def _ours(words: list[str], place: str) -> Iterator[tuple[str, Any]]:
    """Yield fields of a job request from options of `colane submit`."""
    left = list(words)
    while left:
        name, equals, value = left.pop(0).partition("=")
        field = OURS.get(name)
        if field is None:
            raise SlurmError(f"{place}: {name} is no option of colane submit (see colane submit --help)")
        if isinstance(field.takes, Flag):
            yield from ((one, True) for one in field.takes.implies)
            yield field.name, not field.default
            continue
        if not equals:
            if not left:
                raise SlurmError(f"{place}: {name} needs a value")
            value = left.pop(0)
        yield field.said, _value(field, name, value, place)


def _value(field: JobField, name: str, value: str, place: str) -> Any:  # noqa: ANN401 - JSON
    try:
        match field.takes:
            case Whole():
                return int(value)
            case Number():
                return float(value)
            case TextMap():
                key, equals, text = value.partition("=")
                if not equals:
                    raise SlurmError(f"{place}: {name} must be NAME=VALUE, got {value!r}")
                return {key: text}
            case _:
                return value
    except ValueError as error:
        raise SlurmError(f"{place}: {name} must be a number, got {value!r}") from error


T = TypeVar("T")

VARIABLES: Final = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_COMMENT": "comment",
    "SBATCH_ERROR": "error",
    "SBATCH_EXPORT": "export",
    "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task",
    "SBATCH_GRES": "gres",
    "SBATCH_INPUT": "input",
    "SBATCH_JOB_NAME": "job-name",
    "SBATCH_MEM_PER_CPU": "mem-per-cpu",
    "SBATCH_MEM_PER_GPU": "mem-per-gpu",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_OPEN_MODE": "open-mode",
    "SBATCH_OUTPUT": "output",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_SIGNAL": "signal",
    "SBATCH_TIMELIMIT": "time",
}
"""Variables that say what options do; the command line wins over them, and they over the script."""


def run(words: Sequence[str], shims: str) -> int:
    """Submit a script, from a file, from standard input, or with `--wrap`; return the exit code.

    Raises SlurmError: something in it cannot be.
    """
    given = parse("sbatch", words)
    script, source = _script(given)
    told = SlurmOptions({option: SaidValue(os.environ[name], name) for name, option in VARIABLES.items()
                    if os.environ.get(name)}, (), ())  # fmt: skip
    options = merged([script.options, told, given])
    request = build(options, script.name, source)
    request["command"] = command(shims, files(options), script.interpreter, script.text, given.rest[1:])
    _join(request, script.fields)
    passed = past_begin(request.get("begin"))
    if options.get("quiet") is None:
        tell([*script.notes, *([passed] if passed else [])], options)
    with contact.client() as scheduler:
        settle_place(scheduler, options, request)
        if options.get("test-only") is not None:
            contact.note("sbatch", _planned(_taken(request, options, lambda asked: scheduler.plan([asked]))))
            return 0
        job_id = hand_in(scheduler, request, options)
        contact.print_lines(str(job_id) if options.get("parsable") is not None else f"Submitted batch job {job_id}")
        sys.stdout.flush()
        if options.get("wait") is not None:
            from colane.integrations.slurm.following import exit_code, until_ended  # noqa: PLC0415 - rarely wanted

            return exit_code(until_ended(scheduler, job_id))
    return 0


def tell(notes: Sequence[str], options: SlurmOptions, verb: str = "sbatch") -> None:
    """Say once what of a script and its options goes another way than its owner may think."""
    for each in notes:
        contact.note(verb, each)
    if options.without_effect:
        contact.note(verb, f"without effect here: {', '.join(options.without_effect)}")


def hand_in(scheduler: Client, request: dict[str, Any], options: SlurmOptions, verb: str = "sbatch") -> int:
    """Submit a job and return its id. Raises SlurmError: the scheduler refuses."""
    job_id = _taken(request, options, scheduler.submit, verb)
    if "," in str(request.get("pool")):
        contact.note(verb, f"in the first that can of {scheduler.job(job_id)['labels'].get(POOLS_LABEL)}")
    return job_id


def _planned(plan: PlanAnswer) -> str:
    """Return what would become of a job, as Slurm begins to say it where a time is known."""
    (job,), starts_in_s = plan["jobs"], plan["starts_in_s"]
    if starts_in_s is None:
        return f"Job {job['id']} {job['sentence']}"
    return f"Job {job['id']} to start at {moment(plan['now_s'] + starts_in_s)}: {job['sentence']}"


def _taken(
    request: dict[str, Any], options: SlurmOptions, take: Callable[[dict[str, Any]], T], verb: str = "sbatch"
) -> T:
    """Have a request taken.

    One without a GPU that asks for cores where no machine has any to book shares all cores: scripts ask for cores as a
    matter of course. Raises SlurmError: the scheduler refuses.
    """
    try:
        return take(request)
    except Refused as refused:
        fields = {problem.field for problem in refused.problems}
        is_of_cores = fields == {"cores"}
        if fields == {"labels.notify"} and "mail" in (labels := request.get("labels", {})):
            contact.note(verb, f"without effect here: --mail-type ({refused.problems[0].message})")
            left = {name: text for name, text in labels.items() if name not in {"mail", "mail-on"}}
            return _taken({**request, "labels": left}, options, take, verb)
        if not is_of_cores or request["gpus"] or not request.get("cores"):
            raise _refusal(refused, options) from refused
    contact.note(verb, "no machine has cores to book for jobs without a GPU: it shares them")
    try:
        return take({**request, "cores": 0})
    except Refused as refused:
        raise _refusal(refused, options) from refused


def _refusal(refused: Refused, options: SlurmOptions) -> SlurmError:
    """Return what the scheduler refuses as a verb says it, with options and where they stand in place of fields."""
    typed = typed_of(options)
    said = [as_typed(*one, typed) if one.field else one.message for one in refused.problems]
    return SlurmError("; ".join(" ".join(one.split()) for one in said))


def settle_place(scheduler: Client, options: SlurmOptions, request: dict[str, Any]) -> None:
    """Refuse a partition that no machine is of, as Slurm does, and let a job go to the machines of its reservation.

    Raises SlurmError: no machine is, there is no such reservation, or it is not of this user.
    """
    named = options.get("partition")
    if named:
        pools = sorted({str(node["pool"]) for node in scheduler.nodes()})
        if pools and (unknown := [name for name in named.split(",") if name not in pools]):
            there = ", ".join(pools)
            raise SlurmError(
                f"{options.place('partition')} must be a pool of machines here: {there}; got {unknown[0]!r}"
            )
    name = options.get("reservation")
    if name is None:
        return
    place = options.place("reservation")
    one = next((one for one in scheduler.reservations() if one["name"] == name), None)
    if one is None:
        raise SlurmError(f"{place} {name!r}: there is no such reservation; sinfo -T lists those there are")
    if getuser() not in one["users"]:
        raise SlurmError(f"{place} {name!r} is of {', '.join(one['users'])}")
    nodes = [node for node in one["nodes"] if is_among(request.get("nodes", ""), node)]
    if not nodes:
        raise SlurmError(f"{place} {name!r} is of {', '.join(one['nodes'])}, and none of these is named here")
    request["nodes"] = ",".join(nodes)
    if (wait_s := one["from_s"] - time.time()) > 0:
        request.setdefault("begin", f"now+{ceil(wait_s)}s")


def open_mode(options: SlurmOptions) -> str:
    """Return whether files that are there are added to or begun anew.

    Raises SlurmError: `--open-mode` is neither of its two words.
    """
    mode = options.get("open-mode") or "truncate"
    if mode not in {"append", "truncate"}:
        raise SlurmError(f"{options.place('open-mode')} must be append or truncate, got {mode!r}")
    return mode


def files(options: SlurmOptions) -> BatchFiles:
    """Return where a job writes and reads. Raises SlurmError: as `open_mode`."""
    usual, mode = "slurm-%A_%a.out" if options.get("array") else "slurm-%j.out", open_mode(options)
    here = Path.cwd() / Path(options.get("chdir") or ".").expanduser()
    out, err, put_in = options.get("output") or usual, options.get("error"), options.get("input")
    return BatchFiles(str(here / out), str(here / err) if err else "", mode, str(here / put_in) if put_in else "")


def _script(given: SlurmOptions) -> tuple[BatchScript, Path | None]:
    wrapped = given.get("wrap")
    if wrapped is not None:
        if given.rest:
            raise SlurmError(f"give --wrap or a script, not both: {given.rest[0]}")
        return read_script("wrap", f"#!/bin/sh\n# what was wrapped\n\n{wrapped}\n"), None
    if not given.rest or given.rest[0] == "-":
        if not given.rest and sys.stdin.isatty():
            raise SlurmError("name a script: sbatch job.sh, or sbatch --wrap 'COMMAND'")
        return _of_fit_size(read_script("sbatch", _from_input())), None
    path = Path(given.rest[0])
    try:
        text = path.read_bytes().decode()  # with its line breaks as they are
    except UnicodeDecodeError as error:
        raise SlurmError(f"{path} is no text; run it from a script: sbatch --wrap {path}") from error
    except OSError as error:
        raise SlurmError(f"{path} cannot be read: {error.strerror}") from error
    return _of_fit_size(read_script(path.name, text)), path


def _from_input() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise SlurmError("standard input is no text; give sbatch a script") from error


def _of_fit_size(script: BatchScript) -> BatchScript:
    if len(script.text.encode()) > SCRIPT_BYTES_MAX:
        raise SlurmError(f"{script.name} has more than {SCRIPT_BYTES_MAX // 1024} KiB; call it from a short script")
    return script


def _join(request: dict[str, Any], fields: dict[str, Any]) -> None:
    """Let what `#COLANE` lines say go over what Slurm's say."""
    for name, value in fields.items():
        request[name] = {**request.get(name, {}), **value} if isinstance(value, dict) else value
        request.pop(f"{name}_s", None)
        request.pop(f"{name}_bytes", None)
