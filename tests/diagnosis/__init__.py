"""Whether a graph can be trusted."""
