"""What the papers prove or claim about their methods, computed: ``holdfast theory fedbug``."""
