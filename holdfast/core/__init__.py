"""What every other room may import: errors, named parameters, the expression language, randomness, files.

Imports nothing of Holdfast.
"""
