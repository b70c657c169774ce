"""What two vendors have in common, once."""
