"""`verify`: is the replay of a graph right?

`trial` is the place to start: it runs a program eagerly and replays its graph, and `inquiry` compares the
runs. `program` has what is run; `places` read and write the memory of arrays; `elements` compare contents.
"""
