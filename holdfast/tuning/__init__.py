"""The best setting of every method, found on validation data and judged on fresh seeds.

``tune`` makes a ``tune_plan`` with a ``search_space`` per method; ``trial_search`` runs the trials that ``sampling``
proposes and ``halving`` lets continue; ``fresh_seeds`` and ``tune_result`` judge the best. May import comparison, and
everything below it.
"""
