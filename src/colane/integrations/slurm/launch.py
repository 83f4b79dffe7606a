"""What runs on the node: a piece of shell that tells a script where it is, as Slurm does, and becomes it."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from colane.model.words import count

PROLOGUE: Final = r"""
shims=$1 out=$2 err=$3 mode=$4 in=$5 run=$6 script=$7; shift 7
[ -z "$shims" ] || [ "${PATH%%:*}" = "$shims" ] || PATH=$shims:$PATH
SLURM_JOB_ID=$COLANE_JOB_ID SLURM_JOBID=$COLANE_JOB_ID
SLURM_JOB_NODELIST=$COLANE_NODE SLURM_NODELIST=$COLANE_NODE SLURMD_NODENAME=$COLANE_NODE
SLURM_JOB_GPUS=$CUDA_VISIBLE_DEVICES SLURM_JOB_PARTITION=${COLANE_POOL:-$SLURM_JOB_PARTITION}
SLURM_CPUS_ON_NODE=$(nproc) SLURM_JOB_CPUS_PER_NODE=$SLURM_CPUS_ON_NODE
SLURM_JOB_START_TIME=$(date +%s)
export PATH SLURM_JOB_ID SLURM_JOBID SLURM_JOB_NODELIST SLURM_NODELIST SLURMD_NODENAME SLURM_JOB_GPUS
export SLURM_JOB_PARTITION SLURM_CPUS_ON_NODE SLURM_JOB_CPUS_PER_NODE SLURM_JOB_START_TIME
[ -z "${SLURM_TIMELIMIT_S:-}" ] || export SLURM_JOB_END_TIME=$((SLURM_JOB_START_TIME + SLURM_TIMELIMIT_S))
unset SLURM_TIMELIMIT_S
if [ "${COLANE_ATTEMPT:-1}" -gt 1 ]; then export SLURM_RESTART_COUNT=$((COLANE_ATTEMPT - 1)); mode=append; fi
if [ -n "${COLANE_ARRAY_ID:-}" ]; then
  export SLURM_ARRAY_JOB_ID=$COLANE_ARRAY_ID SLURM_ARRAY_TASK_ID=$COLANE_ARRAY_INDEX
  export SLURM_ARRAY_TASK_COUNT=$COLANE_ARRAY_COUNT
  export SLURM_ARRAY_TASK_MIN=$COLANE_ARRAY_MIN SLURM_ARRAY_TASK_MAX=$COLANE_ARRAY_MAX
