"""Several methods on the same federations, cohorts and batches.

``compare`` makes a ``plan``; a ``runner`` and an ``executor`` carry out its tasks; ``result`` turns run folders into
a study (``study_schema``), which ``tables`` and ``export`` print. May import flower, runs, and everything below them.
"""
