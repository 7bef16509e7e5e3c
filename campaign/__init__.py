"""A campaign that tries to break Holdfast: ``make campaign``; its last result is in docs/reliability.md.

Every part of the campaign makes as many cases as its share of the time allows. A case that does not end as promised is
a finding. The package is not installed with the library; it needs a POSIX system, because it forks.
"""
