"""What a forked candidate runs, as a fresh interpreter would have: `python -m MODULE ...` or `python -c CODE ...`."""

from __future__ import annotations

import importlib
import site
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import hillclimb

Program = Callable[[], None]


def is_forkable(argv: Sequence[str]) -> bool:
    """Whether this is our own interpreter with a module or a piece of code, and no options of its own."""
    return len(argv) > 2 and argv[0] == sys.executable and argv[1] in ("-m", "-c")


def make_program(argv: Sequence[str], lab: str) -> Program:
    """What `argv` asks for, to be called in the process that has been confined, with its environment set.

    `lab` is the folder from which `hillclimb` is imported there. A module runs by its `main()`.
    """
    run = _run_module if argv[1] == "-m" else _run_code
    return partial(run, argv, lab)


def _run_module(argv: Sequence[str], lab: str) -> None:
    relocate_imports(lab)
    module = importlib.import_module(argv[2])
    sys.modules["__main__"] = module
    sys.argv = [module.__file__ or argv[2], *argv[3:]]
    module.main()


def _run_code(argv: Sequence[str], lab: str) -> None:
    relocate_imports(lab)
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = ["-c", *argv[3:]]
    exec(compile(argv[2], "<string>", "exec"), module.__dict__)


def relocate_imports(lab: str) -> None:
    """Correct what was found at import, outside: folders of `hillclimb` and of temporary files, numba's settings."""
    outside = str(Path(hillclimb.__path__[0]).parent)
    others = [path for path in sys.path if path != outside]
    installed = [outside] if outside in (*site.getsitepackages(), site.getusersitepackages()) else []
    sys.path[:] = [lab, *others, *installed]  # an installed package lies beside those that a kernel imports
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "hillclimb" and hasattr(module, "__path__"):
            module.__path__ = [path.replace(outside, lab, 1) for path in module.__path__]
    tempfile.tempdir = None
    if numba := sys.modules.get("numba.core.config"):
        numba.reload_config()
