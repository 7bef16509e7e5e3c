"""Who runs a cohort's local training: ``loop`` (the reference) or ``vector`` (all clients as one batch)."""
