#!/usr/bin/env python3
"""Serve the same model by transformers, to compare with.

Options are those of `hillclimb serve`, such as --mode static.
"""

from serve_custom_backend import serve

if __name__ == "__main__":
    serve("transformers")
