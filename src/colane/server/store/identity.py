"""Which cluster a store is of, and its history: agents must not take jobs of another one, of the same ids, for theirs.

Each start of a scheduler on a store draws an epoch: the next number, a random id, and how many events there had been.
Together the epochs say what the store knows. An agent remembers the newest epoch it was told of and how many events it
heard of in it; a store that does not have that epoch, or that began the next one with fewer events, is an older copy
that was put back: what the agent has under its jobs' ids is not of these jobs. That cannot be undone by as much
happening on the copy, as it draws other ids, and beginnings do not change.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from colane.api.forms import record
from colane.server.store.store import (
    COPYING_KEY,
    EPOCHS,
    META,
    Delete,
    Document,
    Put,
    Store,
    StoreError,
    StoreWriter,
    Transaction,
    job_key,
)
from colane.server.store.unreadable import judge, keyed, read_one

CLUSTER_KEY: Final = "cluster"
"""In `META`: an id made with the store, and anew when a copy of it was put back by command; and those of before."""
FORMER_MAX: Final = 100  # of so many copies that were put back the cluster's ids of before are kept

LEADER_KEY: Final = "leader"  # in `META` of a store over the network: which scheduler leads, where, and with what lease

GRANTED_KEY: Final = "granted"
"""In `META`: the longest lease that any agent may hold, in seconds; it is there before an agent is told of it."""
GRANTED_BEFORE_S: Final = 60.0  # of a store whose schedulers have not written it: their default

EPOCHS_MAX: Final = 10_000  # so many are kept: an agent that was away for more starts than that begins anew


class Epoch(NamedTuple):
    """One start of a scheduler on a store."""

    number: int  # ascends from 1
    id: str  # random, so that two copies of a store never draw the same one
    first_event: int  # how many events there had been before it
    at_s: float  # when it was drawn
    first_version: int = 0  # the store's version before it; 0 of the first one, of a copy's, and where it was not kept


EPOCH: Final = record(Epoch)


class Leader(NamedTuple):
    """What the scheduler that leads writes of itself."""

    epoch: int  # number of its start
    url: str  # where it is reached
    lease_s: float  # it leads for so long after each commit; 0 is for ever
    released: bool = False  # it has ended, or handed over: another may lead at once


LEADER: Final = record(Leader)


@dataclass(frozen=True, slots=True)
class History:
    """What a store knows of itself since this start."""

    cluster_id: str  # of the cluster whose records these are
    epochs: Mapping[int, Epoch]  # by number, ascending
    current: Epoch  # the one of this start
    granted_s: float = 0.0  # the longest lease that an agent may hold of a scheduler before
    former: tuple[str, ...] = ()  # ids that it had before copies of it were put back, the newest last

    def has(self, number: int, id_: str, events: int, events_now: int) -> bool:
        """Whether all that was told in an epoch until so many events is of this history.

        Args:
            number: The epoch's number.
            id_: Its id.
            events: How many events there had been when it was last told of.
            events_now: How many there have been until now.
        """
        known = self.epochs.get(number)
        if known is None or known.id != id_:
            return False
        following = self.epochs.get(number + 1)
        return events <= (events_now if following is None else following.first_event)

    def lacks(self, number: int, id_: str, events: int, events_now: int) -> int:
        """Return how many events an agent has heard of that are not of this history, where `has` says no; at least 1.

        Histories part where one has drawn an epoch that the other has not.
        """
        known = self.epochs.get(number)
        if known is None or known.id != id_:
            parted = (known or self.current).first_event
        else:
            following = self.epochs.get(number + 1)
            parted = events_now if following is None else following.first_event
        return max(1, events - parted)

    def lacks_changes(self, number: int, id_: str, version: int, version_now: int) -> int:
        """Return how many transactions an agent has heard of that are not of this history, as far as can be told.

        Versions of a copy are counted anew, so that of what was heard before it nothing is known by them.

        Args:
            number: The epoch's number.
            id_: Its id.
            version: The store's when it was last told of.
            version_now: The store's until now.
        """
        known, following = self.epochs.get(number), self.epochs.get(number + 1)
        if known is None or known.id != id_:
            parted = (known or self.current).first_version
        else:
            parted = version_now if following is None else following.first_version
        return max(0, version - parted) if parted else 0


def read_history(store: Store) -> History | None:
    """Return what a store knows of itself as of its newest start; None where there was none.

    Raises StoreError: it cannot be read.
    """
    drawn = [epoch for _, epoch in keyed(store, EPOCHS, store.read_all(EPOCHS), EPOCH.read)]
    cluster = read_one(store, META, CLUSTER_KEY, _cluster)
    if not drawn or cluster is None:
        return None
    return History(cluster[0], {epoch.number: epoch for epoch in drawn}, drawn[-1], former=cluster[1])


def _cluster(body: Document) -> tuple[str, tuple[str, ...]]:
    return str(body["id"]), tuple(map(str, body.get("former", ())))


def put_back(store: Store) -> None:
    """Make the cluster of a store another one, as a copy was put back by command: job ids will be given twice.

    Raises StoreError: it cannot be read or written.
    """
    cluster = read_one(store, META, CLUSTER_KEY, _cluster)
    if cluster is not None:
        former = [*cluster[1], cluster[0]][-FORMER_MAX:]
        store.commit(Transaction([Put(META, CLUSTER_KEY, {"id": new_cluster_id(), "former": former})]))


def granted(lease_s: float) -> Put:
    """What says that no agent holds a longer lease."""
    return Put(META, GRANTED_KEY, {"lease_s": lease_s})


def begin_epoch(
    store: Store, at_s: float, leader: Leader | None = None, version: int | None = None, lease_s: float = 0.0
) -> History:
    """Draw the epoch of a start, and the cluster's id where the store is new; both are durable.

    Args:
        store: That of the cluster.
        at_s: The time.
        leader: What is written of the scheduler that starts; its epoch is the one that is drawn.
        version: The store's, which has to be as it is, and grows by one; None where it does not matter.
        lease_s: What agents will be granted.

    Raises:
        StoreError: The store cannot be read or written.
        ConflictError: It is at another version, or has had other events.
        SupersededError: Another scheduler has drawn one meanwhile.
    """
    if store.get(META, COPYING_KEY) is not None:
        raise StoreError("a copy into this store was broken off: empty it, and copy again (colane store copy)")
    drawn = [epoch for _, epoch in keyed(store, EPOCHS, store.read_all(EPOCHS), EPOCH.read)]
    store.note_missing()
    judge(store)
    last, events = drawn[-1].number if drawn else 0, store.last_audit_number()
    current = Epoch(last + 1, uuid.uuid4().hex, events, at_s, store.version() if version is None else version)
    puts = [Put(EPOCHS, job_key(current.number), EPOCH.write(current))]
    cluster_id, former = read_one(store, META, CLUSTER_KEY, _cluster) or ("", ())
    if not cluster_id:
        cluster_id = new_cluster_id()
        puts.append(Put(META, CLUSTER_KEY, {"id": cluster_id}))
    if leader is not None:
        puts.append(Put(META, LEADER_KEY, LEADER.write(leader._replace(epoch=current.number))))
    granted_s = read_one(store, META, GRANTED_KEY, lambda body: float(body["lease_s"]))
    before_s = granted_s if granted_s is not None else GRANTED_BEFORE_S if drawn else 0.0
    if lease_s and granted_s != max(before_s, lease_s):
        puts.append(granted(max(before_s, lease_s)))
    old = drawn[: max(0, len(drawn) + 1 - EPOCHS_MAX)]
    writer = StoreWriter(last, events, version)
    store.commit(Transaction(puts, [Delete(EPOCHS, job_key(epoch.number)) for epoch in old]), writer)
    epochs = {epoch.number: epoch for epoch in [*drawn[len(old) :], current]}
    return History(cluster_id, epochs, current, before_s, former)


def new_cluster_id() -> str:
    """Draw the id of a cluster, or of what an agent of another history is told to be of."""
    return uuid.uuid4().hex
