"""How plug-ins are found, loaded and checked: the same for backends and for frameworks."""
