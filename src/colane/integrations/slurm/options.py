"""The options of `sbatch` and `srun` as one table: which are done, which have no effect here, which are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from colane.integrations.slurm.contact import SlurmError
from colane.integrations.slurm.getopt import name_and_value
from colane.model.nearest import nearest


class Treatment(StrEnum):
    """What becomes of an option."""

    DONE = "done"
    NO_EFFECT = "accepted without effect"
    REFUSED = "refused"


class Takes(StrEnum):
    """Whether a value belongs to an option."""

    VALUE = "value"
    NOTHING = "nothing"
    MAYBE = "maybe"  # only where it is joined to it, as `--exclusive=user`


class OptionRow(NamedTuple):
    """SlurmOptions that are treated alike."""

    names: str  # each with its letter where it has one, as `-J,--job-name`; several are parted by blanks
    takes: Takes  # whether a value follows
    treatment: Treatment  # what becomes of them
    advice: str = ""  # of those that are refused, what to do instead


V, N, M = Takes.VALUE, Takes.NOTHING, Takes.MAYBE
DONE, NO_EFFECT, REFUSED = Treatment.DONE, Treatment.NO_EFFECT, Treatment.REFUSED
TABLE: Final = (
    OptionRow(
        "-J,--job-name -o,--output -e,--error -i,--input -t,--time -N,--nodes -n,--ntasks "
        "--tasks-per-node,--ntasks-per-node --ntasks-per-gpu -c,--cpus-per-task --mem --mem-per-cpu --mem-per-gpu "
        "-p,--partition -A,--account -q,--qos --gres -G,--gpus --gpus-per-node --gpus-per-task --cpus-per-gpu "
        "-D,--chdir --export --open-mode --comment -b,--begin -d,--dependency",
        V, DONE,
    ),
    OptionRow("--exclusive", M, DONE),
    OptionRow("--requeue --no-requeue -H,--hold -Q,--quiet", N, DONE),
    OptionRow(
        "--wckey --hint --gpu-bind --cpu-bind --mem-bind -m,--distribution --threads-per-core "
        "--cores-per-socket --sockets-per-node -B,--extra-node-info --ntasks-per-core --ntasks-per-socket --switches "
        "--tmp --profile --acctg-freq --deadline --time-min -S,--core-spec --thread-spec --gpu-freq --cpu-freq "
        "--network --mcs-label --delay-boot --prefer --mincpus --gres-flags --power --extra --segment --tres-bind "
        "--oom-kill-step",
        V, NO_EFFECT,
    ),
    OptionRow("--nice", M, DONE),
    OptionRow("--propagate --get-user-env -k,--no-kill", M, NO_EFFECT),
    OptionRow(
        "-O,--overcommit -s,--share,--oversubscribe --spread-job --contiguous --reboot --use-min-nodes -v,--verbose "
        "--ignore-pbs",
        N, NO_EFFECT,
    ),
    OptionRow("-w,--nodelist -x,--exclude -C,--constraint --priority --mail-user --mail-type --reservation", V, DONE),
    OptionRow("-F,--nodefile", V, REFUSED, "name the machines: --nodelist"),
    OptionRow("--bb --bbf", V, REFUSED, "Colane has none"),
    OptionRow(
        "-L,--licenses", V, REFUSED, "jobs that share a licence go one after the other: --dependency=singleton, or an "
        "array with %N at once",
    ),
    OptionRow(
        "--container --container-id", V, REFUSED, "start the container in the script: apptainer exec --nv IMAGE ..."
    ),
    OptionRow("-M,--clusters", V, REFUSED, "there is one cluster, that of COLANE_URL"),
    OptionRow("--tres-per-task", V, REFUSED, "say --gpus-per-task and --cpus-per-task"),
    OptionRow("--gpus-per-socket", V, REFUSED, "say how many the job takes: --gpus"),
    OptionRow("--uid --gid", V, REFUSED, "jobs run as their submitters"),
)  # fmt: skip
"""What both verbs know."""

OF_SBATCH: Final = (
    *TABLE,
    OptionRow("-a,--array --signal --wrap --kill-on-invalid-dep", V, DONE),
    OptionRow("--parsable --test-only -W,--wait", N, DONE),
    OptionRow("--wait-all-nodes --batch", V, NO_EFFECT),
    OptionRow("--export-file", V, REFUSED, "name the variables: --export"),
)
"""What `sbatch` knows."""

OF_SRUN: Final = (
    *TABLE,
    OptionRow("-u,--unbuffered -l,--label", N, DONE),
    OptionRow("-K,--kill-on-bad-exit", M, DONE),
    OptionRow("--mpi -W,--wait -T,--threads --msg-timeout --task-prolog --task-epilog --prolog --epilog --signal", V,
        NO_EFFECT),
    OptionRow("--exact --overlap", N, DONE),
    OptionRow("--jobid", V, DONE),
    OptionRow("-E,--preserve-env -X,--disable-status -Z,--no-allocate", N, NO_EFFECT),
    OptionRow("--pty", M, DONE),
    OptionRow("--resv-ports --compress --x11", M, NO_EFFECT),
    OptionRow("--bcast", M, REFUSED, "programs are read where they are, at the same path on each machine"),
    OptionRow("--multi-prog", N, REFUSED, "start the programs from a script"),
    OptionRow("--het-group -r,--relative", V, REFUSED, "name the machines of the step: --nodelist"),
    OptionRow("-I,--immediate", M, REFUSED, "leave it out; the job starts when there is room"),
)  # fmt: skip
"""What `srun` knows."""


class SaidValue(NamedTuple):
    """An option's value, and where it was said: `job.sh:4`, a variable, or empty for the command line."""

    value: str
    place: str = ""


