"""Check a part of your own against the laws that every part of the library keeps: ``check_part(MyPart())``.

Imports runs and everything below.
"""

from holdfast.testing.laws import LawBroken
from holdfast.testing.part_check import check_part

__all__ = ["LawBroken", "check_part"]
