"""Metrics: figures that say how good a model is, a file each.

May import ``tasks`` and ``core``.
"""
