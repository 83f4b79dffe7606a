"""The profile key of a command: jobs that run the same script with the same argument names behave alike.

The key is what the launchers on a command line lead to (`LAUNCHERS`), the names of the options after that, and a hash
of the directory it lies in and of the user whose job it is. Where it is not certain what is run, the whole command line
is hashed: a job that shares its key with no other costs one measurement, a wrong one lends another job's memory to it.
"""

from __future__ import annotations

import hashlib
import os.path
import posixpath
import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Final, NamedTuple

INTERPRETER: Final = re.compile(r"(python|pypy|bash|sh|dash|zsh|perl|ruby|node|julia|Rscript)[0-9.]*(-config)?")
"""Programs that run the script named in their arguments."""

FAMILY_LENGTH_MAX: Final = 200
DIGITS: Final = 8  # of a hash

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]*")


class LauncherTarget(Enum):
    """What the first word is that a launcher does not take for itself."""

    PROGRAM = auto()
    SCRIPT = auto()  # of Python, or a notebook


class Grammar(NamedTuple):
    """How a program that runs another one is called."""

    runs: LauncherTarget = LauncherTarget.PROGRAM  # what it runs
    values: frozenset[str] = frozenset()  # options that take the next word; long ones with dashes
    flags: frozenset[str] = frozenset()  # options that take none
    words: int = 0  # words of its own before what it runs, as the duration of `timeout`
    command: str = ""  # a word that must come first, as `run` of `uv run`; empty for none
    assigns: bool = False  # whether variables may stand before what it runs
    module: frozenset[str] = frozenset()  # options that say that a module is run


def _named(words: str) -> frozenset[str]:
    return frozenset(words.split())


_MODULE: Final = _named("-m --module")
_TORCHRUN: Final = Grammar(
    LauncherTarget.SCRIPT,
    _named(
        "--nnodes --nproc-per-node --rdzv-backend --rdzv-endpoint --rdzv-id --rdzv-conf --max-restarts --start-method "
        "--monitor-interval --role --log-dir -r --redirects -t --tee --node-rank --master-addr --master-port "
        "--local-addr --logs-specs --local-ranks-filter --event-log-handler --numa-binding --signals-to-handle"
    ),
    _named("--standalone --no-python --run-path --use-env --virtual-local-rank"),
    module=_MODULE,
)
_ACCELERATE: Final = Grammar(
    LauncherTarget.SCRIPT,
    _named(
        "--config-file --num-processes --num-machines --machine-rank --main-process-ip --main-process-port "
        "--mixed-precision --dynamo-backend --dynamo-mode --num-cpu-threads-per-process --gpu-ids --rdzv-backend "
        "--rdzv-conf --max-restarts --monitor-interval --role --tee --log-dir --deepspeed-config-file --zero-stage "
        "--gradient-accumulation-steps --gradient-clipping --offload-optimizer-device --offload-param-device "
        "--deepspeed-hostfile --fsdp-sharding-strategy --fsdp-auto-wrap-policy --fsdp-state-dict-type --downcast-bf16 "
        "--fsdp-offload-params --fsdp-min-num-params --fsdp-transformer-layer-cls-to-wrap --main-training-function "
        "--fsdp-version --enable-cpu-affinity"
    ),
    _named(
        "--multi-gpu --cpu --tpu --mps --use-deepspeed --use-fsdp --use-megatron-lm --use-xpu --debug -q --quiet "
        "--same-network --no-python --dynamo-use-dynamic"
    ),
    command="launch",
    module=_MODULE,
)
_DEEPSPEED: Final = Grammar(
    LauncherTarget.SCRIPT,
    _named(
        "-H --hostfile -i --include -e --exclude --num-nodes --num-gpus --master-addr --master-port --launcher "
        "--launcher-args --node-rank --min-elastic-nodes --max-elastic-nodes --autotuning --bind-core-list "
        "--enable-each-rank-log --venv-script"
    ),
    _named(
        "--no-local-rank --no-python --save-pid --force-multi --no-ssh --no-ssh-check --elastic-training "
        "--bind-cores-to-rank"
    ),
    module=_MODULE,
)
_PAPERMILL: Final = Grammar(
    LauncherTarget.SCRIPT,
    _named(
        "-k --kernel --language --cwd --log-level --start-timeout --execution-timeout --autosave-cell-every "
        "--request-save-on-cell-execute --engine"
    ),
    _named(
        "--prepare-only --progress-bar --no-progress-bar --log-output --no-log-output --report-mode --inject-input-path"
    ),
)
_MPIRUN: Final = Grammar(
    values=_named(
        "-n -np -c -N -npernode --npernode -H --host -host --hostfile -hostfile --map-by --bind-to --rank-by "
        "-x -wdir --wdir"
    ),
    flags=_named("--allow-run-as-root --oversubscribe --report-bindings -q --quiet --tag-output --display-map"),
)
_CONDA: Final = Grammar(
    command="run",
    values=_named("-n --name -p --prefix --cwd"),
    flags=_named("--no-capture-output --live-stream -v --verbose --dev --debug-wrapper-scripts"),
)

