"""Control flow in graphs: loops and branches whose flags the device computes."""
