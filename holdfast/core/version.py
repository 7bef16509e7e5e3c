"""The version of Holdfast, stated once."""

__version__ = "0.1.0"