fi
if [ -n "${SLURM_COLANE_KEY:-}" ] && [ "${NODE_RANK:-0}" != 0 ]; then exec srun --member; fi
named() {
  left=$1 path=
  while :; do
    case $left in
      *%*) path=$path${left%%\%*} left=${left#*%} ;;
      *) path=$path$left; return ;;
    esac
    wide=
    while :; do
      case $left in
        [0-9]*) wide=$wide${left%"${left#?}"} left=${left#?} ;;
        *) break ;;
      esac
    done
    letter=${left%"${left#?}"} left=${left#?}
    case $letter in
      j|J) value=$SLURM_JOB_ID ;;
      A) value=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID} ;;
      a) value=${SLURM_ARRAY_TASK_ID:-4294967294} ;;
      x) value=$SLURM_JOB_NAME wide= ;;
      u) value=${SLURM_JOB_USER:-} wide= ;;
      N) value=$SLURMD_NODENAME wide= ;;
      n|t) value=0 ;;
      s) value=batch wide= ;;
      %) value=% wide= ;;
      *) value=%$wide$letter wide= ;;
    esac
    [ -z "$wide" ] || value=$(printf "%0${wide}d" "$value")
    path=$path$value
  done
}
refuse() { echo "sbatch: error: $1 cannot be written"; exit 1; }
made() { case $1 in */*) [ -d "${1%/*}/" ] || mkdir -p "${1%/*}/" 2>/dev/null ;; esac; }
if [ -n "$in" ]; then named "$in"; [ -r "$path" ] || { echo "sbatch: error: $path cannot be read"; exit 1; }; fi
[ -z "$in" ] || exec <"$path"
if [ -n "$out" ]; then
  named "$out"; first=$path
  if [ -n "$err" ]; then named "$err"; fi
  second=$path
  echo "what job $SLURM_JOB_ID writes is in $first"
  made "$first"; made "$second"
  [ "$mode" = append ] || (: >"$first") 2>/dev/null || refuse "$first"
  (: >>"$first") 2>/dev/null || refuse "$first"
  [ "$mode" = append ] || [ "$second" = "$first" ] || (: >"$second") 2>/dev/null || refuse "$second"
  (: >>"$second") 2>/dev/null || refuse "$second"
  exec >>"$first"
  if [ "$second" = "$first" ]; then exec 2>&1; else exec 2>>"$second"; fi
elif [ -n "$err" ]; then
  named "$err"
  made "$path"
  (: >>"$path") 2>/dev/null || refuse "$path"
  exec 2>>"$path"
fi
copy=$(mktemp "${TMPDIR:-/tmp}/slurm_script.XXXXXX") || exit 1
printf '%s' "$script" >"$copy" && exec 9<"$copy" && rm -f "$copy" || exit 1
[ -z "${SLURM_COLANE_KEY:-}" ] || run="srun --lead $run"
unset shims out err mode in script left path wide letter value first second copy
exec $run /dev/fd/9 "$@"
"""
"""Every name of a variable it exports is Slurm's. The script is read through an open file, so that none is left.

It makes the directory of its output: a job starts at once here, before submitit has made the one for its id."""

SCRIPT_BYTES_MAX: Final = 131_071  # the longest word that Linux lets a command line have (MAX_ARG_STRLEN, and its end)


class BatchFiles(NamedTuple):
    """Where a job writes and reads: patterns as `slurm-%j.out`, absolute; empty for Colane's log and for nothing."""

    out: str = ""
    err: str = ""
    mode: str = "truncate"
    input: str = ""


def command(shims: str, files: BatchFiles, interpreter: str, text: str, words: Sequence[str]) -> list[str]:
    """Return the command of a job that runs a script.

    Args:
        shims: Directory of the verbs, which the script finds first.
        files: Where it writes and reads.
        interpreter: What runs it, as its first line says.
        text: The script, which may change or go after it was submitted.
        words: Its arguments.
    """
    shell = "bash" if any(posixpath.basename(word) == "bash" for word in interpreter.split()) else "sh"
    return [shell, "-c", PROLOGUE, NAME, shims, *files, interpreter, text, *words]


SHELLS: Final = frozenset({"sh", "bash"})
"""What runs the piece of shell: of a script of bash it is bash, as others drop functions that bash has exported."""
NAME: Final = "sbatch"  # what the piece of shell is called: `$0`


class BatchCommand(NamedTuple):
    """What a command made by `command` runs: as there."""

    interpreter: str
    text: str
    words: Sequence[str]

    def __str__(self) -> str:
        """In a line: how long the script is, and its first command."""
        lines = self.text.splitlines()
        first = next((line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
        given = f" with {shlex.join(self.words)}" if self.words else ""
        return f"{self.interpreter}, a batch script of {count(len(lines), 'line')}{given}: {first[:FIRST_CHARS]}"


FIRST_CHARS: Final = 80


def batch_command(command: Sequence[str]) -> BatchCommand | None:
    """Return what a job's command runs where it was made by `command`, by whatever version; None of any other."""
    apart = _apart(command)
    if apart is None:
        return None
    interpreter, text, *words = apart[1]
    return BatchCommand(interpreter, text, words)


def batch_files(command: Sequence[str]) -> BatchFiles | None:
    """Return where a job writes and reads whose command was made by `command`; None of any other."""
    apart = _apart(command)
    return None if apart is None else apart[0]


def _apart(command: Sequence[str]) -> tuple[BatchFiles, Sequence[str]] | None:
    """Part a command into its files, and what runs with its words."""
    at = 3
    files, words = at + 2, at + 2 + len(BatchFiles._fields)
    is_ours = command[:1] and command[0] in SHELLS and command[1:2] == ["-c"] and command[at : at + 1] == [NAME]
    if not is_ours or len(command) < words + 2:
        return None
    return BatchFiles(*command[files:words]), command[words:]


def file_name(pattern: str, values: Mapping[str, str | int]) -> str:
    """Fill a file's pattern as the job itself does, see `PROLOGUE`: `slurm-%j.out`, `%4a` with four digits.

    Args:
        pattern: As it was given.
        values: By its letter what a pattern stands for: numbers may be filled up with zeros, texts not.
    """

    def fill(found: re.Match[str]) -> str:
        value = values.get(found["letter"], found[0])
        return f"{value:0{found['wide'] or 0}}" if isinstance(value, int) else value

    return re.sub(r"%(?P<wide>\d*)(?P<letter>.)", fill, pattern)
