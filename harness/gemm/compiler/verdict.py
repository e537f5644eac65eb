"""What the end of a compiler says: of its source, or of the machine."""

from __future__ import annotations

import re

CRASHES = "4|6|8|11"
"""Signals that a program gives itself. Others come from outside."""

FAULTS_OF_SOURCE = re.compile(
    rf"""
    ^.+?(\(\d+\)|:\d+):\ (fatal\ |catastrophic\ |internal\ compiler\ )?[Ee]rror\b      # at a place in a file
    |^\S+:\ internal\ compiler\ error:\ (Segmentation\ fault|Aborted)
    |^ptxas\ \S+,\ line\ \d+;\ (error|fatal)\b
    |^(ptxas|nvlink|cicc)\ *(error|fatal)\ *:                     # of a whole kernel, such as too much shared memory
    |^collect2:\ error:\ ld\ returned\ 1\b
    |\bdied\ due\ to\ signal\ ({CRASHES})\b                          # a tool of the compiler crashed over it
    |^(Segmentation\ fault|Aborted|Illegal\ instruction|Floating\ point\ exception)\b    # as the shell tells it
    """,
    re.MULTILINE | re.VERBOSE,
)
FAULTS_OF_MACHINE = re.compile(
    rf"""
    \bdied\ due\ to\ signal\ (?!({CRASHES})\b)\d+
    |\bKilled\b|^Terminated\b|\binstance\ of\ 'std::bad_alloc'
    |\b[Oo]ut\ of\ memory(\ allocating\ .*)?$|\bvirtual\ memory\ exhausted\b|\bMemory\ allocation\ failure\b
    |(No\ space\ left\ on\ device|Disk\ quota\ exceeded|Input/output\ error|Read-only\ file\ system)\.?$
    |(Cannot\ allocate\ memory|Too\ many\ open\ files|Resource\ temporarily\ unavailable)\.?$
    |(Stale\ file\ handle|Permission\ denied|[Tt]ext\ file\ busy)\.?$
    |^(/\S*/)?(ba|da)?sh:\ .*\bnot\ found$
    |\bCould\ not\ open\ (input|output)\ file\b
    """,
    re.MULTILINE | re.VERBOSE,
)
ABSENT_HEADER = re.compile(
    r"fatal error: (.+?): No such file or directory|cannot open source file \"([^\"]+)\""
)
QUOTED_SOURCE = re.compile(r"^[^\S\n].*$|(?<=static assertion failed).*$", re.MULTILINE)
"""Lines that a compiler shows of a source, and the text that a source gives to an assertion."""


def machine_fault(told: str, status: int) -> str:
    """Why a compiler that made nothing is no verdict on its source; empty where it is one.

    `told` is what it wrote in the locale C, `status` the exit status, negative for a signal. What cannot be told counts
    as the machine's fault: it would be compiled again, where a verdict would be kept.
    """
    told = QUOTED_SOURCE.sub("", told)
    if absent := ABSENT_HEADER.search(told):
        return f"finds no {absent[1] or absent[2]}; another --nvcc may have all headers of a CUDA toolkit"
    if found := FAULTS_OF_MACHINE.search(told):
        line = told[told.rfind("\n", 0, found.start() + 1) + 1 :].partition("\n")[0].strip()
        return f"was stopped ({line}); where memory is short, fewer --jobs take less of it"
    if FAULTS_OF_SOURCE.search(told):
        return ""
    last = told.strip().rpartition("\n")[2] or "it wrote nothing"
    return f"ended with status {status} and names no error in the source ({last})"
