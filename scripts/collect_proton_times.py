#!/usr/bin/env python3
"""Times every kernel of the studies into STUDY/proton_times.csv: options as `hillclimb study profile` takes them."""

import os
import sys

from checkout_command import ROOT, become_hillclimb

if __name__ == "__main__":
    os.chdir(ROOT)  # the studies are this checkout's
    become_hillclimb("study", "profile", *sys.argv[1:])
