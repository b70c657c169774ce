"""A double of torch's caching allocator: its snapshot has the shape that torch.cuda.memory documents.

It is not torch. A segment is what was got from the driver, and is cut into blocks; a freed block stays
"inactive" until it is given away again or the cache is emptied; a pool's segments serve that pool alone.
Memory comes from a function, so the double works on host memory and on a driver's.
"""

import sys
import traceback
import weakref

from accelerator_graph.interop import torch as interop_torch
from accelerator_graph.interop._torch.history import history
from accelerator_graph.interop.base import Framework

ALIGNMENT = 512
DEFAULT_POOL = (0, 0)


class Storage:
    """A block that somebody has. Freed when nobody has it any more."""

    def __init__(self, allocator, address, size):
        self._address, self._size = address, size
        weakref.finalize(self, allocator.free, address).atexit = False

    def data_ptr(self):
        return self._address

    def nbytes(self):
        return self._size


class Tensor:
    """What `ownership` and `Graph.retain` touch of a tensor."""

    __module__ = "doubles.tensors"

    def __init__(self, storage):
        self._storage, self.shape, self.dtype = storage, (storage.nbytes(),), "uint8"

    def untyped_storage(self):
        return self._storage

    def data_ptr(self):
        return self._storage.data_ptr()

    def stride(self):
        return (1,)

    def element_size(self):
        return 1


class CachingAllocator:
    """Segments and blocks. `allocate` gets memory from the driver and `release` gives it back."""

    def __init__(self, allocate, release, segment_size=1 << 14):
        self._allocate, self._release, self._segment_size = allocate, release, segment_size
        self.segments = []
        self.traces = None
        """The history of allocations, if that is recorded."""
        self.snapshots = 0

    def malloc(self, nbytes, pool=DEFAULT_POOL):
        size = max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT
        block = next(
            (
                block
                for segment in self.segments
                if segment["segment_pool_id"] == pool
                for block in segment["blocks"]
                if block["state"] == "inactive" and block["size"] >= size
            ),
            None,
        )
        if block is None:
            total = max(size, self._segment_size)
            address = self._allocate(total)
            block = {
                "address": address,
                "size": total,
                "requested_size": 0,
                "state": "inactive",
                "frames": [],
            }
            self.segments.append(
                {
                    "device": 0,
                    "address": address,
                    "total_size": total,
                    "stream": 0,
                    "segment_type": "small",
                    "segment_pool_id": pool,
                    "is_expandable": False,
                    "frames": [],
                    "blocks": [block],
                }
            )
        self._cut(block, size)
        block.update(state="active_allocated", requested_size=nbytes)
        self._note("alloc", block)
        return Storage(self, block["address"], size)

    def tensor(self, nbytes, pool=DEFAULT_POOL):
        return Tensor(self.malloc(nbytes, pool))

    def free(self, address):
        for segment in self.segments:
            for block in segment["blocks"]:
                if block["address"] == address and block["state"] != "inactive":
                    self._note("free_requested", block)
                    self._note("free_completed", block)
                    block["state"] = "inactive"

    def empty_cache(self, in_use=()):
        """Give back what nobody has; the segments of pools that graphs use stay."""
        for segment in list(self.segments):
            idle = all(block["state"] == "inactive" for block in segment["blocks"])
            if idle and segment["segment_pool_id"] not in in_use:
                self.segments.remove(segment)
                self._release(segment["address"])

    def memory_snapshot(self, include_traces=True):
        self.snapshots += 1
        return [
            segment
            | {
                "allocated_size": sum(b["size"] for b in segment["blocks"] if b["state"] != "inactive"),
                "blocks": [dict(block) for block in segment["blocks"]],
            }
            for segment in self.segments
        ]

    def _snapshot(self):
        return {"segments": self.memory_snapshot(), "device_traces": [self.traces or []]}

    def _cut(self, block, size):
        if block["size"] > size:
            [blocks] = [each["blocks"] for each in self.segments if block in each["blocks"]]
            rest = dict(block, address=block["address"] + size, size=block["size"] - size)
            block["size"] = size
            blocks.insert(blocks.index(block) + 1, rest)

    def _note(self, action, block):
        if self.traces is not None:
            frames = [
                {"filename": each.filename, "line": each.lineno, "name": each.name}
                for each in reversed(traceback.extract_stack(sys._getframe(2)))
                if each.filename not in (__file__, weakref.__file__)
            ]
            self.traces.append(
                {
                    "action": action,
                    "addr": block["address"],
                    "size": block["size"],
                    "stream": 0,
                    "frames": frames,
                }
            )


def framework(allocator, backend_name):
    """Return a class of a framework that has this allocator, and reads its snapshot as torch's is read."""

    class Caching(Framework):
        api_version = 1
        used = None

        def backend(self):
            return backend_name

        def observe(self, pool, used):
            type(self).used = used
            return lambda: setattr(type(self), "used", None)

        def blocks(self):
            return interop_torch.blocks(allocator.memory_snapshot())

        def history(self, address):
            return history(sys.modules["doubles"], address)

    return Caching