class SlurmOptions(NamedTuple):
    """What was said."""

    said: Mapping[str, SaidValue]  # by long name without dashes, the last word of each
    without_effect: Sequence[str]  # SlurmOptions as they were written that have none here
    rest: Sequence[str]  # VerbWords behind the options

    def get(self, name: str) -> str | None:
        """Return a value; None where it was not said, empty for an option without one."""
        found = self.said.get(name)
        return None if found is None else found.value

    def place(self, name: str) -> str:
        """Return how to begin a complaint about an option: `job.sh:4: --mem`."""
        place = self.said[name].place
        return f"{place}: --{name}" if place else f"--{name}"


class _KnownOption(NamedTuple):
    name: str
    row: OptionRow


def _by_name(rows: Sequence[OptionRow]) -> dict[str, _KnownOption]:
    known = {}
    for row in rows:
        for names in row.names.split():
            long = names.rpartition(",")[2]
            known.update({name: _KnownOption(long[2:], row) for name in names.split(",")})
    return known


KNOWN: Final = {"sbatch": _by_name(OF_SBATCH), "srun": _by_name(OF_SRUN)}


def parse(verb: str, words: Sequence[str], place: str = "") -> SlurmOptions:
    """Return what words say, as getopt reads them: up to the first that is no option.

    Args:
        verb: `sbatch` or `srun`.
        words: SlurmOptions and what is behind them.
        place: Where they stand; empty for the command line.

    Raises:
        SlurmError: An option is not known, is refused, or lacks its value.
    """
    left, said, without_effect = list(words), dict[str, SaidValue](), list[str]()
    at = f"{place}: " if place else ""
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        if word == "--":
            break
        name, joined, value = name_and_value(word)
        known = _find(verb, name, at)
        if known.row.takes is N and joined:
            if name.startswith("--"):
                raise SlurmError(f"{at}{name} takes no value, got {value!r}")
            left.insert(0, f"-{value}")  # letters in a row
            value = ""
        elif known.row.takes is V and not joined:
            if not left:
                raise SlurmError(f"{at}{name} needs a value")
            value = left.pop(0)
        if known.row.treatment is REFUSED:
            raise SlurmError(f"{at}{name} is not done here: {known.row.advice}")
        if known.row.treatment is NO_EFFECT:
            without_effect.append(f"--{known.name}")
        _say(said, known.name, SaidValue(value, place))
    return SlurmOptions(said, without_effect, left)


def _say(said: dict[str, SaidValue], name: str, value: SaidValue) -> None:
    """The later one wins, but of what each line adds to, as with Slurm."""
    before = said.get(name) if name == "mail-type" else None
    said[name] = value if before is None else SaidValue(f"{before.value},{value.value}", value.place)


def _find(verb: str, name: str, at: str) -> _KnownOption:
    known = KNOWN[verb]
    if name in known:
        return known[name]
    begun = {known[other].name for other in known if name.startswith("--") and other.startswith(name)}
    if len(begun) == 1:  # as getopt takes the beginning of a name for it
        return known[f"--{begun.pop()}"]
    near = nearest(name, [other for other in known if other.startswith("--")]) if name.startswith("--") else []
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    raise SlurmError(f"{at}{name} is no option of {verb} that Colane knows{meant}")


def merged(parts: Sequence[SlurmOptions]) -> SlurmOptions:
    """Return what several places say, of which the later ones win."""
    said: dict[str, SaidValue] = {}
    for part in parts:
        for name, value in part.said.items():
            _say(said, name, value)
    without = dict.fromkeys(word for part in parts for word in part.without_effect)
    return SlurmOptions(said, list(without), parts[-1].rest if parts else [])
