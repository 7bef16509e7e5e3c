"""How much validation data the commands that choose by it hold out, if the user does not say otherwise."""

HELD_OUT = {"tune": 0.1, "advise": 0.2}  # shares of every client's training data
