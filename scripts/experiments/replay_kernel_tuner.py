"""One of kernel_tuner's strategies on one recorded space: `PYTHON replay_kernel_tuner.py SPACE STRATEGY SEEDS BUDGET`.

Run by replay_spaces.py in the environment that has kernel_tuner, so it imports nothing of ours. The last line of its
output is a JSON list, for each seed the configurations in the order of their first evaluation, as the cache names them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kernel_tuner.interface import tune_cache


def main() -> None:
    path, strategy, seeds, budget = sys.argv[1:]
    names = json.loads(Path(path).read_text())["tune_params_keys"]
    orders = []
    for seed in range(int(seeds)):
        found, _ = tune_cache(
            path, strategy=strategy, strategy_options={"max_fevals": int(budget)}, seed=seed, quiet=True
        )
        keys = dict.fromkeys(",".join(str(row[name]) for name in names) for row in found)
        orders.append(list(keys)[: int(budget)])
    print(json.dumps(orders))


if __name__ == "__main__":
    main()
