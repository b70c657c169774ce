"""`make_graphed_callables`, and all of this room that is torch's alone.

`callables` is the place to start: it checks the arguments, captures, and puts the replays into the modules.
`captured_passes` runs the passes of one callable, and captures each; `replay_autograd` replays them in a node
of autograd, on the streams of `pass_streams`.
"""
