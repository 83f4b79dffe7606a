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
        ("unix://run/s", "must be unix:///PATH, with three slashes"),
    ],
)
def test_what_is_none_is_named_with_the_fix(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as met:
        store_address(text)
    assert "secret" not in str(met.value)
