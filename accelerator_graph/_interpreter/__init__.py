"""Help with Python itself: forks and exits, ends of ``with`` blocks, threads, integers, exceptions."""
