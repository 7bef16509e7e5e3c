"""Tasks: what a network is trained to do. Each says how outputs are judged, read and scored.

May import ``core`` alone.
"""
