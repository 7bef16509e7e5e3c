"""One run from start to end and on disk: setup, rounds, checkpoints, history, summary, trackers.

Imports training and everything below; other engines are reached through a table of import strings.
"""
