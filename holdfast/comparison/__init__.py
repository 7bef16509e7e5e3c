"""Several methods on the same federations, cohorts and batches: plan, runs, statistics, tables."""
