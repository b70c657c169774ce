"""AMD's own HIP runtime without AMD's hardware: the library below it, which drives the GPU, in software."""
