"""The parts: one idea of federated learning per file, its client half and its server half together.

To add one, write a ``Part`` in a new file: it is discovered by its ``name``. Files with a leading underscore hold what
several parts share. Imports method, models and core.
"""
