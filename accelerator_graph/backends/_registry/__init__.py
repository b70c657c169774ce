"""How a name becomes a backend that is open."""
