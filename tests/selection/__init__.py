"""Which tests a run has: all, all but the slow ones, those of what changed; and what is said of it at the end."""
