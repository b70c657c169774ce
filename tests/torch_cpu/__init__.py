"""The real torch, with its real autograd, captured on the CPU backend: what a GPU's torch does, without one."""
