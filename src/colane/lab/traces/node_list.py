"""Node lists of Alibaba's trace of 2023 as clusters (Weng et al., ATC 2023), CC-BY-4.0: `openb_node_list_*.csv`.

Of github.com/alibaba/clusterdata, `cluster-trace-gpu-v2023`: thousandths of cores, MiB of memory, GPUs and their type,
one node a row. The lists do not say how much memory a GPU has: it is that of the product, and of those whose names are
not disclosed (G1, G2, G3) the least of the others', 16 GB.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from colane.lab.traces import cells
from colane.lab.traces.layout import HEAD_CHARS, Header
from colane.lab.traces.sheet import read_sheet
from colane.model.hardware import Gpu, Node
from colane.model.nearest import did_you_mean
from colane.settings.input_file import InputFileError, read_text

LAYOUT: Final = Header(read=("sn", "cpu_milli", "memory_mib", "gpu", "model"))
GB: Final = 10**9
MIB: Final = 1 << 20
MILLI: Final = 1000
GPU_MEMORY_BYTES: Final[Mapping[str, int]] = {
    "P100": 16 * GB, "T4": 16 * GB, "V100M16": 16 * GB, "V100M32": 32 * GB, "A10": 24 * GB,
    "G1": 16 * GB, "G2": 16 * GB, "G3": 16 * GB,
}  # fmt: skip
"""Of each GPU, by the type the lists name."""


def read(path: Path) -> tuple[Node, ...]:
    """Read a node list, in its order.

    Raises InputFileError: it cannot be read, is no such list (the column to blame is named), or a row is bad.
    """
    text = read_text(path)
    head = text[:HEAD_CHARS]
    if not LAYOUT.fits(head):
        misfit = LAYOUT.misfit(head)
        columns = ",".join(LAYOUT.columns)
        if misfit is None:
            raise InputFileError(
                path, f"is no cluster: expected a .yaml file, or a node list with the columns {columns}"
            )
        raise InputFileError(path, f"{misfit.message}: a node list has {columns}", line=1, column=misfit.column)
    sheet = read_sheet(path, text)
    names = sheet.unique_names("sn")
    cores, memory_mib = sheet.column("cpu_milli", cells.count), sheet.column("memory_mib", cells.count)
    gpus, models = sheet.column("gpu", cells.count), sheet.column("model", _model)
    if not names:
        raise InputFileError(path, "holds no nodes")
    for row, many in enumerate(gpus):
        if many and not models[row]:
            sheet.fail(row, f"is missing, though the node has {many} GPUs", "model")
    return tuple(
        Node(
            name=names[row],
            gpus=tuple(
                Gpu(index=i, uuid=f"{names[row]}-{i}", type=models[row], memory_bytes=GPU_MEMORY_BYTES[models[row]])
                for i in range(gpus[row])
            ),
            cores=tuple(range(cores[row] // MILLI)),
            host_memory_bytes=memory_mib[row] * MIB,
        )
        for row in range(len(sheet))
    )


def _model(text: str) -> str:
    if text and text not in GPU_MEMORY_BYTES:
        raise ValueError(f"unknown GPU type {text!r}{did_you_mean(text, GPU_MEMORY_BYTES)}")
    return text
