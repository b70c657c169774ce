"""The rooms of the cuda backend."""
