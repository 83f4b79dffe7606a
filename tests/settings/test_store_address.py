"""Addresses of stores over the network."""

from __future__ import annotations

import pytest

from colane.settings.store_address import StoreAddress, store_address


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("redis://head", StoreAddress("redis", "head", 6379)),
        ("redis://head:7000/3?name=lab", StoreAddress("redis", "head", 7000, database="3", name="lab")),
        ("rediss://ann@[::1]:6380/0", StoreAddress("rediss", "::1", 6380, user="ann")),
        ("postgres://db/colane", StoreAddress("postgres", "db", 5432, database="colane")),
        (
            "postgresql://ann@db:6543/x?sslmode=verify-full&name=lab",
            StoreAddress("postgres", "db", 6543, database="x", user="ann", name="lab", sslmode="verify-full"),
        ),
        (
            "postgres://ann@/x?host=/run/postgresql",
            StoreAddress("postgres", "", 5432, "/run/postgresql", "x", "ann"),
        ),
        ("unix:///run/redis/s?db=2", StoreAddress("unix", path="/run/redis/s", database="2")),
    ],
)
def test_it_is_read_and_written(text: str, meant: StoreAddress) -> None:
    assert store_address(text) == meant
    assert store_address(str(meant)) == meant


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("redis://:secret@head/0", "must hold no password: it goes into a file"),
        ("redis://ann:secret@head/0", "must hold no password: it goes into a file"),
        ("head:6379", "must be redis://HOST"),
        ("http://head", "must be redis://HOST"),
        ("redis://", "must name a host"),
        ("redis://head:many", "must be redis://HOST.*: Port could not be cast"),
        ("redis://head/jobs", "the database must be a number, got 'jobs'"),
        ("redis://head?timeout=3", "has options db and name alone, not timeout"),
        ("redis://head?name=a/b", "name must be 1 to 40 letters"),
        ("postgres://ann:secret@head/x", "must hold no password"),
        ("postgres:///x", "must name a host, or else the directory of a socket"),
        ("postgres://db", "must name a database"),
        ("postgres://db/x?sslmode=maybe", "sslmode must be disable, .*, got 'maybe'"),
        ("unix://run/s", "must be unix:///PATH, with three slashes"),
    ],
)
def test_what_is_none_is_named_with_the_fix(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as met:
        store_address(text)
    assert "secret" not in str(met.value)
