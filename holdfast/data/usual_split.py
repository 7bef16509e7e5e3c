"""How data is split among clients if nobody says otherwise. Only constants: the command line starts without torch."""

GIVEN = "given"  # the split of data that brings clients
USUAL_SPLIT, USUAL_CLIENTS = "dirichlet(0.3)", 20  # for all other data
