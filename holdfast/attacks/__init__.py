"""What clients that lie do: one kind of attack per file, such as ``sign_flip(0.2)``.

To add an attack, add a file: it is discovered automatically. It may import ``holdfast.attacks.attack`` (the contract)
and ``holdfast.core``.
"""
