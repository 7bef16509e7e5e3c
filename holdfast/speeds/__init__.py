"""How fast the clients of a simulation are, how fast their links, and when they are there.

``client_speeds`` is the contract, ``speed_choice`` reads what ``--client-speeds`` names: a distribution, one per file,
or a file of the user's (``speed_file``). It may import ``holdfast.core``.
"""
