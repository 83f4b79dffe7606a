"""What Colane reads of the NVML library that the loader finds, as JSON: run as a program.

Argument: how often it looks.
"""

from __future__ import annotations

import json
import sys

from colane.devices import discover


def main(looks: int) -> None:
    devices = discover("gpu")
    seen = [devices.observe() for _ in range(looks)]
    told = {
        "gpus": [(gpu.uuid, gpu.type, gpu.memory_bytes) for gpu in seen[0]],
        "healthy": [[gpu.healthy for gpu in one] for one in seen],
        "power_w": [use.power_w for use in devices.uses()],
        "utilization_by": devices.utilization_by,
        "links": [(link.kind.value, link.lanes) for link in devices.topology.links[0]] if devices.topology else [],
    }
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(int(sys.argv[1]))
