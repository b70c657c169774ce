"""Everything under `Graph`: captures, replays, streams, pools, and who destroys what."""
