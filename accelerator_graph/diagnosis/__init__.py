"""Trust a graph: find out what is wrong with it."""
