"""The real torch and its real autograd, captured on the CPU backend: as on a GPU, without one."""
