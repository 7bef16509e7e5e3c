"""Data sets, how they are split among clients, and the federation that results.

``sources`` holds the data sets that a user can name, ``formats`` reads their files, ``splits`` deals samples to
clients; ``user_arrays``, ``user_tables`` and ``user_datasets`` turn a user's own data into a ``DataSet``. May import
``holdfast.models`` and ``holdfast.core``.
"""
