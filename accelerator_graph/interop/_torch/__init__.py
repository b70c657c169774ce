"""The rooms of torch's interop module."""
