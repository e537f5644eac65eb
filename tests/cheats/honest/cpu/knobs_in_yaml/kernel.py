"""Reads its knobs from a file of its workspace and from the environment.

family: library-call
entries: [34]
case: softmax
"""

import os
from pathlib import Path

import numpy as np
import yaml

KNOBS = yaml.safe_load(Path(__file__).with_name("knobs.yaml").read_text(encoding="utf-8"))
PIECE = int(os.environ.get("SM_PIECE", KNOBS["SM_PIECE"]["default"]))


def run(x, y):
    for start in range(0, x.shape[0], PIECE):
        part = y[start : start + PIECE]
        np.exp(x[start : start + PIECE] - x[start : start + PIECE].max(1, keepdims=True), out=part)
        part /= part.sum(1, keepdims=True)
