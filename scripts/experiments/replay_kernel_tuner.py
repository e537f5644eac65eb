"""One of kernel_tuner's strategies on one recorded space: `PYTHON replay_kernel_tuner.py SPACE STRATEGY SEEDS BUDGET`.

Run by replay_spaces.py in the environment that has kernel_tuner, so it imports nothing of ours. The last line of its
output is a JSON list, for each seed the configurations in the order of their first evaluation, as the cache names them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def main() -> None:
    options = _parse()
    from kernel_tuner.interface import tune_cache  # not above: --help is there without it

    space, names = str(options.space), json.loads(options.space.read_text())["tune_params_keys"]
    limit, orders = {"max_fevals": options.budget}, []
    for seed in range(options.seeds):
        found, _ = tune_cache(space, strategy=options.strategy, strategy_options=limit, seed=seed, quiet=True)
        keys = dict.fromkeys(",".join(str(row[name]) for name in names) for row in found)
        orders.append(list(keys)[: options.budget])
    print(json.dumps(orders))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("space", type=Path, metavar="SPACE", help="a cache of kernel_tuner's, *.json")
    parser.add_argument("strategy", metavar="STRATEGY", help="by kernel_tuner's name, e.g. greedy_ils")
    parser.add_argument("seeds", type=int, metavar="SEEDS", help="seeds 0 up to this one")
    parser.add_argument("budget", type=int, metavar="BUDGET", help="unique configurations of each seed")
    return parser.parse_args()


if __name__ == "__main__":
    main()
