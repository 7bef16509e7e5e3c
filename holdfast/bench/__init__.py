"""How fast this machine runs Holdfast, compared with plain PyTorch and other frameworks.

``suites`` is the command; ``cpu``, ``gpu``, ``scaling`` and ``startup`` measure, ``peers`` runs other frameworks, and
``hardware_limit`` computes what the machine could do at best. May import everything below ``reports``.
"""
