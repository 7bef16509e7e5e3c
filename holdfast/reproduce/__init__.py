"""The papers' tables, run again: the published number, ours, and the difference."""
