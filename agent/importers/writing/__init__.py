"""The files of an imported case, as text."""
