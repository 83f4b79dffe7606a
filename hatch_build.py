"""Build hook: a wheel carries the decision code compiled by mypyc, beside its source, where there is a C compiler.

COLANE_COMPILE=1 demands it, 0 leaves it out; otherwise a machine without a compiler, or one that fails, gets the source
alone, which decides the same. `colane --version` tells which it is. COLANE_COMPILE_OPT is the level of optimisation (0
to 3; 3 by default): tests of what is compiled take a quick one.

What is gained, and what it asks of the code: docs/decisions/0005-compiled-decision-code.md.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
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


LINKED = {"CFLAGS": "-fno-semantic-interposition", "LDFLAGS": "-Wl,-Bsymbolic-functions"}
"""What one module says of its own is not to be replaced by another's: calls within it need no detour."""


def is_demanded() -> bool:
    """Whether whoever builds the wheel wants it compiled or not at all."""
    return os.environ.get("COLANE_COMPILE", "") not in {"", "0"}


def is_wanted() -> bool:
    """Whether the wheel is to be compiled: on demand, or where nothing is said and this machine can."""
    said = os.environ.get("COLANE_COMPILE", "")
    return is_demanded() or (not said and sys.implementation.name == "cpython" and has_compiler())


def has_compiler() -> bool:
    """Whether there is a C compiler for this Python, and Python's headers."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    return shutil.which(compiler) is not None and Path(sysconfig.get_path("include"), "Python.h").is_file()


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
        self.app.display_info("compiling the decision code, some 2.5 minutes (COLANE_COMPILE=0 leaves it as source)")
        if not self._compile(source, library):
            if is_demanded():
                sys.exit("could not compile (a C compiler and Python's headers are needed); see above")
            self.app.display_warning("could not compile, see above: the decision code stays source, half as fast")
            return
        build_data["pure_python"], build_data["infer_tag"] = False, True
        built = (path for path in library.rglob("*.so"))
        build_data["force_include"].update({str(path): str(path.relative_to(library)) for path in built})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is written: the copy has served."""
        del version, build_data, artifact_path
        if self._work:
            shutil.rmtree(self._work)

    def _compile(self, source: Path, library: Path) -> bool:
        """Whether all of it could be compiled."""
        names = sorted(path for pattern in self.config["modules"] for path in source.glob(pattern))
        modules = [str(path.relative_to(source)) for path in names if path.name != "__init__.py"]
        writer = Path(self.root, "scripts", "write_records.py")
        subprocess.run([sys.executable, str(writer), *modules], cwd=source, check=True)
        arguments = json.dumps([*FLAGS, *modules])
        places = ["--build-lib", str(library), "--build-temp", str(source.parent / "temp")]
        command = [sys.executable, "-c", SETUP, arguments, "build_ext", *places]
        environment = {**LINKED, **os.environ, "MYPYPATH": str(source)}
        return subprocess.run(command, cwd=source, env=environment, check=False).returncode == 0
