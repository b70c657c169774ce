"""How a name, or a stream, leads to an opened backend."""
