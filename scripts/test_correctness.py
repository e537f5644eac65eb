#!/usr/bin/env python3
"""Brings every kernel of the studies before its gate: options as `hillclimb study test` takes them."""

import os
import sys

from checkout_command import ROOT, become_hillclimb

if __name__ == "__main__":
    os.chdir(ROOT)  # the studies are this checkout's
    become_hillclimb("study", "test", *sys.argv[1:])
