"""One module for each format, and what they read files with."""
