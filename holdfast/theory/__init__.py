"""What the papers prove or claim about their methods, computed: ``holdfast theory fedbug``.

``fedbug``, ``fednlr``, ``fedagg`` and ``fedmrur`` list the claims of one paper each and draw its picture; the other
modules compute what they need. May import everything below ``reports``.
"""
