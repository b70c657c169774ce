"""Find the call that broke a capture, and the work that a capture has missed."""
