"""The papers' tables, run again: the published number, ours, and the difference.

``paper_file`` reads a paper, ``selection`` and ``request`` say which of its cells to run, ``reproduction`` runs them,
``collect`` turns run folders into the records of ``table_schema``, ``store`` keeps these as ``reproduce.json``,
``claims`` judges them, and ``markdown`` and ``results`` show them. May import ``comparison`` and everything below it.
"""
