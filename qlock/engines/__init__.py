"""Engines: one file or folder is one way to run llama.cpp; found by its name."""
