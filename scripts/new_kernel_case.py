#!/usr/bin/env python3
"""Stamps a new case: --family F --case C [--device cuda] [--model-name NAME] [--model-path PATH] [--hardware TEXT]."""

import os
import sys

from checkout_command import ROOT, become_hillclimb

if __name__ == "__main__":
    os.chdir(ROOT)
    become_hillclimb("new-case", *sys.argv[1:])
