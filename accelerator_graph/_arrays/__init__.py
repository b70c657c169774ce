"""Arrays of any library, and the arguments and results that hold them: what `graphed` and `verify` stand on.

- `arrays`: which objects are arrays, and how each type is described and copied.
- `placement`: where the memory of an array is, and whether a graph can read and write it.
- `containers`: tuples, lists, dicts and dataclasses, nested at will.
- `values`: how values that are not arrays are described, for signatures.
- `signatures`: what the calls of one graph have in common.
"""
