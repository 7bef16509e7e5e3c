"""Pages and pictures: the report of a run or a comparison, and the picture of a split.

``page`` writes a report; ``study`` reads what a folder holds; ``charts`` describes every chart once, for plotly on the
page and for ``static_charts``. May import reproduce, comparison, and everything below them.
"""
