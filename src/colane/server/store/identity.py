"""Which cluster a store is of: agents must not take jobs of another one, of the same ids, for those they know."""

from __future__ import annotations

import uuid
from typing import Final

from colane.server.store.store import META, Put, Store, Transaction

CLUSTER_KEY: Final = "cluster"
"""In `META`: an id made with the store, and anew when an older copy of it was put back."""


def cluster_id(store: Store) -> str:
    """Return the cluster's identity, made when the store is new."""
    known = store.get(META, CLUSTER_KEY)
    return new_cluster_id(store) if known is None else str(known["id"])


def new_cluster_id(store: Store) -> str:
    """Be another cluster from here on: ids of jobs may be given a second time."""
    made = uuid.uuid4().hex
    store.commit(Transaction([Put(META, CLUSTER_KEY, {"id": made})]))
    return made
