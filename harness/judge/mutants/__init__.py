"""Results that are wrong on purpose, of which a contract's budget should accept none."""
