"""Fixtures of the commands' tests that those of engines use as well."""

from __future__ import annotations

from tests.cli.conftest import colane

__all__ = ["colane"]
