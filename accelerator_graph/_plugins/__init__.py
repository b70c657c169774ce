"""How plug-ins are found, backends and frameworks alike."""
