"""When `pip install` of a clone compiles the decision code, and what it does where that fails."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hook's module; Hatchling, which it derives from, is there only where a wheel is built."""
    interface = ModuleType("hatchling.builders.hooks.plugin.interface")
    interface.BuildHookInterface = type("BuildHookInterface", (), {"__class_getitem__": classmethod(lambda c, _: c)})  # type: ignore[attr-defined]
    for name in ("hatchling", "hatchling.builders", "hatchling.builders.hooks", "hatchling.builders.hooks.plugin"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("said", "compiler", "wanted"),
    [
        (None, True, True), (None, False, False), ("", True, True), ("", False, False),
        ("0", True, False), ("1", True, True), ("1", False, True),
    ],
)  # fmt: skip
def test_it_compiles_where_it_can_or_is_told_to(
    hook: Any, monkeypatch: pytest.MonkeyPatch, said: str | None, compiler: bool, wanted: bool
) -> None:
    if said is None:
        monkeypatch.delenv("COLANE_COMPILE", raising=False)
    else:
        monkeypatch.setenv("COLANE_COMPILE", said)
    monkeypatch.setattr(hook, "has_compiler", lambda: compiler)
    assert hook.is_wanted() is wanted


def test_a_compiler_that_is_not_there_is_seen(hook: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "cc -O2"))
    assert not hook.has_compiler()


@pytest.mark.parametrize(("version", "told"), [("standard", ["compiling", "stays source"]), ("editable", [])])
def test_what_cannot_be_compiled_stays_source_and_that_is_said(
    hook: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, told: list[str]
) -> None:
    """But not where it was demanded; an editable install is always the source."""
    (tmp_path / "src").mkdir()
    monkeypatch.delenv("COLANE_COMPILE", raising=False)
    monkeypatch.setattr(hook, "has_compiler", lambda: True)
    built: dict[str, Any] = {"force_include": {}}
    lines: list[str] = []
    one = hook.CompileHook()
    one.root, one.app = str(tmp_path), SimpleNamespace(display_info=lines.append, display_warning=lines.append)
    monkeypatch.setattr(one, "_compile", lambda *_: False, raising=False)
    one.initialize(version, built)
    one.finalize(version, built, "")
    assert built == {"force_include": {}}
    assert [word in line for word, line in zip(told, lines, strict=True)] == [True] * len(told)
    if told:
        monkeypatch.setenv("COLANE_COMPILE", "1")
        with pytest.raises(SystemExit, match="could not compile"):
            one.initialize(version, built)
