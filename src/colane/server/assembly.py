"""The service's parts made and put together."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

import httpx

from colane.client.keep_alive import KeepAliveTransport
from colane.client.tls import trusted
from colane.policyfiles.guard import guarded
from colane.server.board.clock import CLOCK_MARK, Clocks, ServiceClock
from colane.server.board.read_model import CLOCK_KEY
from colane.server.config import ServiceConfig
from colane.server.handlers.standby import Standby
from colane.server.nodes.liveness import Liveness
from colane.server.samples.keeper import SampleKeeper
from colane.server.service import Service
from colane.server.store.identity import Epoch, History, Leader, begin_epoch, read_history
from colane.server.store.store import META, ConflictError, Store
from colane.server.store.unreadable import read_one
from colane.server.writer.driver import LiveDriver, Timing
from colane.server.writer.feed import Feed
from colane.server.writer.notifier import Notifier
from colane.server.writer.quotas import QuotaKeeper


def make_service(
    store: Store, config: ServiceConfig, *, clocks: Clocks | None = None, agents: httpx.AsyncBaseTransport | None = None
) -> Service:
    """Read the store and put a service together that leads; it acts once `run` runs.

    Args:
        store: Owned by the caller, which closes it after `run`.
        config: Settings.
        clocks: Where time comes from, the machine by default.
        agents: How to reach agents, the network by default.

    Raises:
        StoreError: The store cannot be read.
        UnknownPolicyError: No policy of that name.
        SupersededError: Another scheduler has started on the store at the same moment.
    """
    made = _assembled(store, config, clocks or Clocks(), agents)
    driver, clock, lead = made.driver, made.driver.timing.clock, made.driver.lead
    driver.load()
    known = read_one(store, META, CLOCK_KEY, CLOCK_MARK.read)
    if driver.read_model.jobs and known is not None:  # what they have lasted was counted by it
        clock.resume(known)
    own, asked_s, read = own_leader(config), lead.now_s(), lead.version
    history, version = _drawn(store, clock.now(), own, config.lease_max_s)
    number = history.current.number
    lead.begin(number, version, asked_s, own and own._replace(epoch=number))
    if version != read + (own is not None):  # a scheduler of before has written meanwhile; from now on none can
        driver.load()
    made.history, made.started_s = history, clock.now()
    made.liveness.begin(
        made.grants.held_longer_s + (0.0 if own is None else own.lease_s)
    )  # a leader may answer for so long
    if own is not None:
        made.leading.hear_first()
    return made


DRAWS_MAX: Final = 10


def _drawn(store: Store, now_s: float, own: Leader | None, lease_s: float) -> tuple[History, int]:
    """Draw an epoch; the store's version is the other thing that is known from then on.

    A standby has to see that this scheduler leads, so the store's version grows by it; a leader that is still there
    writes meanwhile.
    """
    if own is None:
        return begin_epoch(store, now_s, lease_s=lease_s), store.version()
    for _ in range(DRAWS_MAX - 1):
        version = store.version()
        with suppress(ConflictError):
            return begin_epoch(store, now_s, own, version, lease_s), version + 1
    version = store.version()
    return begin_epoch(store, now_s, own, version, lease_s), version + 1


def make_standby(
    store: Store, config: ServiceConfig, *, clocks: Clocks | None = None, agents: httpx.AsyncBaseTransport | None = None
) -> tuple[Service, Standby]:
    """Put a service together that shows what the store has until its standby leads; see `make_service`."""
    made = _assembled(store, config, clocks or Clocks(), agents)
    own = own_leader(config)
    assert own is not None  # noqa: S101 - a standby has a lease
    made.leads = False
    made.history = read_history(store) or NO_HISTORY
    return made, Standby(made.leading, own)


NO_HISTORY: Final = History("", {}, Epoch(0, "", 0, 0.0))


def own_leader(config: ServiceConfig) -> Leader | None:
    """What is written of this scheduler once it leads; None of a store in a file."""
    return None if config.leader_lease_s is None else Leader(0, config.own_url, config.leader_lease_s)


def _assembled(store: Store, config: ServiceConfig, clocks: Clocks, agents: httpx.AsyncBaseTransport | None) -> Service:
    # Agents are on this machine or in this cluster: a proxy from the environment must not see them.
    transport = agents or KeepAliveTransport(trusted())
    client = httpx.AsyncClient(trust_env=False, transport=transport)
    feed = Feed(store)
    clock = ServiceClock(clocks)
    liveness = Liveness(config.node_timeout_s, clocks.steady, config.tick_s)
    timing = Timing(tick_s=config.tick_s, clock=clock, lead_clock=clocks.since_boot)
    decider = guarded(config.policy, config.policy_budget_s, config.max_wait_s)
    driver = LiveDriver(
        store,
        decider,
        timing,
        liveness,
        feed,
        Notifier(transport),
        config=replace(config.core, limits=config.quotas),
        keeper=QuotaKeeper(config.quotas),
        lease_s=config.leader_lease_s or None,
    )
    samples = SampleKeeper.at(config.samples)
    made = Service(store, config, client, driver, feed, liveness, clock.now(), NO_HISTORY, samples)
    made.leading.behind.clock = clocks.steady
    return made
