"""How a cohort is trained on this machine: ``loop`` (the reference) or ``vector`` (all clients as one batch).

Local training itself is written once, in ``local_training``. Imports parts, method, data, models and core.
"""