LAUNCHERS: Final[Mapping[str, Grammar]] = {
    "env": Grammar(values=_named("-u --unset -C --chdir"), flags=_named("-i --ignore-environment -"), assigns=True),
    "nice": Grammar(values=_named("-n --adjustment")),
    "ionice": Grammar(values=_named("-c --class -n --classdata"), flags=_named("-t --ignore")),
    "chrt": Grammar(flags=_named("-b -f -i -o -r --batch --fifo --idle --other --rr"), words=1),
    "nohup": Grammar(),
    "setsid": Grammar(flags=_named("-c -f -w --ctty --fork --wait")),
    "time": Grammar(
        values=_named("-f --format -o --output"), flags=_named("-p -v -a --append --portability --verbose")
    ),
    "timeout": Grammar(
        values=_named("-k --kill-after -s --signal"),
        flags=_named("--foreground --preserve-status -v --verbose"),
        words=1,
    ),
    "stdbuf": Grammar(values=_named("-i -o -e --input --output --error")),
    "taskset": Grammar(values=_named("-c --cpu-list"), flags=_named("-a --all-tasks")),
    "numactl": Grammar(
        values=_named("-N -m -C -i -p --cpunodebind --membind --physcpubind --interleave --preferred"),
        flags=_named("-l --localalloc"),
    ),
    "catchsegv": Grammar(),
    "tini": Grammar(flags=_named("-s -g -v")),
    "dumb-init": Grammar(flags=_named("-c --single-child -v --verbose")),
    "xvfb-run": Grammar(values=_named("-n -s -e --server-num --server-args"), flags=_named("-a --auto-servernum")),
    "uv": Grammar(
        command="run",
        values=_named(
            "--with --with-editable --with-requirements --python -p --extra --group --only-group --env-file "
            "--project --directory --package --index --no-extra"
        ),
        flags=_named(
            "--no-project --isolated --locked --frozen --no-sync --offline -q --quiet -v --verbose "
            "--all-extras --no-dev --dev --active --exact -s --script"
        ),
        module=_MODULE,
    ),
    "poetry": Grammar(command="run", flags=_named("-q --quiet -n --no-interaction -v")),
    "pdm": Grammar(command="run", values=_named("-p --project"), flags=_named("-q")),
    "rye": Grammar(command="run"),
    "pipenv": Grammar(command="run"),
    "hatch": Grammar(command="run"),
    "pixi": Grammar(
        command="run", values=_named("-e --environment --manifest-path"), flags=_named("--frozen --locked -q")
    ),
    "conda": _CONDA,
    "mamba": _CONDA,
    "micromamba": _CONDA,
    "torchrun": _TORCHRUN,
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "accelerate": _ACCELERATE,
    "accelerate-launch": _ACCELERATE._replace(command=""),
    "accelerate.commands.launch": _ACCELERATE._replace(command=""),
    "deepspeed": _DEEPSPEED,
    "deepspeed.launcher.runner": _DEEPSPEED,
    "papermill": _PAPERMILL,
    "ipython": Grammar(LauncherTarget.SCRIPT, flags=_named("-i --no-banner --quick")),
    "coverage": Grammar(
        LauncherTarget.SCRIPT,
        values=_named("--source --rcfile --omit --include"),
        flags=_named("--branch -p --parallel-mode -a --append"),
        command="run",
        module=_MODULE,
    ),
    "kernprof": Grammar(
        LauncherTarget.SCRIPT, values=_named("-o --outfile -s --setup"), flags=_named("-l -v -b"), module=_MODULE
    ),
    "viztracer": Grammar(LauncherTarget.SCRIPT, values=_named("-o --output-file"), module=_MODULE),
    "debugpy": Grammar(
        LauncherTarget.SCRIPT, values=_named("--listen --connect"), flags=_named("--wait-for-client"), module=_MODULE
    ),
    "mpirun": _MPIRUN,
    "mpiexec": _MPIRUN,
    "horovodrun": Grammar(values=_named("-np -p -H --num-proc --hosts"), flags=_named("--gloo --mpi --verbose")),
    "nsys": Grammar(
        command="profile",
        values=_named(
            "-o --output -t --trace -d --duration -y --delay -s --sample --capture-range --cuda-memory-usage"
        ),
    ),
}
"""Programs, and modules run by `python -m`, that run what is named in their arguments."""

