"""`verify`: is the replay of a graph right?

`inquiry` is the place to start: it has the rules of the verdict, and the experiments. `trial` runs a program
eagerly and replays its graph, and `case` says what is expected of the runs. `program` has what is run,
`places` the memory of arrays.
"""
