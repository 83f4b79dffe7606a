"""Which jobs are on which devices, found in one pass: there are thousands, and screens and scrapes ask often."""

from __future__ import annotations

from typing import NamedTuple

from colane.model.job import Job
from colane.server.board.read_model import ReadModel


class Holders(NamedTuple):
    """Live jobs by whether they have places, and on which devices."""

    placed: list[Job]  # those that have one
    devices: list[int]  # how many devices each of `placed` holds
    waiting: list[Job]  # those that have none, arrays too
    # those on each device that has some, in order of id, by its node and its number there
    on: dict[str, dict[int, list[Job]]]
    moving: list[Job]  # those whose memory is on the host, and those that are to have other devices

    def of(self, node: str, number: int) -> list[Job]:
        """Those on one device."""
        return self.on.get(node, {}).get(number, [])


def holders_of(read_model: ReadModel) -> Holders:
    """Return which jobs have places, and which are on which devices."""
    placed, waiting, moving, devices = list[Job](), list[Job](), list[Job](), list[int]()
    on: dict[str, dict[int, list[Job]]] = {}
    for job in read_model.jobs.values():
        if job.placement is None:
            waiting.append(job)
            continue
        placed.append(job)
        if job.on_host is not None or job.resizes_to is not None:
            moving.append(job)
        held = job.gpus_held
        devices.append(len(held))
        for node, number in held:
            if node in on:
                there = on[node]
                if number in there:
                    there[number].append(job)
                else:
                    there[number] = [job]
            else:
                on[node] = {number: [job]}
    return Holders(placed, devices, waiting, on, moving)
