"""Suites: one file is one kind of exam, pure; found by its file name."""
