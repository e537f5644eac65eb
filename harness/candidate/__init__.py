"""The other side of the border: the process that runs workspace code, and how the judge talks with it."""
