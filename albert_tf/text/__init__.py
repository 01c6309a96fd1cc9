"""Strings to ids: vocabularies, and the inputs of a model, in Python and in a graph."""
