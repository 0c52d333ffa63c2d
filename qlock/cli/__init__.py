"""The command line: click and rich live here and nowhere else."""
