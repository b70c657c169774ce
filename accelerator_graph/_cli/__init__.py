"""The command line, ``accelerator-graph`` or ``python -m accelerator_graph``."""
