"""Reasons in words: one sentence for each code, filled with its numbers.

The Slurm word that users know stands first in each sentence where there is one. No decision reads a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from string import Formatter
from types import MappingProxyType
from typing import Any, Final

from colane.model.reason import Reason, Why
from colane.model.words import bytes_in_words, count, percent, plural

SENTENCES: Mapping[Why, str] = MappingProxyType(
    {
        Why.SUBMITTED: "Priority: submitted, not yet considered",
        Why.NO_NODE: "Resources: no node of pool {pool} has registered",
        Why.NO_ROOM_ON_NODES: "ReqNodeNotAvail: no node that it may use ({nodes}) has room; they are held by {jobs}",
        Why.NODES_RESERVED: (
            "ReqNodeNotAvail: reserved for others: {nodes} ({by}); it might not have ended by then, and elsewhere it "
            "may not go or there is no room (held by {jobs}); with a shorter time limit it could start before"
        ),
        Why.NO_FREE_GPU: ("Resources: needs {asked} on one node, at most {have} free; GPUs are held by {jobs}"),
        Why.NO_FREE_WHOLE_GPU: (
            "Resources: needs {asked} on one node, at most {have} free, and CUDA shows a process one MIG instance "
            "only, so these are not given to it; GPUs are held by {jobs}"
        ),
        Why.NO_FREE_GANG: "Resources: needs {asked} over any nodes, {have} free; GPUs are held by {jobs}",
        Why.NO_ROOM_FOR_GANG: (
            "Resources: needs {asked} over any nodes, {have} free, but not all of those nodes have the cores and the "
            "memory its ranks need; others are held by {jobs}"
        ),
        Why.NO_MEMORY: (
            "Resources: needs {need_bytes} of GPU memory, at most {have_bytes} left on a GPU it may use; "
            "others are held by {jobs}"
        ),
        Why.NO_CORES: "Resources: needs {need:core}, at most {have} free where the GPUs are",
        Why.NO_HOST_MEMORY: "Resources: needs {need_bytes} of host memory, at most {have_bytes} free",
        Why.NO_HOST_BANDWIDTH: "Resources: needs {need_bytes}/s of host memory bandwidth, at most {have_bytes}/s free",
        Why.NO_ROOM_ON_HOST: (
            "Resources: needs {need:core} and {need_bytes} of host memory on one node, at most {have} and "
            "{have_bytes} are free on any for jobs without GPUs; others are held by {jobs}"
        ),
        Why.BORROWS_NOTHING: (
            "Resources: a node has {have:core} free, kept for jobs with GPUs, and it borrows none: {because}"
        ),
        Why.BEHIND: "Priority: waits in order behind {jobs}",
        Why.NOT_WORTH_SHARING: (
            "Resources: sharing {gpu} with {jobs} is predicted to give a speed-up of {speedup:.2f}, "
            "below {threshold:.2f} ({source})"
        ),
        Why.NO_EVIDENCE: (
            "Resources: waits for a free GPU: nothing was measured that tells of a gain on {gpu} beside {jobs}"
        ),
        Why.USED_BY_OTHERS: (
            "Resources: no GPU is free, and no job joins {gpu}: work that is not Colane's uses {percent} % of it, and "
            "how fast jobs would go there is not known"
        ),
        Why.UNKNOWN_ALONE_FIRST: (
            "Resources: not profiled yet, so it waits for a free GPU to run alone first: needs {asked}, "
            "at most {have} free; GPUs are held by {jobs}"
        ),
        Why.BESIDE_SERVERS: (
            "Resources: no GPU is free, and it does not take turns with {jobs} on {gpu}, which answer requests: "
            "{because}"
        ),
        Why.GROUP_INCOMPLETE: "Dependency: {have} of {need:job} of its set under measurement are queued",
        Why.RESERVED: "Resources: first in line; {node}, held by {jobs}, is reserved for it in at most {in_s:.0f} s",
        Why.WOULD_DELAY: "Priority: the free GPUs are reserved, and it could delay {jobs}",
        Why.GUARANTEED_TO_OTHERS: (
            "Resources: needs {need:GPU}, and {kept} guaranteed to groups, which it could not be stopped for: {stays}"
        ),
        Why.DEADLINE_SEATS: (
            "Resources: {gpus} kept for it, to be left by {jobs}; it is to end within {left_s:.0f} s, and "
            "may start as late as in {slack_s:.0f} s"
        ),
        Why.PREEMPTING: "Resources: GPUs are kept for it and come free by stopping {jobs}",
        Why.NO_LANE: (
            "Resources: needs {persistent_bytes} of GPU memory and {ephemeral_bytes} more within a step; "
            "no lane has room for it: at most {have_bytes} left, on {gpu} beside {jobs}"
        ),
        Why.NO_GAIN: (
            "Resources: on {gpu} beside {jobs} all together would gain {gain:+.2f} of a job's speed alone, "
            "below {least:.2f}"
        ),
        Why.POSTPONED: ("Resources: postponed: best utility {best:.2f} below {least:.2f}; {because}; waits for {jobs}"),
        Why.WOULD_HARM: (
            "Resources: postponed: beside it {jobs} would fall to utility {utility:.2f}, below its {least:.2f}"
        ),
        Why.TOO_SLOW_TO_ANSWER: (
            "Resources: taking turns with {jobs} on {gpu}, an answer could take {bound_s:.3g} s, "
            "above the objective of {latency_s:.3g} s"
        ),
        Why.NODES_DRAINED: (
            "ReqNodeNotAvail: every node that could run it takes no new jobs: {nodes}; colane undrain lets it again"
        ),
        Why.BUDGET: (
            "AssocGrpGRESMinutes: {by} is used up: {used} since the month began; it starts with the next one (0:00 "
            "UTC), or once an operator raises it"
        ),
        Why.LIMIT: "{word}: {by} is reached: {used} used, {need} needed; it starts when others under it have ended",
        Why.BEGINS_LATER: "BeginTime: not before {by}; colane release lets it start at once",
        Why.AFTER: "Dependency: it starts once {by}",
        Why.ARRAY: "{count:element}: {running} running, {waiting} waiting, {ended} ended",
        Why.ARRAY_FULL: (
            "JobArrayTaskLimit: {running} of {count:element} running, no more than {most} may at once; "
            "{waiting} waiting, {ended} ended"
        ),
        Why.ARRAY_LIMIT: "JobArrayTaskLimit: {by}; it starts when others of them have ended",
        Why.ARRAY_NEXT: "it comes behind {before:element} of array {array} yet to start",
        Why.HELD: "JobHeldUser: held by {by}; colane release lets it start",
        Why.POLICY_FAILED: "Priority: no job starts until policy {policy} plans again: {problem}",
        Why.FREE_GPU: "{gpu} is free",
        Why.KEEPS_DEADLINE: (
            "{gpus} are its own until it ends: within {left_s:.0f} s, and it starts {slack_s:.0f} s before it must"
        ),
        Why.GUARANTEED: "{gpus}: within the {guaranteed:GPU} that group {group} is guaranteed",
        Why.FREE_CORES: "{node} has the cores and the host memory it books",
        Why.MOVED: "moved from {had} to {gpu}: together {rise:+.2f} of a job's speed alone",
        Why.CONSOLIDATED: "moved from {nodes} nodes to {node} alone: {faster:.2f} times as fast there",
        Why.VACATED: "moved from {had} to {gpu}, so that {jobs} can go on: parked, and bound to {had}",
        Why.TRIES_SHARING: "shares {gpu} with {jobs}: this pairing has not been measured, so it is tried once",
        Why.SHARES_BEST: "shares {gpu} with {jobs}: at {speed:.2f} of its speed alone, together {rise:+.2f}",
        Why.SHARES: "shares {gpu} with {jobs}: predicted speed-up {speedup:.2f} ({source})",
        Why.BEST_FIT: "{gpu} leaves the fewest GPUs free on its node ({left})",
        Why.MEASURED_TOGETHER: "a set of {need} jobs is measured together on {gpu}",
        Why.BACKFILL: "{gpu} is free, and it does not delay {jobs}",
        Why.LEAST_SHARE: "{gpu} is free, and {user} has the smallest dominant share ({share:.3f} of {resource})",
        Why.NEW_LANE: "{gpu} has room for lane {lane}, {size_bytes} of its memory, beside {jobs}",
        Why.JOINS_LANE: "takes turns with {jobs} in lane {lane} of {gpu}, a lane with {size_bytes} of memory",
        Why.GROWS_LANE: (
            "takes turns with {jobs} in lane {lane} of {gpu}, a lane that grows to {size_bytes} of memory for it"
        ),
        Why.BEST_UTILITY: "{gpus}: utility {utility:.2f}, {where}, beside {jobs}",
        Why.LAUNCHED: "process {pid} started on {node}",
        Why.STEPPING: "first step reached",
        Why.PROTECTION_OVER: "its start, in which nothing stops or moves it, is over",
        Why.TAKEN_TO_RUN: "it has shown no step so far, and is taken to run",
        Why.NODE_LOST: "node {node} was lost",
        Why.WENT_ON: "node {node} is back, and it goes on where it stood",
        Why.NOT_GONE_ON: "its parts could not go on together after one of its nodes was back ({cause})",
        Why.GPU_LOST: "GPU {gpu} does not work any more",
        Why.NODE_FAULT: "node {node} could not start it: {detail}",
        Why.STOPPED_WITH_AGENT: "stopped by Colane on {node}: {because}",
        Why.DRAINED: "leaves {node}, which is drained {because}",
        Why.DRAIN_OVER: "stopped, for {node} is drained {because} and the time for that is over",
        Why.SENT_BACK: "sent back by {node} before it was started, beside {jobs}: {detail}",
        Why.SUSPENDED: "suspended by {by}; it waits at a step boundary and keeps its GPU memory",
        Why.SUSPENDED_LAUNCHING: "suspended by {by} as it launched; it leaves its GPUs, and begins anew once resumed",
        Why.SUSPENDED_TO_HOST: "suspended by {by}; it waits at a step boundary, its GPU memory is moved to the host",
        Why.MOVED_TO_HOST: "its GPU memory, {size_bytes}, is on the host, and {gpu} is free for others; {was}",
        Why.DEVICE_GIVEN_UP: (
            "waits parked for {jobs}: {because}; {gpu} is free for others, "
            "and it goes on when its node has a GPU for it"
        ),
        Why.SUSPENDED_OFF_GPU: "suspended by {by}; it waits at a step boundary, and {gpu} is free for others",
        Why.NOT_MOVED: "its GPU memory stays on the GPU: {problem}; {was}",
        Why.IDLE_PARKED: (
            "idle for {idle_s:.0f} s, no step and no kernel: parked by the rule for idle jobs, it gives {gpu} up "
            "until it would step again"
        ),
        Why.IDLE_OFF_GPU: "idle, parked by the rule for idle jobs: {gpu} is free for others until it would step again",
        Why.STEPS_AGAIN: "was parked idle, and would step again: it goes on when its node has a GPU for it",
        Why.RETURNING: (
            "Resources: resumed by {by}; its GPU memory, {size_bytes}, comes back from the host when {gpu}, "
            "held by {jobs}, has room"
        ),
        Why.RETURNED: "resumed by {by}; its GPU memory, {size_bytes}, comes back from the host to {gpu}",
        Why.RESUMED: "resumed by {by}",
        Why.BEGIN_REACHED: "the time has come before which it was not to start",
        Why.AFTER_MET: "it need not wait any more for job {last}, the last of those it was to start after",
        Why.ARRAY_TURN: "fewer elements of array {array} are running than may at once: {running}",
        Why.ARRAY_CUT: "{number:element} of it cancelled by {by}",
        Why.PREEMPTED: "stopped for {jobs}: {because}",
        Why.SHRUNK: "saves its state and goes on with {gpus:GPU} of the {had} it had",
        Why.GROWN: "saves its state and goes on with {gpus:GPU} instead of {had}",
        Why.MOVES_TYPE: "stopped to go on faster, on {gpu_type}",
        Why.PARKED: "parked at a step boundary for {jobs}: {because}; it goes on when its node has a GPU for it",
        Why.SPLIT: (
            "parked at a step boundary, for it and {jobs} are slower together on {gpu} than one after another would be "
            "(sum of speeds {sum:.2f}, without it {without:.2f}); it goes on there when that pays"
        ),
        Why.SPLIT_BY_STOPPING: (
            "stopped, for it and {jobs} are slower together on {gpu} than one after another would be "
            "(sum of speeds {sum:.2f}, without it {without:.2f}); it goes on where that pays"
        ),
        Why.COMES_BACK: "goes on where it was parked, on {gpu}",
        Why.WAITS_PARKED: "Resources: parked; it can go on only on {home}, whose GPUs are held by {jobs}",
        Why.NOT_PARKED: "goes on, for its GPU memory cannot be moved to the host: {problem}",
        Why.CHECKPOINT_TIMED_OUT: "asked by {signal} to save its state, it has not within {lead_s:g} s; {then}",
        Why.REFORMED_LATE: "its ranks go on as {ranks}, but it has {gpus:GPU} by now: it is restarted",
        Why.REFORMED: "its ranks go on as {gpus}, they were {had}; it was not restarted",
        Why.CHECKPOINT_FAILED: "it could not save its state: {problem}; {then}",
        Why.CHECKPOINT_DIED: "it ended while it saved its state ({cause}), and goes on from what it had saved before",
        Why.SAVED: "its state is saved",
        Why.RESIZE_FAILED: "its launch with {gpus:GPU} failed ({cause}); {then}",
        Why.RESIZED: "restarted on {asked} instead of {had}: {because}",
        Why.CORES_CHANGED: "has {cores:core} instead of {had}: {because}",
        Why.CORES_KEPT: "keeps its {cores:core}: {because}",
        Why.THROTTLED: (
            "held back to {may} for {jobs}, {slowed}: {node} uses {used:percent} of its memory "
            "bandwidth ({by}), this job {own:percent}"
        ),
        Why.LET_GO: "let go to {may}: {because}; {node} uses {used:percent} of its memory bandwidth ({by})",
        Why.OUTGROWN: (
            "stopped because the jobs on {gpu} were seen to need {need_bytes} of its {have_bytes}: {jobs} with it"
        ),
        Why.CHANGED_LANE: (
            "takes turns with {jobs} in lane {lane} of {gpu} from now on: side by side the jobs there were seen to "
            "need {need_bytes} of its {have_bytes}"
        ),
        Why.OUT_OF_TURNS: (
            "runs without turns, outside lane {lane} of {gpu}, shared with {jobs}, and counts as a lane of its own "
            "until it is back: {detail}"
        ),
        Why.KEPT_WAITING: "kept from its turns in lane {lane} of {gpu}, shared with {jobs}: {detail}",
        Why.TAKES_TURNS_AGAIN: "is back in the turns of lane {lane} of {gpu}, shared with {jobs}",
        Why.TURNS_INSTEAD: (
            "takes turns with {jobs} in lane {lane} of {gpu} from now on: side by side, job {job} went {measured:.2f} "
            "times slower than alone, predicted {predicted:.2f}"
        ),
        Why.PARKED_TOO_SLOW: (
            "gives its GPU up because job {job} went {measured:.2f} times slower on {gpu} than alone, predicted "
            "{predicted:.2f} while {jobs} shared it; it goes on with a GPU to itself"
        ),
        Why.MEASURED_ANEW: (
            "gives {gpu} up until job {job} has been measured there alone again: it goes {ratio:.1f} times as fast as "
            "it was known to go alone, so the cost of sharing with it is unknown"
        ),
        Why.TOO_SLOW_TOGETHER: (
            "stopped because job {job} went {measured:.2f} times slower on {gpu} than alone, predicted {predicted:.2f} "
            "while {jobs} shared it; it is run again with a GPU to itself"
        ),
        Why.SLOW_TOGETHER: (
            "goes {measured:.2f} times slower on {gpu} than alone, predicted {predicted:.2f}, beside {jobs}; "
            "none of them can take turns, be parked or be stopped"
        ),
        Why.LATE_ANSWERS: (
            "gives {gpu} up because beside it answers of job {job} take {p99_s:.3g} s (p99), above its objective of "
            "{latency_s:.3g} s; it goes on with a GPU to itself"
        ),
        Why.LATE_ALONE: (
            "an answer takes {took} alone on {gpu_type}, more than its objective of {latency_s:.3g} s, which no policy "
            "can keep; no other job is moved for it"
        ),
        Why.RETRY_ALONE: "ran out of memory beside {jobs}; it is tried once more with a GPU to itself",
        Why.REFUSED_BESIDE: (
            "got nothing of its GPU beside {jobs} on {node}: {detail}; it is tried once more with a GPU to itself, and "
            "it counts as no failure"
        ),
        Why.MPS_FAULT_OF_OTHER: (
            "ended by a fatal error of another job on the GPU they shared through MPS on {node}: {detail}; "
            "it counts as no failure"
        ),
        Why.MPS_FAULT_UNKNOWN: (
            "ended by a fatal error on the GPU that it shared through MPS on {node}: {detail}; it counts as no "
            "failure, and it is tried again with a GPU to itself"
        ),
        Why.RETRY: "attempt {attempt} ended ({cause}); {left:retry} left",
        Why.EXITED: "exited with code 0",
        Why.EXIT_CODE: "exited with code {code}",
        Why.KILLED_BY_SIGNAL: "killed by signal {signal}",
        Why.OUT_OF_MEMORY: "ran out of memory: {detail}",
        Why.MPS_FAULT: "a fatal error on the GPU that it shared through MPS: {detail}",
        Why.TIME_LIMIT: "reached its time limit of {limit_s:g} s",
        Why.TOLD_OF_LIMIT: "told to save its state: it reaches its time limit of {limit_s:g} s in {left_s:.0f} s",
        Why.LEFT_BEFORE_LIMIT: (
            "told of its time limit of {limit_s:g} s, it left {left_s:.0f} s before that ({cause})"
        ),
        Why.DEADLINE_REFUSED: "Deadline: {problem}",
        Why.CANCELLED: "cancelled by {by}",
        Why.LIMITS_CHANGED: "from now on {what}, by {by}",
        Why.REQUEUED: "taken off its GPUs by {by}; it waits anew, and goes on from what it has saved",
        Why.ARRAY_ENDED: ("{count:element}: {ok} succeeded, {failed} failed, {cancelled} cancelled"),
        Why.AFTER_NEVER: "DependencyNeverSatisfied: job {other} has ended as {state}, so {condition} never comes true",
        Why.STEPS_REACHED: "reached the {steps:step} it was asked for",
        Why.NOT_STARTED: "could not be started: {detail}",
        Why.SUPERVISOR_DIED: "its supervisor died, so the process was stopped",
        Why.END_NOT_KNOWN: (
            "it ended on {node} in a way that this scheduler does not know; the agent there, of another version, "
            "calls it {detail}"
        ),
        Why.RETRIES_USED_UP: "attempt {attempt} ended ({cause}); no retries left",
        Why.ABORTS_USED_UP: (
            "stopped for {jobs}, which took the cores it ran on, and not queued again: it had been stopped for "
            "others as often as the policy allows ({aborts})"
        ),
    }
)


def sentence_of(reason: Reason) -> str:
    """One sentence with numbers, as `colane why` prints it."""
    words = {name: _words(name, value) for name, value in reason.facts.items()}
    known = {"asked": _asked(reason.facts), "kept": _kept(reason.facts), "jobs": _name_jobs(reason.jobs)}
    speed = reason.facts.get("speed")  # of training beside a job that is held back
    known["slowed"] = "whose own speed is not known yet" if speed is None else f"slowed to {percent(float(speed))}"
    known["stays"] = STAYS[str(reason.facts.get("stays", "not-declared"))]
    return fill(SENTENCES[reason.why], {**words, **known})


def _words(name: str, value: str | float) -> str | float:
    """Sizes as people read them; everything else as it is."""
    return value if not name.endswith("_bytes") or isinstance(value, str) else bytes_in_words(value)


STAYS: Final = {
    "not-declared": "submit it with --checkpoint or --preemptible to borrow that",
    "serves": "a server is stopped for no other job",
    "saves-too-late": "it has failed too often at saving its state",
}
"""Why a job may not borrow GPUs, by a fact of its reason, and what can be done."""


def _asked(facts: Mapping[str, str | int | float]) -> str:
    """How many GPUs of which type, in words."""
    need, kind = facts.get("need", 1), facts.get("gpu_type", "any")
    each = f", {facts['on_each']} on each node," if "on_each" in facts else ""
    return count(need, "GPU" if kind == "any" else f"{kind} GPU") + each


def _kept(facts: Mapping[str, str | int | float]) -> str:
    """How many GPUs are guaranteed to groups, of how many."""
    if "there" not in facts:
        return "what is left is"
    return f"{facts['guaranteed']} of {count(facts['there'], 'GPU')} are"


JOBS_NAMED_MAX = 4  # a sentence names at most this many jobs, so that it stays one line


def _name_jobs(jobs: tuple[int, ...]) -> str:
    if not jobs:
        return "no other job"
    named = ", ".join(str(job) for job in jobs[:JOBS_NAMED_MAX])
    more = len(jobs) - JOBS_NAMED_MAX
    return f"{plural(len(jobs), 'job')} {named}" + (f" and {more} more" if more > 0 else "")


def fill(sentence: str, facts: Mapping[str, Any]) -> str:
    """Return a sentence with its facts: `{cores:core}` a number with its noun, `{part:percent}` a part as `60 %`.

    All else is as in `str.format`.

    Raises:
        KeyError: The sentence names a fact that is not there.
        ValueError, TypeError: A fact cannot be written as the sentence asks.
    """
    return _FILLER.vformat(sentence, (), facts) if _has_nouns(sentence) else sentence.format_map(facts)


@lru_cache(maxsize=1024)
def _has_nouns(sentence: str) -> bool:
    """Whether it has numbers with nouns; the others are filled by Python itself, which takes a tenth of the time."""
    return any(len(spec) > 1 and spec.isalpha() for _, _, spec, _ in Formatter().parse(sentence) if spec)


PERCENT: Final = "percent"


class _Filler(Formatter):
    """Takes a word as the noun of its number; Python's own format codes have one letter."""

    def format_field(self, value: object, format_spec: str) -> str:
        if format_spec == PERCENT:
            return percent(float(str(value)))
        if len(format_spec) > 1 and format_spec.isalpha():
            return count(value if isinstance(value, (int, float)) else str(value), format_spec)
        return str(super().format_field(value, format_spec))


_FILLER: Final = _Filler()
