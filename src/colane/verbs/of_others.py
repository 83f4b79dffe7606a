"""The verbs on nodes, tokens and what is kept: of each its route, who may, and its button."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

CLOSING: Final = "}"


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb."""

    name: str  # it; of its route, and of its command where it has one
    path: str  # of its route, with the name of what it is done to in braces
    does: str  # what the route does, as its reference says
    method: str = "POST"  # of the request
    in_query: frozenset[str] = frozenset()  # names of arguments that stand in the query; all others are the body's
    operators: str = ""  # what operators alone may, in the words of the refusal; empty where it depends on whose it is
    label: str = ""  # on its button; empty where the page has none

    def path_of(self, of: object) -> str:
        """Return the path for what is named."""
        before, _, rest = self.path.partition("{")
        return f"{before}{of}{rest.partition(CLOSING)[2]}" if rest else self.path


DRAIN: Final = Verb(
    "drain",
    "/node/{name}/drain",
    """Let a node take no new jobs, and its jobs go elsewhere or finish; those still there at the deadline are stopped.

The deadline is in seconds from now. Asked again, the last word counts.""",
    operators="drain nodes",
    label="Drain",
)
UNDRAIN: Final = Verb(
    "undrain",
    "/node/{name}/drain",
    "Let a node take jobs again; notice that its agent has of its own stays.",
    method="DELETE",
    operators="undrain nodes",
    label="Undrain",
)
RESERVE: Final = Verb(
    "reserve",
    "/reservations",
    """Keep nodes for jobs of some users for a time: jobs of others that may not have ended before do not start there.

Refused where a job of others runs there that may not have ended, but with `ignore_jobs`.""",
    operators="reserve nodes",
)
UNRESERVE: Final = Verb(
    "unreserve",
    "/reservation/{name}",
    "Keep nodes no longer.",
    method="DELETE",
    operators="end reservations",
)
REMOVE_NODE: Final = Verb(
    "remove_node",
    "/node/{name}",
    "Forget a node that never comes back; its jobs are queued again. Refused while its agent reports and has jobs.",
    method="DELETE",
    in_query=frozenset({"gone"}),
    operators="forget nodes",
)
REMOVE_NODES: Final = Verb(
    "remove_nodes",
    "/nodes",
    "Forget all nodes; refused while jobs are assigned.",
    method="DELETE",
    operators="forget nodes",
)
MAKE_TOKEN: Final = Verb(
    "make_token", "/tokens", "Let a token count from now on: a user's own, an operator's for any caller."
)
REVOKE_TOKEN: Final = Verb("revoke_token", "/token/{token}", "Let a token count no longer.", method="DELETE")
DECLARE_PROFILE: Final = Verb(
    "declare_profile",
    "/profiles",
    "Declare what is known of a family; measured values stay above declared ones.",
    method="PUT",
    operators="declare profiles",
)
FORGET_PROFILES: Final = Verb(
    "forget_profiles",
    "/profiles",
    "Forget all that is known of a family: for operators, and for a user from whose jobs alone it was learnt.",
    method="DELETE",
    in_query=frozenset({"family"}),
)
REMOVE_FINISHED: Final = Verb(
    "remove_finished",
    "/finished_jobs",
    "Forget all finished jobs; profiles and measurements stay.",
    method="DELETE",
    operators="forget finished jobs",
)
HAND_OVER: Final = Verb(
    "hand_over",
    "/hand_over",
    "Let this scheduler end for a standby to lead at once; what is under way is answered first.",
    operators="hand over",
)
RELOAD: Final = Verb(
    "reload",
    "/config/reload",
    """Read the files of limits and of channels again; which of the two now says something else.

A file that says what cannot be is refused, and all stays as it was.""",
    operators="have settings read again",
)
ADOPT_STORE: Final = Verb(
    "store_adopt",
    "/store/adopt",
    "Go on from a store that lacks so many changes; jobs of nodes that have heard of more events are ended there.",
    operators="adopt the store",
)
OTHER_VERBS: Final[Mapping[str, Verb]] = {
    row.name: row
    for row in (
        DRAIN,
        UNDRAIN,
        RESERVE,
        UNRESERVE,
        REMOVE_NODE,
        REMOVE_NODES,
        MAKE_TOKEN,
        REVOKE_TOKEN,
        DECLARE_PROFILE,
        FORGET_PROFILES,
        REMOVE_FINISHED,
        HAND_OVER,
        RELOAD,
        ADOPT_STORE,
    )
}
