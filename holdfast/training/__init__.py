"""One run in memory: the server, the round, the simulation of all clients on this machine, and what is measured.

Imports engines and everything below.
"""
