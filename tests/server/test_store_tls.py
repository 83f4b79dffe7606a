"""Stores over TLS: with the certificate that the server has, by the name that it is for, and not otherwise."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from colane.server.store.opening import connect
from colane.server.store.store import META, Put, Store, StoreError, Transaction
from colane.settings.store_address import store_address
from tests.server.postgres_server import postgres_server
from tests.server.redis_server import redis_server
from tests.server.test_redis_store import free_port

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """One of `localhost` that vouches for itself, and its key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(["openssl", *words.split(), *names], check=True, capture_output=True)
    return cert, key


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def own(folder: Path) -> tuple[Path, Path]:
    return certificate(folder, "own")


@pytest.fixture(scope="module")
def others(folder: Path) -> Path:
    return certificate(folder, "others")[0]


@pytest.fixture(scope="module")
def redis_port(own: tuple[Path, Path]) -> Iterator[int]:
    cert, key = map(str, own)
    port = free_port()
    options = ("--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
    with redis_server("--tls-port", str(port), *options):
        yield port


@pytest.fixture(scope="module")
def postgres_port(own: tuple[Path, Path]) -> Iterator[int]:
    port = free_port()
    with pytest.MonkeyPatch.context() as patch, postgres_server() as server:
        server.stop()
        data = server.folder / "data"
        for file, name in zip(own, ("server.crt", "server.key"), strict=True):
            shutil.copy(file, data / name)
            if server.owner:
                shutil.chown(data / name, "postgres")
            (data / name).chmod(0o600)
        patch.setenv("PGPORT", str(port))  # of the server, and of who asks whether it answers
        server.start("-h", "127.0.0.1", "-c", "ssl=on")
        yield port


def use(store: Store) -> None:
    store.commit(Transaction([Put(META, "x", {"value": 1})]))
    assert store.get(META, "x") == {"value": 1}
    store.close()


def test_redis(redis_port: int, own: tuple[Path, Path], others: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"rediss://localhost:{redis_port}"
    monkeypatch.setenv("COLANE_CA_FILE", str(own[0]))
    use(connect(store_address(url)))
    with pytest.raises(StoreError, match=r"could not be opened: .*certificate"):
        connect(store_address(f"rediss://127.0.0.1:{redis_port}"))
    with pytest.raises(StoreError, match="could not be opened"):
        connect(store_address(f"redis://localhost:{redis_port}"))
    for trusted in (str(others), None):
        monkeypatch.setenv("COLANE_CA_FILE", trusted) if trusted else monkeypatch.delenv("COLANE_CA_FILE")
        with pytest.raises(StoreError, match=r"could not be opened: .*certificate"):
            connect(store_address(url))


def test_postgres(postgres_port: int, own: tuple[Path, Path], others: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"postgres://postgres@localhost:{postgres_port}/postgres?sslmode=verify-full"
    monkeypatch.setenv("COLANE_CA_FILE", str(own[0]))
    use(connect(store_address(url)))
    with pytest.raises(StoreError, match=r"could not be opened: .*certificate"):
        connect(store_address(url.replace("localhost", "127.0.0.1")))
    monkeypatch.setenv("COLANE_CA_FILE", str(others))
    with pytest.raises(StoreError, match=r"could not be opened: .*certificate"):
        connect(store_address(url))
    monkeypatch.delenv("COLANE_CA_FILE")
    with pytest.raises(StoreError, match=r"could not be opened: .*certificate"):
        connect(store_address(url))
