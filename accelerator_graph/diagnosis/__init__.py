"""Trust a graph: find out what is wrong with it, or with the machine that it runs on."""
