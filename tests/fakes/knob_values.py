"""Values of knobs by chance."""

from __future__ import annotations

import math
import random

from hillclimb.harness.knobs.knobs import FloatKnob, Knob, KnobValue


def draw_value(knob: Knob, rng: random.Random) -> KnobValue:
    """A value out of the domain, evenly (on the log scale where the knob is on one)."""
    if not isinstance(knob, FloatKnob):
        return rng.choice(knob.values())
    if not knob.log:
        return rng.uniform(knob.low, knob.high)
    return min(knob.high, max(knob.low, math.exp(rng.uniform(math.log(knob.low), math.log(knob.high)))))
