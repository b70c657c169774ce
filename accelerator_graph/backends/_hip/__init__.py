"""The rooms of the hip backend."""
