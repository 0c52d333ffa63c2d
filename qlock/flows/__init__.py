"""Flows: one file is one verb; structs and a World in, structs out; prints nothing."""
