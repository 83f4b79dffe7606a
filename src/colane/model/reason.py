"""Why a job waits, starts, stops or ends: an enum with numbers.

Every decision and every wait carries a `Reason`. `docs/reference/reasons.md` has a heading for each code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, final


class Why(StrEnum):
    """Codes of reasons."""

    # waiting
    SUBMITTED = "submitted"
    NO_NODE = "no-node"
    NO_ROOM_ON_NODES = "no-room-on-nodes"
    NODES_RESERVED = "nodes-reserved"
    NO_FREE_GPU = "no-free-gpu"
    NO_FREE_WHOLE_GPU = "no-free-whole-gpu"
    NO_FREE_GANG = "no-free-gang"
    NO_ROOM_FOR_GANG = "no-room-for-gang"
    NO_MEMORY = "no-memory"
    NO_CORES = "no-cores"
    NO_HOST_MEMORY = "no-host-memory"
    NO_HOST_BANDWIDTH = "no-host-bandwidth"
    NO_ROOM_ON_HOST = "no-room-on-host"
    BORROWS_NOTHING = "borrows-nothing"
    BEHIND = "behind"
    NOT_WORTH_SHARING = "not-worth-sharing"
    NO_EVIDENCE = "no-evidence"
    UNKNOWN_ALONE_FIRST = "unknown-alone-first"
    BESIDE_SERVERS = "beside-servers"
    USED_BY_OTHERS = "used-by-others"
    GROUP_INCOMPLETE = "group-incomplete"
    RESERVED = "reserved"
    WOULD_DELAY = "would-delay"
    DEADLINE_SEATS = "deadline-seats"
    GUARANTEED_TO_OTHERS = "guaranteed-to-others"
    PREEMPTING = "preempting"
    SHRUNK = "shrunk"
    GROWN = "grown"
    POSTPONED = "postponed"
    WOULD_HARM = "would-harm"
    NO_LANE = "no-lane"
    NO_GAIN = "no-gain"
    TOO_SLOW_TO_ANSWER = "too-slow-to-answer"
    HELD = "held"
    NODES_DRAINED = "nodes-drained"
    LIMIT = "limit"
    BUDGET = "budget"
    BEGINS_LATER = "begins-later"
    AFTER = "after"
    ARRAY = "array"
    ARRAY_FULL = "array-full"
    ARRAY_LIMIT = "array-limit"
    ARRAY_NEXT = "array-next"
    POLICY_FAILED = "policy-failed"
    # starting
    FREE_GPU = "free-gpu"
    FREE_CORES = "free-cores"
    KEEPS_DEADLINE = "keeps-deadline"
    GUARANTEED = "guaranteed"
    SHARES = "shares"
    SHARES_BEST = "shares-best"
    TRIES_SHARING = "tries-sharing"
    MOVED = "moved"
    CONSOLIDATED = "consolidated"
    VACATED = "vacated"
    BEST_FIT = "best-fit"
    MEASURED_TOGETHER = "measured-together"
    BACKFILL = "backfill"
    LEAST_SHARE = "least-share"
    BEST_UTILITY = "best-utility"
    NEW_LANE = "new-lane"
    JOINS_LANE = "joins-lane"
    GROWS_LANE = "grows-lane"
    # moving and ending
    LAUNCHED = "launched"
    STEPPING = "stepping"
    PROTECTION_OVER = "protection-over"
    TAKEN_TO_RUN = "taken-to-run"
    NODE_LOST = "node-lost"
    WENT_ON = "went-on"
    NOT_GONE_ON = "not-gone-on"
    GPU_LOST = "gpu-lost"
    NODE_FAULT = "node-fault"
    STOPPED_WITH_AGENT = "stopped-with-agent"
    DRAINED = "drained"
    DRAIN_OVER = "drain-over"
    SENT_BACK = "sent-back"
    SUSPENDED = "suspended"
    SUSPENDED_TO_HOST = "suspended-to-host"
    MOVED_TO_HOST = "moved-to-host"
    DEVICE_GIVEN_UP = "device-given-up"
    SUSPENDED_OFF_GPU = "suspended-off-gpu"
    NOT_MOVED = "not-moved"
    IDLE_PARKED = "idle-parked"
    IDLE_OFF_GPU = "idle-off-gpu"
    STEPS_AGAIN = "steps-again"
    RETURNING = "returning"
    RETURNED = "returned"
    RESUMED = "resumed"
    BEGIN_REACHED = "begin-reached"
    AFTER_MET = "after-met"
    ARRAY_TURN = "array-turn"
    ARRAY_CUT = "array-cut"
    REQUEUED = "requeued"
    LIMITS_CHANGED = "limits-changed"
    PREEMPTED = "preempted"
    MOVES_TYPE = "moves-type"
    PARKED = "parked"
    SPLIT = "split"
    SPLIT_BY_STOPPING = "split-by-stopping"
    NOT_PARKED = "not-parked"
    COMES_BACK = "comes-back"
    WAITS_PARKED = "waits-parked"
    CHECKPOINT_TIMED_OUT = "checkpoint-timed-out"
    CHECKPOINT_FAILED = "checkpoint-failed"
    REFORMED = "reformed"
    REFORMED_LATE = "reformed-late"
    CHECKPOINT_DIED = "checkpoint-died"
    SAVED = "saved"
    RESIZE_FAILED = "resize-failed"
    RESIZED = "resized"
    CORES_CHANGED = "cores-changed"
    CORES_KEPT = "cores-kept"
    THROTTLED = "throttled"
    LET_GO = "let-go"
    OUTGROWN = "outgrown"
    CHANGED_LANE = "changed-lane"
    OUT_OF_TURNS = "out-of-turns"
    KEPT_WAITING = "kept-waiting"
    TAKES_TURNS_AGAIN = "takes-turns-again"
    TURNS_INSTEAD = "turns-instead"
    PARKED_TOO_SLOW = "parked-too-slow"
    MEASURED_ANEW = "measured-anew"
    TOO_SLOW_TOGETHER = "too-slow-together"
    SLOW_TOGETHER = "slow-together"
    LATE_ANSWERS = "late-answers"
    LATE_ALONE = "late-alone"
    RETRY_ALONE = "retry-alone"
    REFUSED_BESIDE = "refused-beside"
    MPS_FAULT_OF_OTHER = "mps-fault-of-other"
    MPS_FAULT_UNKNOWN = "mps-fault-unknown"
    RETRY = "retry"
    EXITED = "exited"
    EXIT_CODE = "exit-code"
    KILLED_BY_SIGNAL = "killed-by-signal"
    OUT_OF_MEMORY = "out-of-memory"
    MPS_FAULT = "mps-fault"
    TIME_LIMIT = "time-limit"
    TOLD_OF_LIMIT = "told-of-limit"
    LEFT_BEFORE_LIMIT = "left-before-limit"
    CANCELLED = "cancelled"
    DEADLINE_REFUSED = "deadline-refused"
    AFTER_NEVER = "after-never"
    ARRAY_ENDED = "array-ended"
    STEPS_REACHED = "steps-reached"
    NOT_STARTED = "not-started"
    SUPERVISOR_DIED = "supervisor-died"
    END_NOT_KNOWN = "end-not-known"
    RETRIES_USED_UP = "retries-used-up"
    ABORTS_USED_UP = "aborts-used-up"


@final
@dataclass(unsafe_hash=True, slots=True)
class Reason:
    """A code with its numbers and the jobs in the way; `colane.model.sentences` puts it in words."""

    why: Final[Why]  # the code
    # values for the sentence's fields, JSON scalars only
    facts: Final[Mapping[str, str | int | float]] = field(default_factory=dict)
    jobs: Final[tuple[int, ...]] = ()  # ids of the jobs in the way, or of co-runners


NODES_NAMED_MAX: Final = 4  # a sentence names at most this many nodes, so that it stays one line


def nodes_drained(names: list[str]) -> Reason:
    """That all nodes that could run a job are drained."""
    more = len(names) - NODES_NAMED_MAX
    return Reason(
        Why.NODES_DRAINED, {"nodes": ", ".join(names[:NODES_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")}
    )
