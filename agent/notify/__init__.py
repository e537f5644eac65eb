"""Posts about a climb: what is worth telling, how it is worded, and how it gets out without delaying the climb."""
