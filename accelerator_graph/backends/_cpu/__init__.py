"""The cpu backend: from the bottom up, work, threads, worker, graph, stream, capture."""
