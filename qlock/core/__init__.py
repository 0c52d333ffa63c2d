"""Pure nouns and arithmetic: no files, clock, network, environment or unseeded randomness."""
