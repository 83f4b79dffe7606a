"""What may be said of a job when it is submitted: each field in one row, read by every border.

From a row come the option of `colane submit`, the field of the job request and its bounds, what a script's `#SBATCH`
lines are said to mean here, the other names that a job file is told of, whether the API and `colane show` have it, the
column of a trace, and the page `docs/reference/job-fields.md`. What stands in `JobSpec` has the same name there, typed
for code that is compiled; `tests/test_job_fields.py` holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from colane.model.checkpoint import LEAD_MAX_S, parse_contract
from colane.model.field_values import (
    BYTES,
    BYTES_PER_S,
    CORES_MAX,
    EXACT_MAX,
    NO_CONTROLS,
    SECONDS,
    TIME_MAX_S,
    Amount,
    Flag,
    GpuSizes,
    Number,
    OneOf,
    SomeOf,
    Text,
    TextList,
    TextMap,
    Values,
    Whole,
)
from colane.model.hardware import DEFAULT_POOL
from colane.model.job_spec import (
    BatchOf,
    CommPattern,
    CoreHint,
    IfNever,
    JobKind,
    Ranks,
    parse_category,
    parse_nodes,
)


class HelpPanel(StrEnum):
    """Part of the help an option stands in."""

    NEEDS = "What the job needs"
    SHARING = "Sharing and stopping"
    PLACING = "Several GPUs"
    TRAINER = "Built-in training job (paper A's job object)"


class Shelf(StrEnum):
    """Where a job object of the API has a field."""

    JOB = "job"  # among the job's own
    NEEDS = "needs"  # in its `needs`
    NONE = ""  # nowhere: policies and other users have no business with it


class Option(NamedTuple):
    """An option of `colane submit`."""

    help: str  # what its help says
    names: tuple[str, ...]  # `--name`, `-n`
    metavar: str | None = None  # what help calls its value, where its values do not say it
    panel: HelpPanel = HelpPanel.NEEDS  # part of the help it stands in


class Requires(NamedTuple):
    """What a field makes no sense without."""

    name: str  # another field
    message: str  # what is said where it is missing, with the fix
    value: object = None  # what that must be; None: anything but its default


class JobField(NamedTuple):
    """A field."""

    name: str  # in the job request, in `JobSpec` and in the job object of the API
    takes: Values  # what it may hold
    meaning: str  # what it is
    default: Any = None  # what a request has that does not name it
    option: Option | None = None  # the option of `colane submit`; None: files and requests only
    slurm: tuple[str, ...] = ()  # options of `sbatch` that mean the same
    other_names: tuple[str, ...] = ()  # what people write for it in job files
    in_spec: bool = True  # policies see it, in `JobSpec`; else it is for the scheduler or the agent alone
    in_need: bool = False  # it decides where a job may run, so that it is part of `NeedClass`
    of_trainer: bool = False  # it belongs to built-in training jobs
    needs_gpu: bool = False  # it says something only of a job with GPUs
    requires: Requires | None = None  # what it makes no sense without
    shelf: Shelf = Shelf.NEEDS  # where the API has it
    # how `colane show` says it where it is not its default, with the value as `{value}`; empty: not at all
    shown: str = ""
    column: str = ""  # column of Colane's own trace, which is what `colane export` writes; empty: none
    of_one_time: bool = False  # it speaks of jobs of then: one that is submitted again goes without

    @property
    def text(self) -> str:
        """The field beside it that takes text with a unit; empty where it has none."""
        return self.name.removesuffix(self.takes.unit.suffix) if isinstance(self.takes, Amount) else ""

    @property
    def said(self) -> str:
        """The field that people fill in."""
        return self.text or self.name

    def in_job(self, value: Any) -> Any:  # noqa: ANN401 - JSON is what it is
        """Return what a job has of a value as JSON has it."""
        if value is None:
            return None
        match self.takes:
            case OneOf(of):
                return of(value)
            case SomeOf(of):
                return tuple([of(one) for one in value])
            case Text(parse=parse) if parse is not None:
                return parse(value)
            case _:
                return tuple(value) if isinstance(value, list) else value


LABELS_MAX: Final = 64
ENV_VARIABLES_MAX: Final = 10_000
COMMAND_WORDS_MAX: Final = 10_000
RETRIES_MAX: Final = 1_000
PRIORITY_MAX: Final = 2**31
GPUS_PER_NODE_MAX: Final = 1_024

NAME: Final = Text(200, 1, NO_CONTROLS)
NAME_OR_NONE: Final = Text(200, 0, NO_CONTROLS)
TEXT: Final = Text()
WORD: Final = Text(131_072)  # 131,072 bytes is the longest single argument Linux takes (MAX_ARG_STRLEN)
PATH: Final = Text(is_path=True)
FILE: Final = Text(4_000, 1, is_path=True)
VARIABLE: Final = Text(1_000, 1, r"^[^=\x00]+$")
STEPS: Final = Whole(1, EXACT_MAX, "step")


def _trainer(name: str, takes: Values, text: str, *options: str) -> JobField:
    """A field of built-in training jobs; how its value is judged, `workloads.catalogue` says."""
    option = Option(text, options, panel=HelpPanel.TRAINER)
    meaning = text[0].lower() + text[1:].removesuffix(".")
    return JobField(name, takes, meaning, None, option, in_spec=False, of_trainer=True, shelf=Shelf.NONE)


JOB_FIELDS: Final = (
    JobField(
        "name", NAME, "for people; need not be unique",
        option=Option("Name for people.", ("--name", "-J")),
        slurm=("-J", "--job-name"), shelf=Shelf.JOB,
    ),
    JobField(
        "gpus", GpuSizes(),
        "GPUs, 0 for a job without, on one node unless `multi_node`; of several sizes the job has `sizes` besides, and "
        "in `gpus` the largest that the nodes could ever hold",
        default=(1,),
        option=Option(
            "GPUs on one machine (1): a number, 0 for none, or sizes it can run on, as 1..4 or 1,2,4.",
            ("--gpus", "-G"), "N|N..M|N,M",
        ),
        slurm=("-G", "--gpus", "--gpus-per-node", "--gres"), other_names=("gpu",), in_need=True,
    ),
    JobField(
        "gpu_type", NAME, "required GPU type; none is any",
        option=Option("Only GPUs of this type.", ("--gpu-type",)),
        in_need=True, needs_gpu=True, column="gpu_type",
    ),
    JobField(
        "gpu_memory_bytes", Amount(BYTES, least=1), "peak memory on each GPU; none is unknown",
        option=Option("Peak memory on each GPU, as 2GB or 512MiB.", ("--gpu-memory",)),
        other_names=("memory",), in_need=True, needs_gpu=True, shown="{value} of memory on each",
        column="gpu_memory_bytes",
    ),
    JobField(
        "cores", Whole(0, CORES_MAX, "core"),
        "CPU cores for it alone; of training those it starts with (`--core-tuner`); 0 shares those near its GPUs",
        default=0,
        option=Option("CPU cores for it alone.", ("--cores", "-c")),
        slurm=("-c", "--cpus-per-task"), other_names=("cpus",), in_need=True, shown="{value:core}", column="cores",
    ),
    JobField(
        "host_memory_bytes", Amount(BYTES, least=0, slurm_unit="MiB"), "host memory booked",
        default=0,
        option=Option("Host memory; a job that uses more ends as out of memory.", ("--host-memory", "--mem")),
        slurm=("--mem",), other_names=("memory", "mem"), in_need=True, shown="{value} of host memory",
        column="host_memory_bytes",
    ),
    JobField(
        "host_bandwidth_bytes_per_s", Amount(BYTES_PER_S, least=0),
        "bandwidth to host memory booked, where nodes say theirs",
        default=0,
        option=Option("Bandwidth to host memory, as 20GB/s, where machines say theirs.", ("--host-bandwidth",)),
        in_need=True, shown="{value} to host memory", column="host_bandwidth_bytes_per_s",
    ),
    JobField(
        "priority", Whole(-PRIORITY_MAX, PRIORITY_MAX), "higher goes first where the policy uses it",
        default=0,
        option=Option("Higher goes first where the policy uses it; above 0 for operators.", ("--priority",)),
        shelf=Shelf.JOB, shown="{value}", column="priority",
    ),
    JobField(
        "qos", NAME, "how it is served: `debug` first, small and short; `sweep` last, to be stopped for others; or as "
        "the operator has it",
        default="normal",
        option=Option(
            "debug: first, at most 30 minutes and 2 GPUs. sweep: last, may be stopped for others. Or as the operator "
            "has it.", ("--qos",)
        ),
        in_spec=False, shelf=Shelf.NONE,
    ),
    JobField(
        "time_limit_s", Amount(SECONDS, above=0, most=TIME_MAX_S, slurm_unit="m"),
        "stopped when an attempt has run this long; none is never",
        option=Option(
            "Stopped after this time, as 90s, 10m, 1h30m, 00:10:00 or 1-00:00.", ("--time-limit", "-t")
        ),
        slurm=("-t", "--time"), other_names=("time", "timeout"), shown="at most {value}", column="time_limit_s",
    ),
    JobField(
        "deadline_s", Amount(SECONDS, above=0, most=TIME_MAX_S),
        "it is to have ended so long after it was submitted: it is taken in only if that can be kept, has its GPUs to "
        "itself and is stopped for no other",
        option=Option(
            "Ends within this time from now, as 2h, or is refused with the earliest time that could be kept.",
            ("--deadline",),
        ),
        needs_gpu=True, shown="ends within {value}", column="deadline_s",
    ),
    JobField(
        "begin", Text(64), "it starts no earlier: now+2h, 16:00 by the scheduler's clock, or 2030-12-01T08:00",
        option=Option("Starts no earlier: now+2h, 16:00, or 2030-12-01T08:00.", ("--begin",), "WHEN"),
        slurm=("-b", "--begin"), other_names=("start_time", "not_before"), in_spec=False, shelf=Shelf.NONE,
    ),
    JobField(
        "after", Text(20_000), "what other jobs must have done before it starts: ok:12 (succeeded), fail:12, any:13 "
        "(ended), start:14, each:15 (two arrays, element by element), several with commas; @ is the user's last job, "
        "@~2 the one two before it",
        default="",
        option=Option(
            "Starts once these jobs have succeeded (ok:12), failed (fail:12), ended (any:12) or started (start:12); "
            "several with commas; @ is your last job.", ("--after",), "ok:JOB,...",
        ),
        slurm=("-d", "--dependency"), other_names=("depends", "depends_on", "dependency"), shown="after {value}",
        of_one_time=True,
    ),
    JobField(
        "if_never", OneOf(IfNever), "what becomes of it when `after` cannot come true any more",
        default=IfNever.CANCEL,
        option=Option(
            "What happens when --after cannot come true any more: cancel it, or hold it for 'colane resume'.",
            ("--if-never",),
        ),
        of_one_time=True,
    ),
    JobField(
        "singleton", Flag(), "it starts once all jobs of the user with its name that were submitted before have ended",
        default=False,
        option=Option("Starts once your earlier jobs of the same --name have ended.", ("--singleton",)),
        in_spec=False, shelf=Shelf.NONE,
    ),
    JobField(
        "hold", Flag(), "it starts only when it is released",
        default=False,
        option=Option("Starts only after 'colane release JOB'.", ("--hold",)),
        slurm=("-H", "--hold"), other_names=("held",), in_spec=False, shelf=Shelf.NONE,
    ),
    JobField(
        "array", Text(20_000), "it is run once for each of these indexes, as 0-99, 1,3,7-9 or 0-90:10; %8 behind them: "
        "at most 8 of them at once",
        option=Option(
            "Runs it once for each index, as 0-99 or 1,3,7-9, told in COLANE_ARRAY_INDEX; 0-99%8: at most 8 at once.",
            ("--array", "-a"), "INDEXES[%N]",
        ),
        slurm=("-a", "--array"), in_spec=False, shelf=Shelf.NONE,
    ),
    JobField(
        "retries", Whole(0, RETRIES_MAX, "retry"), "how often a failed attempt is tried again",
        default=0,
        option=Option("Tried again this often when it fails.", ("--retries",)),
        shown="{value:retry}", column="retries",
    ),
    JobField(
        "labels", TextMap(NAME, TEXT, LABELS_MAX), "for people and reports; lists of jobs are filtered by them",
        default={},
        option=Option("May be repeated.", ("--label", "-l"), "NAME=VALUE"),
        other_names=("label",), shelf=Shelf.JOB,
    ),
    JobField(
        "comment", Text(1_000, 0, NO_CONTROLS), "for people: shown and exported, decides nothing",
        default="",
        option=Option("For people, as 'colane show' shows it.", ("--comment",)),
        slurm=("--comment",), shelf=Shelf.JOB, shown="{value}", column="comment",
    ),
    JobField(
        "env", TextMap(VARIABLE, WORD, ENV_VARIABLES_MAX), "environment of its processes",
        default={},
        option=Option("Set a variable; all of this shell's go along. May be repeated.", ("--env", "-e"), "NAME=VALUE"),
        other_names=("environment",), in_spec=False, shelf=Shelf.NONE,
    ),
    JobField(
        "workdir", PATH, "working directory, absolute; none is the scheduler's",
        option=Option("Working directory (this one).", ("--workdir", "-C")),
        slurm=("-D", "--chdir"), other_names=("cwd", "working_directory", "working_dir"),
        in_spec=False, shelf=Shelf.NONE,
    ),
    JobField(
        "output", FILE, "file that gets a copy of what it writes, from `workdir` where it is relative; its directories "
        "are made; %j is its id, %x its name, %A and %a its array's id and its index, %u its user, %N its machine",
        option=Option(
            "File for a copy of what it prints, as logs/%x-%j.out: %j its id, %x its name, %a its index in an array.",
            ("--output", "-o"), "FILE",
        ),
        slurm=("-o", "--output"), other_names=("stdout", "log", "log_file"), in_spec=False, shelf=Shelf.NONE,
    ),
    JobField(
        "input", FILE, "file that it reads as its standard input, named as `output` is; none is nothing to read",
        option=Option(
            "File it reads as standard input, as parts/%a.txt; - takes what this command is given.",
            ("--input", "-i"), "FILE|-",
        ),
        slurm=("-i", "--input"), other_names=("stdin",), in_spec=False, shelf=Shelf.NONE,
    ),
    JobField(
        "pty", Flag(), "it has a terminal, at which its owner types (`colane attach`); hung up once no user was there "
        "for an hour",
        default=False,
        option=Option("Run it at a terminal, here: what is typed reaches it. Enter ~. leaves it running.", ("--pty",)),
        in_spec=False, shelf=Shelf.NONE,
    ),
    JobField(
        "share", Flag(), "whether other jobs may be on its GPUs",
        default=True,
        option=Option("Keep other jobs off its GPUs.", ("--no-share",), panel=HelpPanel.SHARING),
        in_need=True, shown="shares no GPU", column="share",
    ),
    JobField(
        "mps", Flag(), "share through NVIDIA MPS where it can be started",
        default=False,
        option=Option("Share through NVIDIA MPS where it can be started.", ("--mps",), panel=HelpPanel.SHARING),
        in_spec=False, needs_gpu=True, shelf=Shelf.NONE,
    ),
    JobField(
        "preemptible", Flag(),
        "it saves its state when it is stopped and goes on from there, so a policy may stop it and start it again",
        default=False,
        option=Option(
            "It saves its state when asked to stop and goes on from it, so a policy may stop it. "
            "Without it a job that reports steps may still be parked for another (see 'suspend').",
            ("--preemptible",), panel=HelpPanel.SHARING,
        ),
        column="preemptible",
    ),
    JobField(
        "checkpoint", Text(parse=parse_contract),
        "how it is asked to save its state before it is stopped: a preset, a signal, or slurm:B:USR1 as `--signal` of "
        "`sbatch`; implies `preemptible`, unless that is false",
        option=Option(
            "How it is asked to save its state before it is stopped, resized or moved; implies --preemptible. "
            "plain (SIGUSR1), lightning, submitit, nemo, torchrun, or a signal. It leaves with exit code 75, or 0.",
            ("--checkpoint",), "HOW", HelpPanel.SHARING,
        ),
    ),
    JobField(
        "checkpoint_lead_s", Amount(SECONDS, above=0, most=LEAD_MAX_S),
        "how long saving may take; none: as its preset says",
        option=Option(
            "How long saving may take, as 2m (30s to 90s, by HOW).", ("--checkpoint-lead",), panel=HelpPanel.SHARING
        ),
        requires=Requires("checkpoint", "says how long saving may take: give checkpoint, too"),
        in_spec=False, shelf=Shelf.NONE,
    ),
    JobField(
        "abortable", Flag(), "without GPUs: it may be stopped for jobs with GPUs, though it then begins anew",
        default=False,
        option=Option(
            "Without GPUs: it may be stopped for a job with GPUs, and begins anew later.", ("--abortable",),
            panel=HelpPanel.SHARING,
        ),
        column="abortable",
    ),
    JobField(
        "kind", OneOf(JobKind), "training, or inference by a process that runs on",
        default=JobKind.TRAINING,
        option=Option("training, or inference by a process that runs on.", ("--kind",), "KIND", HelpPanel.SHARING),
        in_need=True,
        column="kind",
    ),
    JobField(
        "latency_s", Amount(SECONDS, above=0, most=TIME_MAX_S), "longest that a step of an inference job may take",
        option=Option(
            "Longest a step of an inference job may take, as 50ms.", ("--latency",), panel=HelpPanel.SHARING
        ),
        in_need=True,
        requires=Requires(
            "kind", "is an objective of inference jobs: give kind inference, or leave it out", JobKind.INFERENCE
        ),
        shown="a step in at most {value}", column="latency_s",
    ),
    JobField(
        "weight", Number(above=0, most=1e6), "its share of a lane's turns, against the weights of the others",
        default=1.0,
        option=Option("Its share of the turns on a shared GPU (1).", ("--weight",), panel=HelpPanel.SHARING),
        shown="weight {value}", column="weight",
    ),
    JobField(
        "group", NAME_OR_NONE, "jobs it may share a GPU with, where sharing is allowed within a group only",
        default="",
        option=Option(
            "Share with this group only, where policies share within groups.", ("--group",), panel=HelpPanel.SHARING
        ),
        shown="shares within group {value} only", column="group",
    ),
    JobField(
        "ranks", OneOf(Ranks), "processes that are started: one, or one for each GPU",
        default=Ranks.ONE,
        option=Option(
            "per-gpu starts a process for each GPU, with RANK and WORLD_SIZE set; else one (torchrun).", ("--ranks",)
        ),
        in_spec=False, needs_gpu=True, shelf=Shelf.NONE,
    ),
    JobField(
        "batch", OneOf(BatchOf), "what `batch_size` is of, at every size: all GPUs, or each; none: the job is not told",
        option=Option(
            "Its --batch-size is of all GPUs, or of each: then steps grow with them.", ("--batch",),
            panel=HelpPanel.PLACING,
        ),
        in_spec=False, needs_gpu=True, shelf=Shelf.NONE,
    ),
    JobField(
        "multi_node", Flag(), "its ranks may lie on several nodes",
        default=False,
        option=Option("Its processes may lie on several machines.", ("--multi-node",), panel=HelpPanel.PLACING),
        in_need=True, needs_gpu=True, shown="on several nodes if need be", column="multi_node",
    ),
    JobField(
        "anti_collocation", Flag(implies=("multi_node",)), "no two of its ranks on one node: `gpus_per_node` of 1",
        default=False,
        option=Option(
            "Each of its processes on another machine; implies --multi-node.", ("--anti-collocation",),
            panel=HelpPanel.PLACING,
        ),
        needs_gpu=True, column="anti_collocation",
        requires=Requires("multi_node", "needs multi_node: no two ranks may lie on one node"),
    ),
    JobField(
        "gpus_per_node", Whole(0, GPUS_PER_NODE_MAX, "GPU"),
        "GPUs that it has on each of its nodes, exactly: `gpus` and every size are multiples of it, and it may lie on "
        "several nodes; 1 is `anti_collocation`, 0 leaves it open",
        default=0,
        option=Option(
            "GPUs on each of its machines, exactly, as of --gpus 16: 8 on each of two; implies --multi-node.",
            ("--gpus-per-node",), "N", HelpPanel.PLACING,
        ),
        in_need=True, needs_gpu=True, shown="{value:GPU} on each node", column="gpus_per_node",
    ),
    JobField(
        "utility_min", Number(least=0, most=1),
        "where a policy postpones, it starts only where its placement utility is at least this",
        default=0.0,
        option=Option(
            "Rather wait than take a worse place, where the policy postpones.", ("--utility-min",), "0..1",
            HelpPanel.PLACING,
        ),
        needs_gpu=True,
        shown="utility at least {value}", column="utility_min",
    ),
    JobField(
        "comm_weight", Whole(0, 4),
        "how much its ranks talk: 4 much, 1 little, 0 not at all; none: judged by its batch size",
        option=Option(
            "How much its GPUs talk: 4 much, 1 little, 0 not at all.", ("--comm-weight",), "0..4", HelpPanel.PLACING
        ),
        column="comm_weight",
    ),
    JobField(
        "comm_pattern", OneOf(CommPattern), "which ranks talk to each other",
        default=CommPattern.ALL,
        option=Option("Which ranks talk: all, ring or pipeline.", ("--comm-pattern",), "PATTERN", HelpPanel.PLACING),
        column="comm_pattern",
    ),
    JobField(
        "category", Text(200, 1, NO_CONTROLS, parse_category),
        "what it works on, `cv`, `nlp` or `speech`: decides how many cores it starts with where these are tuned",
        default="unknown",
        option=Option(
            "cv, nlp or speech: how many cores it starts with where they are tuned (told by imports).", ("--category",)
        ),
    ),
    JobField(
        "core_hints", SomeOf(CoreHint), "what it does between steps, for the same",
        default=(),
        option=Option("What it does between steps, for the same. May be repeated.", ("--core-hint",), "HINT"),
    ),
    JobField(
        "pool", NAME, "nodes it may use; of several, as a,b, those of the first that can start it",
        default=DEFAULT_POOL,
        option=Option(
            "Only machines of this pool; of several, as a,b, of the first that can start it.", ("--pool", "-p")
        ),
        slurm=("-p", "--partition"), in_need=True, shelf=Shelf.JOB, column="pool",
    ),
    JobField(
        "nodes", Text(20_000, 0, NO_CONTROLS, parse_nodes), "of these it may use those named here, as n1,n[3-5]; "
        "not:n2 for all but these",
        default="",
        option=Option("Only these machines, as n1,n[3-5]; not:n2 for all but these.", ("--nodes",), "NODES"),
        other_names=("nodelist", "exclude"), in_need=True, shown="on {value}", column="nodes",
    ),
    JobField(
        "features", NAME, "those that have these features, as a100&nvlink or a100|h100; the operator names them",
        option=Option("Only machines with these features, as a100&nvlink or a100|h100.", ("--features",)),
        slurm=("-C", "--constraint"), other_names=("constraint",), in_spec=False, shelf=Shelf.NONE,
    ),
    JobField(
        "whole_node", Flag(), "no other job is on its nodes, those without GPUs included",
        default=False,
        option=Option("Keep all other jobs off its machines.", ("--whole-node",)),
        in_need=True, shown="its nodes whole", column="whole_node",
    ),
    JobField(
        "user", NAME_OR_NONE, "owner",
        default="",
        option=Option("Owner (you).", ("--user",)),
        shelf=Shelf.JOB, column="user",
    ),
    JobField(
        "family", NAME, "jobs of one family are expected to behave the same; none: derived from the command",
        option=Option("Jobs of one family are expected to behave the same.", ("--family",)),
        in_need=True, shelf=Shelf.JOB,
    ),
    JobField(
        "steps_total", STEPS, "steps until it is done; none is unknown",
        option=Option("Steps until it is done.", ("--steps-total",)),
        shelf=Shelf.JOB, column="steps",
    ),
    JobField("steps_limit", STEPS, "stopped as succeeded when this many steps are done; none is never"),
    JobField("measurement_group", NAME, "name of a set under measurement, started together on one GPU", needs_gpu=True),
    JobField("measurement_group_size", Whole(1, 64, "job"), "jobs in that set", default=1),
    JobField(
        "command", TextList(WORD, COMMAND_WORDS_MAX), "program and arguments; no shell reads them",
        other_names=("cmd", "script", "run"), in_spec=False, shelf=Shelf.NONE,
    ),
    JobField(
        "python", WORD, "interpreter that runs the built-in trainer; none is the scheduler's",
        in_spec=False, of_trainer=True, shelf=Shelf.NONE,
    ),
    JobField(
        "model_name", NAME, "model that the built-in trainer trains, instead of a command",
        option=Option(
            "resnet18, resnet50, se_resnet18, vgg11 or vgg19.", ("--model", "--model-name"), panel=HelpPanel.TRAINER
        ),
        other_names=("model",), in_spec=False, of_trainer=True, shelf=Shelf.NONE,
    ),
    JobField(
        "batch_size", Whole(1, EXACT_MAX, "sample"), "samples of a step; none is unknown",
        option=Option("Samples per step.", ("--batch-size", "-b"), panel=HelpPanel.TRAINER),
        in_need=True, shelf=Shelf.JOB, column="batch_size",
    ),
    _trainer("iters", Whole(), "Steps.", "--iters"),
    _trainer("dataset", TEXT, "cifar10, digits or synthetic.", "--dataset"),
    _trainer("dataset_path", PATH, "Where CIFAR-10 lies.", "--dataset-path"),
    _trainer("workers", Whole(), "Data loader processes.", "--workers"),
    _trainer("lr", Number(), "Learning rate.", "--lr"),
    _trainer("optim", TEXT, "sgd, adam, adamw or rmsprop.", "--optim"),
    _trainer("weight_decay", Number(), "Weight decay.", "--weight-decay"),
    _trainer("momentum", Number(), "Momentum.", "--momentum"),
    _trainer("num_class", Whole(), "Classes.", "--num-class"),
    _trainer("image_size", Whole(), "Side of the images in pixels.", "--image-size"),
    _trainer("augment", Whole(), "Random rotations of each sample, in its data loader.", "--augment"),
    _trainer("width", Number(), "Scales the model's channels.", "--width"),
    _trainer("seed", Whole(), "Makes a run repeatable.", "--seed"),
    _trainer("checkpoint_dir", PATH, "Where it saves its state, so that it may be stopped and resized.",
             "--checkpoint-dir"),
    _trainer("checkpoint_every_s", Number(), "Seconds between two states (600).", "--checkpoint-every"),
    _trainer("device", TEXT, "auto, cpu or cuda.", "--device"),
)  # fmt: skip
"""Every field; options stand in the help in this order."""

BY_NAME: Final[Mapping[str, JobField]] = {field.name: field for field in JOB_FIELDS}


RULED: Final = tuple(field for field in JOB_FIELDS if field.needs_gpu or field.requires)
RULED_NAMES: Final = frozenset(field.name for field in RULED)
_PLACE: Final = {field.name: place for place, field in enumerate(RULED)}


def senseless(values: Mapping[str, Any], *, has_gpus: bool) -> Iterator[tuple[JobField, str]]:
    """Yield fields that make no sense together with the others, each with the fix.

    Args:
        values: Values by field; one that is missing has its default.
        has_gpus: Whether the job asks for a GPU.
    """
    for name in sorted(RULED_NAMES.intersection(values), key=_PLACE.__getitem__):
        field = BY_NAME[name]
        if values[name] == field.default:
            continue
        if field.needs_gpu and not has_gpus:
            yield field, "needs a GPU: leave it out, or ask for gpus"
        elif (need := field.requires) is not None and not _is_met(need, values):
            yield field, need.message


def _is_met(need: Requires, values: Mapping[str, Any]) -> bool:
    default = BY_NAME[need.name].default
    value = values.get(need.name, default)
    return bool(value != default if need.value is None else value == need.value)
