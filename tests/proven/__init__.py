"""Skips slow tests that are proven: none of the files that they depend on has changed since they last passed."""
