"""The papers' tables, run again: the published number, ours, and the difference.

``paper_file`` reads a paper, ``readings`` decides what it leaves open, ``selection`` and ``request`` say which of its
cells to run, ``reproduction`` runs them, ``collect`` turns run folders into the records of ``table_schema``, ``store``
keeps these as ``reproduce.json``, ``baseline_levels`` and ``claims`` judge them, and ``markdown`` and ``results`` show
them. May import ``comparison`` and everything below it.
"""
