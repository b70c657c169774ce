"""`graphed` and `make_graphed_callables`."""