_PYTHON_VALUES: Final = _named("-W -X --check-hash-based-pycs")
_SHELL_VALUES: Final = _named("-o -O +o +O --rcfile --init-file")

_DISPATCHERS: Final = _named(
    "make gmake just npm npx yarn pnpm dvc snakemake ray docker podman nerdctl apptainer singularity kubectl invoke "
    "tox nox bazel go cargo kedro mlflow wandb jupyter srun sbatch ssh sudo su xargs parallel tmux screen script watch "
    "bundle rake gradle mvn lightning composer colossalai streamlit gunicorn uvicorn metaflow prefect airflow"
)
"""Programs that do quite different things by their arguments, or hand over to others unseen: always unique."""


class _Doubt(Exception):  # noqa: N818 - it is no error
    """It is not certain what is run."""


class _Target(NamedTuple):
    """What is run: its name for people, the directory that it belongs to, and the words after it."""

    name: str
    folder: str
    rest: Sequence[str]


class Disk:
    """Where paths lead and which repository holds them, each looked up once.

    Args:
        known: What has been looked up already; it grows by what else is.
    """

    def __init__(self, known: Disk | None = None) -> None:
        self.links: dict[str, str] = {} if known is None else known.links
        self.repositories: dict[str, str] = {} if known is None else known.repositories

    def real(self, path: str) -> str:
        """Return where a path leads; as it is written where no file can have such a name."""
        if (found := self.links.get(path)) is None:
            found = self.links[path] = self._followed(path)
        return found

    def repository(self, folder: str) -> str:
        """Return the root of the repository that a folder lies in; `/` where it lies in none."""
        if (found := self.repositories.get(folder)) is None:
            found = self.repositories[folder] = self._root(folder)
        return found

    def _followed(self, path: str) -> str:
        try:
            return os.path.realpath(path)
        except ValueError:
            return posixpath.normpath(path)

    def _root(self, folder: str) -> str:
        while folder != "/" and not Path(folder, ".git").exists():
            folder = posixpath.dirname(folder)
        return folder


class NotSeenError(LookupError):
    """A path has not been looked up."""


class SeenDisk(Disk):
    """What has been seen of a disk, which is not looked at."""

    def _followed(self, path: str) -> str:
        raise NotSeenError(path)

    def _root(self, folder: str) -> str:
        raise NotSeenError(folder)


class AsWritten(Disk):
    """No disk at all: a path leads where it says, and is in no repository."""

    def _followed(self, path: str) -> str:
        return posixpath.normpath(path)

    def _root(self, folder: str) -> str:  # noqa: ARG002 - it is of none
        return "/"


def derive_family(command: Sequence[str], directory: str = "", user: str = "", disk: Disk | None = None) -> str:
    """Return script and sorted argument names: `python train.py --lr 0.1 -v` gives `net/train.py@CODE --lr -v`.

    Values never enter, so neither does a secret among them; of code given with `-c`, and of what is not certain, a
    short hash does.

    Args:
        command: Program and arguments.
        directory: Where it runs; without it and a user scripts are told apart by name alone.
        user: Owner of the job.
        disk: What is known of the paths already.
    """
    disk = disk or Disk()
    try:
        target = _resolve(list(command), directory, disk)
        names = sorted({option.group() for word in target.rest if (option := _OPTION.match(word))})
    except _Doubt:
        target, names = _Target(f"{_name(command[0]) or 'command'} {_hash(*command)}", directory, ()), []
    first, space, code = target.name.partition(" ")
    folder = disk.real(target.folder) if target.folder else ""
    place = f"@{_hash(user, folder)}" if folder or user else ""
    text = " ".join([f"{first or 'command'}{place}{space}{code}", *names])[:FAMILY_LENGTH_MAX]
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def name_of(family: str) -> str:
    """Name for a job of a family that has none: that of its script."""
    return posixpath.basename(family.split(" ", maxsplit=1)[0]).partition("@")[0] or "command"


