"""What happens while jobs run: nodes are drained, have notice of their end, are lost, back, reserved; limits change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from colane.model.hardware import KeptFor
from colane.model.limits import Quotas
from colane.model.nearest import did_you_mean
from colane.model.quantities import parse_duration_s
from colane.settings.input_file import InputFileError

KEYS: Final = ("at", "node", "event", "within", "reason", "name", "users", "from", "to", "limits", "used")
OWNER: Final = "the cluster's description"


class NodeEventKind(StrEnum):
    """What happens; the values are those of a cluster file."""

    DRAIN = "drain"
    UNDRAIN = "undrain"
    NOTICE = "notice"
    """Its agent hears when it goes, as of a spot instance: a drain with a deadline, at which it is lost."""
    LOST = "lost"
    BACK = "back"
    RESERVE = "reserve"  # it is kept for jobs of some users for a time (`colane reserve`)
    UNRESERVE = "unreserve"  # it is not, any more, before that time is over (`colane reserve --cancel`)
    LIMITS = "limits"  # of users and groups, from then on; of no node


OF_KIND: Final[Mapping[NodeEventKind, tuple[str, ...]]] = {
    NodeEventKind.RESERVE: ("name", "users", "from", "to"),
    NodeEventKind.UNRESERVE: ("name",),
    NodeEventKind.LIMITS: ("limits", "used"),
}
"""Keys that others have not."""


ALLOWED: Final[Mapping[NodeEventKind, tuple[str, ...]]] = {
    NodeEventKind.DRAIN: ("there",),
    NodeEventKind.UNDRAIN: ("drained",),
    NodeEventKind.NOTICE: ("there", "drained"),
    NodeEventKind.LOST: ("there", "drained", "about to go"),
    NodeEventKind.BACK: ("gone",),
}
"""How a node may be before each event."""

AFTER: Final[Mapping[NodeEventKind, str]] = {
    NodeEventKind.DRAIN: "drained",
    NodeEventKind.UNDRAIN: "there",
    NodeEventKind.NOTICE: "about to go",
    NodeEventKind.LOST: "gone",
    NodeEventKind.BACK: "there",
}
"""How it is after it. One that is back takes jobs, whatever drained it before."""


class NodeEvent(NamedTuple):
    """One thing that happens to one node."""

    at_s: float  # when, on the clock of the trace
    node: str  # its name
    kind: NodeEventKind  # what
    # seconds until jobs that are still there are stopped (drain) or the node goes (notice); None: never
    within_s: float | None = None
    reason: str = ""  # in its owner's words
    kept: KeptFor | None = None  # the reservation that it is of, on the clock of the trace
    limits: Quotas | None = None  # which hold from then on
    # GPU-hours of each user in the month by then, in the place of those counted; None: as counted
    used: Mapping[str, float] | None = None


def parse(path: Path, raw: object, groups: Mapping[str, Sequence[str]]) -> tuple[NodeEvent, ...]:
    """Events of a cluster file, by time.

    An event of a group happens to each of its nodes. Raises InputFileError: an entry is not right, or cannot happen to
    a node as it is then.
    """
    if not isinstance(raw, list):
        raise InputFileError(path, f"expected a list of what happens to nodes, got {raw!r}", column="events")
    found = [event for number, entry in enumerate(raw) for event in _events(path, f"events[{number}]", entry, groups)]
    found.sort(key=lambda event: event.at_s)
    _check_order(path, found)
    return tuple(found)


def _events(path: Path, where: str, raw: object, groups: Mapping[str, Sequence[str]]) -> list[NodeEvent]:
    if not isinstance(raw, dict):
        raise InputFileError(path, f"expected keys and values, got {raw!r}", column=where)
    for key in raw:
        if key not in KEYS:
            hint = did_you_mean(str(key), KEYS) or f"; known: {', '.join(KEYS)}"
            raise InputFileError(path, f"unknown key{hint}", column=f"{where}.{key}")
    kind = _kind(path, where, raw)
    within_s = _seconds(path, where, raw, "within") if "within" in raw else None
    if within_s is None and kind is NodeEventKind.NOTICE:
        raise InputFileError(path, "is missing: a notice says when the node goes, such as 2m", column=f"{where}.within")
    if within_s is not None and kind not in {NodeEventKind.NOTICE, NodeEventKind.DRAIN}:
        raise InputFileError(path, f"belongs to drain and notice, not to {kind}", column=f"{where}.within")
    own = OF_KIND.get(kind, ())
    for of, key in [(of, key) for of, keys in OF_KIND.items() for key in keys if key in raw and key not in own]:
        raise InputFileError(path, f"belongs to {of}, not to {kind}", column=f"{where}.{key}")
    at_s, reason = _seconds(path, where, raw, "at"), str(raw.get("reason", ""))
    if kind is NodeEventKind.LIMITS:
        limits, used = _limits(path, where, raw)
        return [NodeEvent(at_s, "", kind, limits=limits, used=used)]
    kept = _kept(path, where, raw, at_s) if kind is NodeEventKind.RESERVE else None
    if kind is NodeEventKind.UNRESERVE:
        kept = KeptFor(str(raw.get("name", "")), (), at_s, at_s, OWNER)
    return [NodeEvent(at_s, node, kind, within_s, reason, kept) for node in _nodes(path, where, raw, groups)]


def _kept(path: Path, where: str, raw: Mapping[str, Any], at_s: float) -> KeptFor:
    users, from_s, to_s = raw.get("users"), *(_seconds(path, where, raw, key) for key in ("from", "to"))
    if not isinstance(users, list) or not users:
        raise InputFileError(path, "must be names of users, as [ann, bob]", column=f"{where}.users")
    if to_s <= max(from_s, at_s):
        raise InputFileError(path, f"must be later than from and at, got {raw['to']}", column=f"{where}.to")
    return KeptFor(str(raw.get("name", where)), tuple(map(str, users)), from_s, to_s, OWNER)


def _limits(path: Path, where: str, raw: Mapping[str, Any]) -> tuple[Quotas, Mapping[str, float] | None]:
    from colane.server.writer.limits import LimitsError, quotas_of  # noqa: PLC0415 - few files have any

    tables, used = raw.get("limits"), raw.get("used")
    if not isinstance(tables, dict):
        raise InputFileError(path, "must be tables, as {user: {ann: {gpus: 4}}}", column=f"{where}.limits")
    if used is not None and not (
        isinstance(used, dict) and all(type(h) in {int, float} and h >= 0 for h in used.values())
    ):
        raise InputFileError(path, "must be GPU-hours by user, as {ann: 12.5}", column=f"{where}.used")
    try:
        return of_trace(quotas_of(f"{where}.limits", tables)), used
    except (LimitsError, ValueError) as error:
        raise InputFileError(path, str(error)) from error


def of_trace(limits: Quotas) -> Quotas:
    """Return limits that a trace may be under. Raises ValueError: groups of this machine, whose users are not its."""
    for name in limits.of_system:
        raise ValueError(f'group.{name}: name the users of the trace in it: members = ["ann"]')
    return limits


def _kind(path: Path, where: str, raw: Mapping[str, Any]) -> NodeEventKind:
    known = [kind.value for kind in NodeEventKind]
    said = str(raw.get("event", ""))
    if said not in known:
        message = f"must be one of {', '.join(known)}, got {said!r}{did_you_mean(said, known)}"
        raise InputFileError(path, message, column=f"{where}.event")
    return NodeEventKind(said)


def _seconds(path: Path, where: str, raw: Mapping[str, Any], key: str) -> float:
    if key not in raw:
        raise InputFileError(path, "is missing: when it happens, such as 90m", column=f"{where}.{key}")
    try:
        return parse_duration_s(raw[key])
    except ValueError as error:
        raise InputFileError(path, str(error), column=f"{where}.{key}") from error


def _nodes(path: Path, where: str, raw: Mapping[str, Any], groups: Mapping[str, Sequence[str]]) -> Sequence[str]:
    name, nodes = str(raw.get("node", "")), [node for group in groups.values() for node in group]
    if name in nodes:
        return (name,)
    if name in groups:
        return groups[name]
    known = [*groups, *nodes]
    hint = did_you_mean(name, known) or f"; known: {', '.join(known[:8])}{', ...' if len(known) > 8 else ''}"
    raise InputFileError(path, f"no node or group {name!r}{hint}", column=f"{where}.node")


def _check_order(path: Path, events: Sequence[NodeEvent]) -> None:
    """No node is lost twice, or back before it was gone."""
    state: dict[str, tuple[str, float]] = {}
    kept: dict[str, list[KeptFor]] = {}
    for event in events:
        if event.limits is not None:
            continue
        if (made := event.kept) is not None:
            known = kept.setdefault(event.node, [])
            if event.kind is NodeEventKind.UNRESERVE:
                left = [one for one in known if one.name != made.name]
                if len(left) == len(known):
                    message = f"unreserve at {event.at_s:g} s: {event.node} has no reservation {made.name!r} then"
                    raise InputFileError(path, message, column="events")
                kept[event.node] = left
                continue
            for one in known:
                if one.from_s < made.to_s and made.from_s < one.to_s:
                    message = f"{event.node} is kept for {one.told} from {one.from_s:g} to {one.to_s:g} s already"
                    raise InputFileError(path, message, column="events")
            known.append(made)
            continue
        is_now, goes_s = state.get(event.node, ("there", 0.0))
        if is_now == "about to go" and event.at_s >= goes_s:
            is_now = "gone"
        if is_now not in ALLOWED[event.kind]:
            message = f"{event.kind} at {event.at_s:g} s cannot be: {event.node} is {is_now} then"
            raise InputFileError(path, message, column="events")
        state[event.node] = (AFTER[event.kind], event.at_s + (event.within_s or 0.0))
