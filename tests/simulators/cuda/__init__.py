"""A CUDA driver in software: C that cuda-python loads as ``libcuda.so.1``, so that tests need no GPU."""