def _resolve(words: list[str], directory: str, disk: Disk) -> _Target:
    """Follow launchers to what they run."""
    while True:
        program = words.pop(0)
        name = _name(program)
        if name in LAUNCHERS:
            words, is_module, is_script = _after(LAUNCHERS[name], words)
            if not words:
                return _Target(name, directory, ())
            if is_module or is_script or words[0].endswith(".py"):
                return _python(words, directory, disk, is_module=is_module)
            continue
        if name in _DISPATCHERS:
            raise _Doubt
        if INTERPRETER.fullmatch(name) is None:
            return _Target(*_program(program, directory, disk), words)
        found = _interpreted(name, words, directory, disk)
        if found is not None:
            return found
        # A launcher run as a module: `python -m torch.distributed.run`.


def _after(launcher: Grammar, words: list[str]) -> tuple[list[str], bool, bool]:
    """Drop what is a launcher's own; whether a module, or a script of Python, comes first in what is left."""
    position, own, is_module = 0, launcher.words, False
    if launcher.command:
        if not words or words[0] != launcher.command:
            raise _Doubt
        position = 1
    while position < len(words):
        word = words[position]
        if word == "--":
            position += 1
            break
        if word in launcher.flags and not word.startswith("--"):
            position += 1
        elif word.startswith("-") and len(word) > 1:
            name = word.partition("=")[0]
            name = name.replace("_", "-") if name.startswith("--") else name
            is_module = is_module or name in launcher.module
            position += _words_of(name, word, launcher, words[position + 1 :])
        elif launcher.assigns and _ASSIGNMENT.fullmatch(word):
            position += 1
        elif own:
            own, position = own - 1, position + 1
        else:
            break
    is_script = launcher.runs is LauncherTarget.SCRIPT and "--no-python" not in {
        w.replace("_", "-") for w in words[:position]
    }
    return words[position:], is_module, is_script


def _words_of(name: str, word: str, launcher: Grammar, following: Sequence[str]) -> int:
    """How many words an option takes, itself included."""
    if "=" in word or name in launcher.flags or name in launcher.module:
        return 1
    if name in launcher.values:
        return 2
    is_attached = not name.startswith("--") and (name[:2] in launcher.values or name[1:2].isdigit())
    if is_attached or (following and following[0].startswith("-")):
        return 1  # -n4, nice -10; or an option that is not known, and cannot have a value
    raise _Doubt


def _interpreted(name: str, words: list[str], directory: str, disk: Disk) -> _Target | None:
    """What an interpreter runs; None where that is a launcher, which then stands first in `words`."""
    is_python = name.startswith(("python", "pypy"))
    values = _PYTHON_VALUES if is_python else _SHELL_VALUES
    while words:
        word = words.pop(0)
        if word in values and words:
            words.pop(0)
        elif word == "-m" and is_python and words:
            if words[0] in LAUNCHERS:
                return None
            return _python(words, directory, disk, is_module=True)
        elif word.startswith("-") and word.endswith("c") and not word.startswith("--"):
            code = words.pop(0) if words else ""
            return _Target(f"{name} -c {_hash(code)}", directory, words)
        elif not word.startswith(("-", "+")):
            return _Target(*_in_project(word, directory, disk), words)
    return _Target(name, directory, ())


def _python(words: list[str], directory: str, disk: Disk, *, is_module: bool) -> _Target:
    """A script or module, and what follows it."""
    if is_module:
        return _Target(words[0].replace(" ", "_"), directory, words[1:])
    return _Target(*_in_project(words[0], directory, disk), words[1:])


def _program(path: str, directory: str, disk: Disk) -> tuple[str, str]:
    """A program by its name, and by its project where it is a file below the working directory."""
    is_own = "/" in path and disk.real(posixpath.join(directory, path)).startswith(disk.real(directory) + "/")
    return _in_project(path, directory, disk) if directory and is_own else (_name(path), directory)


def _in_project(path: str, directory: str, disk: Disk) -> tuple[str, str]:
    """A script named by its place in its repository, or by its directory; and that directory."""
    if not directory:
        return _name(path), ""
    full = disk.real(posixpath.join(directory, path))
    folder = posixpath.dirname(full)
    root = disk.repository(folder)
    named = f"{_name(root)}/{posixpath.relpath(full, root)}" if root != "/" else f"{_name(folder)}/{_name(full)}"
    return named.replace(" ", "_"), folder


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode(errors="replace")).hexdigest()[:DIGITS]


def _name(path: str) -> str:
    return posixpath.basename(path.rstrip("/"))
