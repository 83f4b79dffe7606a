"""What Ray runs on each of its nodes: an actor that keeps Colane's agent there.

The agent is a child of the actor's and ends with it; jobs are not, and the next agent of the node takes them over.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from colane.client.locate import default_state_dir
from colane.engines.child import Child
from colane.model.versions import own_version

STOP_MAX_S: Final = 30.0
SHORT_S: Final = 60.0
PAUSE_S, PAUSE_MAX_S = 1.0, 30.0
OF_RAY: Final = frozenset({"OMP_NUM_THREADS", "PYTHONBREAKPOINT", "SPT_NOENV"})
OF_COLANE: Final = frozenset({"COLANE_URL", "COLANE_TOKEN", "COLANE_TOKEN_FILE", "COLANE_STATE", "COLANE_CONFIG"})


def agent_environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return an actor's environment without what Ray put there.

    `CUDA_VISIBLE_DEVICES` stays: it names the GPUs that Ray gave, and the agent offers no others.
    """
    return {
        name: value
        for name, value in own.items()
        if not name.startswith("RAY_")
        and name not in OF_RAY | OF_COLANE
        and (name, value) != ("CUDA_VISIBLE_DEVICES", "")
    }


class AgentKeeper:
    """Keeps the agent of one node running.

    Args:
        owner: Which scheduler's it is; for others to read.
        settings: Of the agent, by their names in `colane.toml`.
        token: The agent's.
    """

    def __init__(self, owner: Mapping[str, str], settings: Mapping[str, Any], token: str) -> None:
        base = settings.get("state")
        folder = Path(base) if base else default_state_dir() / "ray" / owner["cluster"][:8]
        self._owner = dict(owner)
        self._folder = (folder / str(settings["name"])).expanduser().absolute()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        given = {name: [value, "colane up"] for name, value in settings.items()}
        self._document = {"settings": given | {"state": [str(self._folder), "colane up"]}, "token": token}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def about(self) -> dict[str, str]:
        """Return whose the agent is, and the version of Colane here."""
        return {**self._owner, "version": own_version()}

    def said(self) -> str:
        """Return the last line that the agent said; empty where it has said none."""
        try:
            lines = (self._folder / "said").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def stop(self) -> None:
        """End the agent; jobs that run go on."""
        self._end.set()
        self._thread.join(STOP_MAX_S + 5.0)

    def _keep(self) -> None:
        pause_s = PAUSE_S
        while not self._end.is_set():
            began_s = time.monotonic()
            with (self._folder / "said").open("wb") as log:
                child = Child(
                    "agent", ["agent"], self._document, lambda _text: None, agent_environment(os.environ), log.fileno()
                )
            while child.process.poll() is None and not self._end.wait(0.2):
                pass
            if child.process.poll() is None:
                child.end(STOP_MAX_S)
                return
            child.close()
            if time.monotonic() >= began_s + SHORT_S:
                pause_s = PAUSE_S
            self._end.wait(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
