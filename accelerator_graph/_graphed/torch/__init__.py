"""`make_graphed_callables`: what is torch's alone."""
