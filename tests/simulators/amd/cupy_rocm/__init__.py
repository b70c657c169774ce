"""CuPy for ROCm on AMD's runtime without AMD's hardware: its kernels run as twins of the same source."""
