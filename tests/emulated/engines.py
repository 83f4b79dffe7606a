"""Starts vLLM or SGLang as a job on an emulated GPU, without the adaptor and with it, and says how far they go.

    python -m tests.emulated.engines vllm VENV/bin/python

The Python is one in which the server is installed (`pip install vllm`, `pip install sglang`): neither is needed by the
tests. A model of two layers is made by hand. Prints what stopped each, as `gpu/README.md` has it.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from colane.client.profiling import ENDED_STATES
from colane.engines.local import LocalConfig, LocalEngine
from tests.emulated.bare_machine import ROOT, install

MODEL: Final = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu", "torch_dtype": "bfloat16",
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip

STOPPED: Final = """
except BaseException as error:
    here = [one for one in traceback.extract_tb(error.__traceback__) if "site-packages" in one.filename][-5:]
    where = ["%s:%s %s" % (one.filename.split("site-packages/")[-1], one.lineno, one.name) for one in here]
    print("STOPPED", type(error).__name__, str(error)[:200].replace("\\n", " "), where, flush=True)
    sys.exit(3)
"""
VLLM: Final = f"""
import os, sys, traceback
os.environ |= {{"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}}
try:
    import torch, vllm
    print("versions", vllm.__version__, torch.__version__, flush=True)
    import vllm.utils.torch_utils as utils
    utils.get_accelerator_view_from_cpu_tensor = lambda tensor: tensor  # compiled code that asks the CUDA runtime
    model = vllm.LLM(sys.argv[1], load_format="dummy", skip_tokenizer_init=True, max_model_len=64,
                     gpu_memory_utilization=0.5, compilation_config={{"custom_ops": ["none"]}})
    print("started", flush=True)
    asked = vllm.SamplingParams(max_tokens=4, detokenize=False)
    print("answered", model.generate([{{"prompt_token_ids": [1, 2, 3]}}], asked), flush=True)
{STOPPED.strip()}
"""
SGLANG: Final = f"""
import os, sys, traceback
os.environ |= {{"HF_HUB_OFFLINE": "1"}}
try:
    import torch, sglang
    if __name__ == "__main__":  # it spawns processes
        print("versions", sglang.__version__, torch.__version__, flush=True)
        engine = sglang.Engine(model_path=sys.argv[1], load_format="dummy", skip_tokenizer_init=True,
                               context_length=64, mem_fraction_static=0.5)
        print("started", flush=True)
        asked = {{"max_new_tokens": 4}}
        print("answered", engine.generate(input_ids=[1, 2, 3], sampling_params=asked), flush=True)
        engine.shutdown()
{STOPPED.strip()}
"""
PROGRAMS: Final = {"vllm": VLLM, "sglang": SGLANG}

TOLD: Final = ("versions", "STOPPED", "started", "answered")

NVML_OF_VLLM: Final = """
class Same:
    def find_spec(self, name, path=None, target=None):
        if name == "vllm.third_party.pynvml":
            from importlib.util import spec_from_loader
            return spec_from_loader(name, self)
    def create_module(self, spec):
        import pynvml
        return sys.modules["pynvml"]
    def exec_module(self, module):
        pass
sys.meta_path.insert(0, Same())
"""
"""vLLM has a copy of that module."""


def complete_driver(folder: Path, python: str) -> Path:
    """Build a library of the driver's functions that installed libraries are linked to: each says "not supported"."""
    where = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip())
    found = [one for name in ("vllm", "sgl_kernel", "torch") for one in (packages / name).rglob("*.so*")]
    listed = subprocess.run(["nm", "-D", "--undefined-only", *found], capture_output=True, text=True, check=False)
    names = sorted(set(re.findall(r" U (cu[A-Z]\w*)$", listed.stdout, re.MULTILINE)))
    source, built = folder / "more.c", folder / "libmore.so"
    source.write_text("".join(f"int {name}(void) {{ return 801; }}\n" for name in names))
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", built, source], check=True)
    return built


def main(server: str, python: str) -> None:
    with tempfile.TemporaryDirectory(prefix="engines-") as name:
        folder = Path(name)
        more = complete_driver(folder, python)
        os.environ |= install(folder / "machine", gib=80)
        with (folder / "machine" / "site" / "sitecustomize.py").open("a") as site:
            site.write(NVML_OF_VLLM)
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text(json.dumps(MODEL))
        script = folder / "start.py"
        script.write_text(PROGRAMS[server])
        env = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PYTHONPATH")}
        env |= {"LD_PRELOAD": str(more), "TRITON_CACHE_DIR": str(folder)}
        config = LocalConfig.of(folder / "state", "emulated", policy="fifo", devices="gpu", mps="off", env={})
        with LocalEngine(config) as stack, stack.client() as scheduler:
            for switch in ("off", "on"):
                request = {"command": [python, str(script), str(folder / "model")], "workdir": str(ROOT)}
                job = scheduler.submit({"name": server, "env": env | {"COLANE_ADAPTOR": switch}, **request})
                while (seen := scheduler.job(job))["state"] not in ENDED_STATES:
                    time.sleep(0.5)
                said = scheduler.log(job).data.decode(errors="replace").splitlines()
                told = [line for line in said if line.startswith(TOLD) or re.match(r"(\w+\.)*\w*Error: ", line)]
                print(f"adaptor {switch}: {seen['reason']}", *dict.fromkeys(told), sep="\n  ", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
