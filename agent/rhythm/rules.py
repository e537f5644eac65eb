"""What the rhythm goes by: block sizes, thresholds, and how much the past counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RhythmRules:
    """Block sizes and thresholds. Where nothing else is said, the figure was chosen on simulated landscapes
    (scripts/experiments/rhythm_landscapes.py, on seeds that are not reported)."""

    minimum_effect: float = 0.01
    """The case's: what differs by less is a tie."""
    max_first_sweep: int = 60
    """Most candidates of the first sweep."""
    first_sweep_patience: int = 8
    """Candidates without a win that end it."""
    max_sweep: int = 30
    """Most candidates of a later sweep."""
    sweep_patience: int = 5
    """Candidates without a win that end it."""
    sweep_after: int = 2
    """Wins that changed the source after which the knobs are swept again; one is enough where it brought knobs."""
    ablate_after: int = 3
    """Wins that changed the source after which the older wins are checked."""
    spread_configurations: int = 6
    """Timed configurations whose spread is compared with the noise."""
    max_edits: int = 24
    """Most candidates of an edit block; a family that keeps winning is interrupted for the sake of its new knobs."""
    edit_patience: int = 4
    """Candidates without a win that end it."""
    min_ties: int = 3
    """So many of the last `edit_patience` less one edits within the noise of 1.0x end it: a family whose edits are
    right and change nothing is left a candidate earlier than one whose edits lose."""
    max_failures: int = 3
    """Ideas in a row that come to nothing before they are timed end it."""
    unmoved_patience: int = 2
    """Candidates without a win that end a block whose wins left the profile as it was."""
    min_share_change: float = 0.05
    """A bucket whose share moved by less has not moved; profiles of one kernel differ by a few points."""
    max_ablations: int = 2
    """Most re-ablations in one block."""
    max_fillers: int = 8
    """Most sweep candidates of an edit block, tried while the model is still thinking."""
    discount: float = 0.95
    """What a candidate's gain counts for one candidate later, when what comes next is chosen."""
    prior_candidates: float = 4.0
    """Candidates' worth of average record that everything begins with, so that one lucky try is not a record."""
    optimism: float = 1.5
    """The average is taken that much higher, so that what was not tried lately gets its turn."""
