"""The rooms of the cpu backend."""
