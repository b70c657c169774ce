"""Captures with breaks: graphs that call Python between their segments."""
