"""The service's parts made and put together."""

from __future__ import annotations

from dataclasses import replace

import httpx

from colane.client.keep_alive import KeepAliveTransport
from colane.client.tls import trusted
from colane.policyfiles.guard import guarded
from colane.server.config import ServiceConfig
from colane.server.http.feed import Feed
from colane.server.nodes.liveness import Liveness
from colane.server.samples.keeper import SampleKeeper
from colane.server.service import Service
from colane.server.store.identity import begin_epoch
from colane.server.store.store import META, Store
from colane.server.store.unreadable import read_one
from colane.server.submitting.quotas import QuotaKeeper
from colane.server.writer.board import CLOCK_KEY
from colane.server.writer.clock import CLOCK_MARK, Clocks, ServiceClock
from colane.server.writer.driver import LiveDriver, Timing
from colane.server.writer.notifier import Notifier


def make_service(
    store: Store,
    config: ServiceConfig,
    *,
    clocks: Clocks | None = None,
    agents: httpx.AsyncBaseTransport | None = None,
) -> Service:
    """Read the store and put a service together; it acts once `run` runs.

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
    # Agents are on this machine or in this cluster: a proxy from the environment must not see them.
    transport = agents or KeepAliveTransport(trusted())
    client = httpx.AsyncClient(trust_env=False, transport=transport)
    feed = Feed(store)
    clocks = clocks or Clocks()
    clock = ServiceClock(clocks)
    liveness = Liveness(config.node_timeout_s, clocks.steady, config.tick_s)
    timing = Timing(tick_s=config.tick_s, clock=clock)
    decider = guarded(config.policy, config.policy_budget_s)
    driver = LiveDriver(
        store,
        decider,
        timing,
        liveness,
        feed,
        Notifier(transport),
        config=replace(config.core, limits=config.quotas),
        keeper=QuotaKeeper(config.quotas),
    )
    driver.load()
    known = read_one(store, META, CLOCK_KEY, CLOCK_MARK.read)
    if driver.read_model.jobs and known is not None:  # what they have lasted was counted by it
        clock.resume(known)
    history = begin_epoch(store, clock.now())
    driver.epoch = history.current.number
    samples = SampleKeeper.at(config.samples)
    return Service(store, config, client, driver, feed, liveness, clock.now(), history, samples)
