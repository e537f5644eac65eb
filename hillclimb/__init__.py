"""An autonomous hill-climbing lab for GPU kernels whose wins are true.

`from hillclimb import read_run, judge_tree, climb`: see `hillclimb.agent.api`.
"""

from __future__ import annotations


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("hillclimb")
    if name.startswith("_") or name in ("agent", "harness"):
        raise AttributeError(name)
    from hillclimb.agent import api  # not at the top: candidates import this package, and have no agent

    try:
        return getattr(api, name)
    except AttributeError:
        raise AttributeError(f"hillclimb has no {name!r}; it has {', '.join(api.__all__)}") from None


def __dir__() -> list[str]:
    from hillclimb.agent import api

    return sorted([*globals(), "__version__", *api.__all__])
