"""Readers of downloaded files: IDX, pickles, images and archives.

Files are not trusted. A reader checks what a file claims before it allocates memory, never runs code from a file, and
reports a damaged file in one line. May import ``holdfast.core``.
"""
