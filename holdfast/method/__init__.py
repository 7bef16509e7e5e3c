"""The contract of a part, the checked sum of parts, named sums, and the description of a run.

Imports core, models and data.
"""
