"""`colane token`, `usage` and `--limits` at the command line."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from tests.cli.conftest import Colane

pytestmark = pytest.mark.live


def test_a_token_is_made_listed_and_revoked(live: Colane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ann.token"
    assert live("token", "make", "--user", "ann", "--out", str(file)).out == ""
    assert file.stat().st_mode & 0o077 == 0
    again = live("token", "make", "--out", str(file))
    assert (again.code, "is there already; name a new file" in again.err) == (2, True)
    (known,) = [one for one in live("token", "list", "--json").json if one["name"] == "ann"]
    assert known["id"] in live("token", "list").out
    monkeypatch.delenv("COLANE_TOKEN")
    monkeypatch.setenv("COLANE_TOKEN_FILE", str(file))
    assert live("ps").code == 0
    refused = live("token", "make", "--role", "operator")
    assert (refused.code, "only an operator may make a token of operator ann" in refused.err) == (2, True)
    assert live("token", "revoke", known["id"]).out == f"token {known['id']} is revoked\n"
    assert live("ps").code == 2


def test_an_agents_token_has_no_role(live: Colane) -> None:
    said = live("token", "make", "--node", "n", "--role", "user")
    assert (said.code, said.err) == (2, "colane: --node: an agent's token has neither --user nor --role\n")


def test_usage_names_who_has_used_what(live: Colane) -> None:
    said = live("submit", "--wait", "--", "true")
    assert said.code == 0, said.err
    (own,) = [one for one in live("usage", "--json").json if one["user"] == pwd.getpwuid(os.geteuid()).pw_name]
    assert own["jobs"] >= 1
    assert live("usage", "--since", "1h").out.splitlines()[0].split()[:2] == ["USER", "GPU"]
    assert live("usage", "--since", "soon").code == 2


def test_limits_that_cannot_be_are_refused_before_anything_starts(colane: Colane, tmp_path: Path) -> None:
    file = tmp_path / "limits.toml"
    file.write_text("[default]\ngpu = 1\n")
    for command in ("up", "server"):
        said = colane(command, "--limits", str(file), "--state", str(tmp_path / "state"))
        assert (said.code, "--limits:" in said.err, "did you mean gpus" in said.err) == (2, True, True)
    assert not (tmp_path / "state").exists()
