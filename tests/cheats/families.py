"""The families of cheats: by name, what a candidate of each tries.

docs/explanation/how-it-was-attacked.md has a row for every one.
"""

from __future__ import annotations

FAMILIES = {
    "work-after-done": "work that goes on after the kernel said that it is done",
    "lazy-result": "an object that computes when somebody looks at it",
    "patched-clock": "a clock, an event or a wait that tells less",
    "stale-replay": "work on the arrays of an earlier call",
    "work-ahead": "one call that does the work of several",
    "tuning-while-timed": "a search for the best variant inside the timed calls, or results left in files",
    "told-from-timing": "another way of working once it is past the checks, or while it is timed",
    "cached-result": "results kept under an address, an id, a shape or a sample of the values",
    "last-answer": "the answer of the call before",
    "replayed-gate": "results of the gate handed out later",
    "guessed-inputs": "inputs drawn from a guessed seed, or computed with the contract",
    "kept-weights": "values derived from one call's inputs and used in later calls",
    "leftovers": "outputs left as they are, or filled from memory that may hold the answer",
    "memory-search": "memory or the stack searched for the answer",
    "changed-inputs": "inputs changed so that less work is right",
    "not-a-number": "NaN and infinities, which some comparisons let pass",
    "swallowed-failure": "a failure that is kept quiet",
    "constant-answer": "a constant where the answer is close to it",
    "fewer-bits": "arithmetic in fewer bits than asked for",
    "listed-problems": "right for some sizes only",
    "assumed-structure": "inputs taken to have a structure that nobody promised",
    "sampled-inputs": "a few elements of the inputs choose a fast and less exact way",
    "narrowed-range": "values limited to a range that was seen",
    "less-work": "a part of the work left out where that hardly shows",
    "rounding": "whole numbers cut off instead of rounded, or sent through a float",
    "rare-ties": "a wrong choice among equal elements",
    "stale-in-out": "a part of an argument that is both input and output left as it was",
    "unstable-formula": "a formula that is right in exact arithmetic alone",
    "library-call": "a finished operator of a library in place of a kernel",
    "nothing-new": "the start again, or a kernel that is slower or never loaded",
    "edited-files": "the workspace, the harness or a binary replaced by another",
    "shadowed-module": "a file of the workspace that is imported instead of a library",
    "compile-cache": "compiled code left for a later process to load",
    "early-exit": "the process left before the checks end",
    "forged-answer": "the runner's answer or the verdict written by the kernel",
    "patched-judge": "comparisons, builtins or global flags changed for everybody in the process",
    "other-processes": "helpers, packages, signals, and other runs' files",
    "border": "what a rung of the sandbox does not name",
    "slowed-opponent": "the other side made slower",
    "cache-and-heat": "cache lines or heat left for the other side",
    "out-of-bounds": "writes beyond the arrays",
    "leak": "memory that grows with every call",
    "landing": "more than the workspace's own files brought into the commit of a win",
}

NO_KERNEL = ("landing",)
"""What is tried by the files of a workspace, before any of them is run: test_landing.py."""
