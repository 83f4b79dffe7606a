"""What a report of an agent costs over a kept connection: this client against those of libraries.

A process beside this one answers every request with the same small JSON, so that the client is what is measured. Each
client runs in a process of its own: CPU time and round trips of it, and what importing it takes.

usage: python benchmarks/agent_http.py [--requests N] [--client NAME ...]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from multiprocessing import get_context
from typing import Any

REPORT = {
    "agent": "a" * 32, "generation": 7, "gpus": [{"index": n, "memory_used_bytes": 2**33} for n in range(8)],
    "jobs": [{"id": n, "attempt": 1, "steps": 10_000 + n, "step_mean_s": 0.1234567} for n in range(8)],
}  # fmt: skip
ANSWER = json.dumps({"jobs": [{"id": n, "attempt": 1, "state": "running"} for n in range(8)]}).encode()

Ask = Callable[[], Awaitable[None]]
CLOSE: list[Ask] = []
"""What a client wants awaited at its end."""


class _Answering(asyncio.Protocol):
    """Answers each request whose head and body have come."""

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401
        self._transport, self._data = transport, b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n")[0]) if at >= 0 else 0
            if len(self._data) < end + 4 + length:
                return
            self._data = self._data[end + 4 + length :]
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(ANSWER), ANSWER)
            )


def _serve(ports: Any) -> None:  # noqa: ANN401
    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0)
        ports.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


async def _colane(url: str) -> Ask:
    link = import_module("colane.client.agent_link").AgentLink(url)

    async def ask() -> None:
        await link.report("n0", REPORT)

    return ask


async def _httpx(url: str) -> Ask:
    client = import_module("httpx").AsyncClient(base_url=url, trust_env=False)

    async def ask() -> None:
        json.loads((await client.post("/node/n0/report", json=REPORT)).content)

    return ask


async def _http_client(url: str) -> Ask:
    connection, loop = import_module("http.client").HTTPConnection(url.partition("//")[2]), asyncio.get_running_loop()

    def exchange() -> None:
        body = json.dumps(REPORT).encode()
        connection.request("POST", "/node/n0/report", body, {"Content-Type": "application/json"})
        json.loads(connection.getresponse().read())

    async def ask() -> None:
        await loop.run_in_executor(None, exchange)  # it blocks, and the agent has one loop

    return ask


async def _urllib3(url: str) -> Ask:
    pool, loop = import_module("urllib3").PoolManager(), asyncio.get_running_loop()

    def exchange() -> None:
        pool.request("POST", f"{url}/node/n0/report", json=REPORT).json()

    async def ask() -> None:
        await loop.run_in_executor(None, exchange)

    return ask


async def _aiohttp(url: str) -> Ask:
    session = import_module("aiohttp").ClientSession()
    CLOSE.append(session.close)

    async def ask() -> None:
        async with session.post(f"{url}/node/n0/report", json=REPORT) as answer:
            await answer.json()

    return ask


CLIENTS = {"colane": _colane, "httpx": _httpx, "http.client": _http_client, "urllib3": _urllib3, "aiohttp": _aiohttp}
"""Those of the last two that are not installed are left out."""

IMPORTS = {
    "colane": "from colane.client.light_httpx import prepare_httpx; prepare_httpx(); import colane.client.agent_link",
    "httpx": "import asyncio, json, httpx",
    "http.client": "import asyncio, json, http.client",
    "urllib3": "import asyncio, json, urllib3",
    "aiohttp": "import asyncio, json, aiohttp",
}


def _measure(name: str, url: str, requests: int, results: Any) -> None:  # noqa: ANN401
    async def run() -> tuple[float, float]:
        ask = await CLIENTS[name](url)
        for _ in range(requests // 10):
            await ask()
        began_s, cpu_s = time.perf_counter(), time.process_time()
        for _ in range(requests):
            await ask()
        took = time.perf_counter() - began_s, time.process_time() - cpu_s
        for close in CLOSE:
            await close()
        return took

    try:
        took_s, cpu_s = asyncio.run(run())
    except ImportError:
        results.send(None)
        return
    results.send((requests / took_s, cpu_s / requests * 1e6, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def _import_ms(name: str) -> float:
    """The least of five, above that of Python alone with asyncio and json."""

    def least(code: str) -> float:
        timed = f"import time; began = time.perf_counter()\n{code}\nprint(time.perf_counter() - began)"
        runs = [subprocess.run([sys.executable, "-c", timed], capture_output=True, check=True) for _ in range(5)]
        return min(float(run.stdout) for run in runs)

    return (least(IMPORTS[name]) - least("import asyncio, json")) * 1e3


def main() -> None:
    """Print a row for each client."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--requests", type=int, default=5000)
    asked.add_argument("--client", action="append", choices=tuple(CLIENTS))
    options, context = asked.parse_args(), get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ours.recv()}"
    print(f"{'client':<12} {'round trips/s':>14} {'CPU us each':>12} {'import ms':>10} {'memory MB':>10}")
    for name in options.client or CLIENTS:
        results, told = context.Pipe()
        one = context.Process(target=_measure, args=(name, url, options.requests, told))
        one.start()
        found = results.recv()
        one.join()
        if found is not None:
            rate, cpu_us, memory_mb = found
            print(f"{name:<12} {rate:>14,.0f} {cpu_us:>12.0f} {_import_ms(name):>10.0f} {memory_mb:>10.0f}")
    server.kill()


if __name__ == "__main__":
    main()
