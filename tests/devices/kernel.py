"""A directory that looks and behaves as the kernel's resctrl, as far as files can."""

from __future__ import annotations

import shutil
from pathlib import Path

from colane.devices.resctrl import Folders

CACHES = ("00", "01")
FREE = "    MB:0=100;1=100\n    L3:0=fffff;1=fffff\n"


class FakeResctrl:
    """What `mount -t resctrl` shows on a machine with two caches.

    Args:
        root: Where.
        schemata: The lines of `schemata` of the root group.
        features: What is counted.
        groups_max: Groups that the processor has numbers for.
    """

    def __init__(
        self,
        root: Path,
        *,
        schemata: str = FREE,
        features: str = "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n",
        groups_max: int = 8,
    ) -> None:
        self.root = root
        self.schemata = schemata
        self.groups_max = groups_max
        self.is_read_only = False
        (root / "mon_groups").mkdir(parents=True)
        (root / "info" / "L3_MON").mkdir(parents=True)
        (root / "info" / "L3_MON" / "mon_features").write_text(features)
        (root / "info" / "MB").mkdir()
        (root / "info" / "MB" / "min_bandwidth").write_text("10\n")
        (root / "info" / "MB" / "bandwidth_gran").write_text("10\n")
        self._fill(root, is_control=True)

    @property
    def folders(self) -> Folders:
        return Folders(self.make, self.remove)

    def make(self, group: Path) -> None:
        if self.is_read_only:
            raise OSError(30, "Read-only file system")
        if len(self.groups()) >= self.groups_max:
            raise OSError(28, "No space left on device")
        group.mkdir()
        self._fill(group, is_control=group.parent == self.root)

    def remove(self, group: Path) -> None:
        if self.is_read_only:
            raise OSError(30, "Read-only file system")
        shutil.rmtree(group)

    def groups(self) -> list[str]:
        own = [*(self.root / "mon_groups").iterdir(), *self.root.glob("colane-*")]
        return sorted(str(path.relative_to(self.root)) for path in own)

    def count(self, group: str, *counts: int | str) -> None:
        """Set the counters of a group, one for each cache."""
        for cache, count in zip(CACHES, counts, strict=True):
            (self.root / group / "mon_data" / f"mon_L3_{cache}" / "mbm_total_bytes").write_text(f"{count}\n")

    def tasks(self, group: str) -> list[int]:
        return sorted(map(int, (self.root / group / "tasks").read_text().split()))

    def _fill(self, group: Path, *, is_control: bool) -> None:
        (group / "tasks").write_text("")
        if is_control:
            (group / "schemata").write_text(self.schemata)
        for cache in CACHES:
            (group / "mon_data" / f"mon_L3_{cache}").mkdir(parents=True)
            (group / "mon_data" / f"mon_L3_{cache}" / "mbm_total_bytes").write_text("0\n")
