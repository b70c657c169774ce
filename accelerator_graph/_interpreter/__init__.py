"""What Python itself leaves open: forks and exits, the ends of `with` blocks, threads, integers."""
