"""Decides what to try and what to keep: controller, proposers, ledger, branch, command line."""
