"""Does a graph still own what it reads: `Graph.check`, and the observer `ownership`."""
