"""A third backend on the base for runtimes like CUDA's.

The runtime is made up: its names and numbers are those of CUDA's runtime under the prefix of MUSA's, which is not
installed here. Nothing in it is known of MUSA.
"""
