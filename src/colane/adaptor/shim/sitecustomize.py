"""First on a job's PYTHONPATH: arms the adaptor, then makes way for the sitecustomize that it hides.

Python of any version and any environment runs this at every start, so it speaks the oldest dialect.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _arm():  # type: ignore[no-untyped-def]
    try:
        from _colane_adaptor.arm import arm  # type: ignore[import-not-found]

        arm()
    except Exception as error:  # noqa: BLE001  # a job must start whatever is wrong with us
        if os.environ.get("COLANE_DEBUG"):
            sys.stderr.write("colane: not armed: %r\n" % (error,))


def _hidden():  # type: ignore[no-untyped-def]
    """Find the sitecustomize that would have run without us; to import importlib would cost more than all the rest."""
    finders = [finder for finder in sys.meta_path if getattr(finder, "__name__", "") == "PathFinder"]
    paths = [path for path in sys.path if os.path.abspath(path) != _HERE]
    return finders[0].find_spec("sitecustomize", paths) if finders else None


def _chain():  # type: ignore[no-untyped-def]
    spec = _hidden()  # type: ignore[no-untyped-call]
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sitecustomize"])


if sys.version_info >= (3, 8):
    _arm()  # type: ignore[no-untyped-call]
if sys.version_info >= (3, 5):
    _chain()  # type: ignore[no-untyped-call]
