"""The architectures that a user can name: one family per file.

To add a network, add a file with a ``Model``: it is found by itself. Files with a leading underscore are helpers. A
network may import ``holdfast.models.zoo`` (the contract), ``holdfast.models.dropout`` and ``holdfast.core``.
"""
