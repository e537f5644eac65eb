"""Operators that are given as somebody's own code, as contracts: the room that generated contracts import."""
