"""The data sets that a user can name: one data set, or one family in the same format, per file.

To add a data set, add a file with a ``Source``: it is found by itself. File layouts are those in which the data sets
are published. A source may import the rest of ``holdfast.data`` (``source`` is the contract, ``formats`` reads files)
and ``holdfast.core``.
"""

from holdfast.data.catalog import SourceStatus, data_folder, listing, load, source, sources
from holdfast.data.source import Download, FileSource, Source

__all__ = [
    "Download",
    "FileSource",
    "Source",
    "SourceStatus",
    "data_folder",
    "listing",
    "load",
    "source",
    "sources",
]
