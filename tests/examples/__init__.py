"""The examples: each where its lane has what it needs, and all of them on a GPU."""
