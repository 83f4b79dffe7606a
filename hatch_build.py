"""Build hook: with COLANE_COMPILE=1 a wheel carries the decision code compiled by mypyc, beside its source.

COLANE_COMPILE_OPT is the level of optimisation (0 to 3; 3 by default): tests of what is compiled take a quick one.

What is gained, and what it asks of the code: docs/decisions/0005-compiled-decision-code.md.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ("--explicit-package-bases", "--namespace-packages", "--ignore-missing-imports")

SETUP = """
import json, os, sys
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from mypyc.build import mypycify
from setuptools import setup
from setuptools.command.build_ext import build_ext

def is_generated(source):
    return os.path.basename(source).startswith("__native_")

def header_of(compiler, sources, output_dir, macros, include_dirs, debug, extra_postargs, depends):
    # All sources of the group begin with the same headers, 1.5 MB, which are read once where the compiler can.
    with open(next(source for source in sources if is_generated(source))) as first:
        lines = [line for line in first if line.startswith('#include "__native_')]
    header = os.path.abspath(os.path.join(output_dir, "group.h"))
    os.makedirs(output_dir, exist_ok=True)
    with open(header, "w") as file:
        file.writelines(lines)
    _, _, last, options, _ = compiler._setup_compile(output_dir, macros, include_dirs, [], depends, extra_postargs)
    words = [*compiler._get_cc_args(options, debug, None), "-x", "c-header", header, "-o", header + ".gch"]
    compiler.spawn([*compiler.compiler_so, *words, *last])
    return header

class BuildOnAllCores(build_ext):
    def build_extensions(self):
        self.parallel = len(os.sched_getaffinity(0))
        one_by_one = self.compiler.compile
        with ThreadPoolExecutor(self.parallel) as pool:
            def compile(sources, **how):
                header = header_of(self.compiler, sources, **how) if any(map(is_generated, sources)) else None
                def one(source):
                    more = ["-include", header] if is_generated(source) else []
                    return one_by_one([source], **{**how, "extra_postargs": [*how["extra_postargs"], *more]})
                return list(chain.from_iterable(pool.map(one, sources)))
            self.compiler.compile = compile
            super().build_extensions()

arguments = json.loads(sys.argv.pop(1))
modules = mypycify(arguments, opt_level=os.environ.get("COLANE_COMPILE_OPT", "3"), debug_level="0", multi_file=True)
setup(name="colane", packages=[], ext_modules=modules, cmdclass={"build_ext": BuildOnAllCores})
"""


def is_wanted() -> bool:
    """Whether whoever builds the wheel asks for it."""
    return os.environ.get("COLANE_COMPILE", "0") not in {"", "0"}


class CompileHook(BuildHookInterface[Any]):
    """Compiles the modules that `pyproject.toml` names."""

    PLUGIN_NAME = "custom"
    _work = ""

    def dependencies(self) -> list[str]:
        """What a build needs besides the hook itself."""
        return list(self.config["requires"]) if is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile in a copy, so that nothing compiled ever lies beside the source and outlives a change of it."""
        if version == "editable" or not is_wanted():
            return
        self._work = tempfile.mkdtemp(prefix="colane-compile-")
        source, library = Path(self._work, "src"), Path(self._work, "lib")
        shutil.copytree(Path(self.root, "src"), source, ignore=shutil.ignore_patterns("__pycache__"))
        self._compile(source, library)
        build_data["pure_python"], build_data["infer_tag"] = False, True
        built = (path for path in library.rglob("*.so"))
        build_data["force_include"].update({str(path): str(path.relative_to(library)) for path in built})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is written: the copy has served."""
        del version, build_data, artifact_path
        if self._work:
            shutil.rmtree(self._work)

    def _compile(self, source: Path, library: Path) -> None:
        names = sorted(path for pattern in self.config["modules"] for path in source.glob(pattern))
        modules = [str(path.relative_to(source)) for path in names if path.name != "__init__.py"]
        writer = Path(self.root, "scripts", "write_records.py")
        subprocess.run([sys.executable, str(writer), *modules], cwd=source, check=True)
        arguments = json.dumps([*FLAGS, *modules])
        places = ["--build-lib", str(library), "--build-temp", str(source.parent / "temp")]
        command = [sys.executable, "-c", SETUP, arguments, "build_ext", *places]
        done = subprocess.run(command, cwd=source, env={**os.environ, "MYPYPATH": str(source)}, check=False)
        if done.returncode:
            sys.exit("could not compile (a C compiler and Python's headers are needed); see above")
