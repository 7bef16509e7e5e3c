"""``holdfast advise``: which method for this data? A race between methods, and what it found.

May import everything up to ``comparison``; the page about the answer is in ``reports``.
"""
