"""Networks, and what the rest of the package sees of a network: one flat vector with named slices.

``networks`` holds the architectures that a user can name and ``zoo`` looks them up; ``net`` wraps any module as a pure
function of a vector, and ``layout`` names the vector's slices. May import ``holdfast.core`` only.
"""
