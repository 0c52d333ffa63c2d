"""Reports: one file is one way to show a comparison or a run, pure; found by its file name."""
