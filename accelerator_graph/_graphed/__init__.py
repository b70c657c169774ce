"""`graphed` and `make_graphed_callables`: functions that are captured once and replayed at every call.

`decorator` has `graphed`, and `function` is the place to start: `Graphed.__call__` reads a call, finds its
graph in the `cache` and replays it, or runs the function.

- Reading a call: `arguments` puts the arguments in order, and `_arrays.signatures` finds the arrays in them
  and makes the key.
- Capturing and replaying it: `recorded_call`, with `static_inputs` for the arguments and `results` for the
  result, which refuse what no replay would repeat. `call_order` finds the stream of a replay
  and makes the calls wait for each other.
- Inputs without copies on the host: `input_nodes`. Inputs without any copies: `binding`.

`torch` has `make_graphed_callables`, which replays the backward pass as well.
"""
