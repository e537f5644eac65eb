"""What ptxas says of each kernel, with -v: registers, memory, spills, and what it gave up."""

from __future__ import annotations

import re

from hillclimb.harness.records.record import Record

ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
PROPERTIES = re.compile(r"Function properties for (\S+)")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
LOSS = re.compile(
    r"\((C75\d\d)\) ?Potential Performance Loss: .*?(?:in(?: the)? function '?([^'\s]+)'?|$)", re.MULTILINE
)


class KernelFacts(Record):
    """One kernel as it was compiled."""

    symbol: str
    registers: int = 0
    """Of a thread."""
    shared_bytes: int = 0
    """Static shared memory of a thread block."""
    spill_bytes: int = 0
    """Stored and loaded, of a thread."""
    losses: tuple[str, ...] = ()
    """ptxas's own numbers of what it gave up. C7510 and others of that ten: wgmma instructions wait for each other."""


def read_kernels(diagnostics: str) -> tuple[KernelFacts, ...]:
    """Of everything that the compiler wrote; what is not of ptxas is passed over."""
    facts: dict[str, dict[str, int]] = {}
    of = ""
    for line in diagnostics.splitlines():
        if found := ENTRY.search(line):
            of = found[1]
            facts.setdefault(of, {})
        elif found := PROPERTIES.search(line):
            of = found[1]
        elif of in facts:
            facts[of] |= _numbers(line)
    losses = [(number, symbol) for number, symbol in LOSS.findall(diagnostics)]
    return tuple(
        KernelFacts(symbol=symbol, losses=_losses_of(symbol, losses), **numbers)
        for symbol, numbers in facts.items()
    )


def _numbers(line: str) -> dict[str, int]:
    if found := SPILLS.search(line):
        return {"spill_bytes": int(found[1]) + int(found[2])}
    if found := REGISTERS.search(line):
        shared = SHARED.search(line)
        return {"registers": int(found[1]), "shared_bytes": int(shared[1]) if shared else 0}
    return {}


def _losses_of(symbol: str, losses: list[tuple[str, str]]) -> tuple[str, ...]:
    """A loss that names no kernel is each one's."""
    return tuple(dict.fromkeys(number for number, of in losses if of in ("", symbol)))
