"""One idea per file. To add a part, write a ``Part`` into a new file here: it is found by its name."""
