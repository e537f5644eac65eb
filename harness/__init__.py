"""Judges and contains: case schema, sandbox, candidate process, gate, duel, statistics. Imports nothing of agent."""
