"""`make_graphed_callables`, and all of this room that is torch's alone.

`callables` is the place to start: it checks the arguments, captures, and puts the replays into the modules.
`captured_passes` runs the passes of one callable to be captured; `replay_autograd` replays them in a node of
autograd, on the streams of `pass_streams`, with the tensors of `static_tensors`.
"""
