"""A third backend on the base for runtimes like CUDA's.

The runtime is made up. Its names and numbers are those of CUDA's runtime under the prefix of MUSA's, which is
not here: nothing in this folder is known of MUSA.
"""
