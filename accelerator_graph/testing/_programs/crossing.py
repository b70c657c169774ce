"""Whether streams of two devices can wait for each other."""

from __future__ import annotations

import accelerator_graph as ag

from .._work import Work


def crosses(work: Work, there: Work) -> bool:
    """Return True if a stream of device 1 can wait for one of device 0 and back, in captures as well."""
    try:
        with ag.Stream(0, backend=work.backend) as stream, ag.Stream(1, backend=work.backend) as other:
            cell, elsewhere = work.new(), there.new()
            other.wait(stream)
            stream.wait(other)
            with ag.Graph(stream=stream) as graph:
                work.enqueue(stream, cell, 1, 1)
                other.wait(stream)
                there.enqueue(other, elsewhere, 1, 1)
                stream.wait(other)
            graph.replay()
            stream.synchronize()
    except (ag.CaptureError, ag.DriverError, ag.UnsupportedError):
        return False  # the contract leaves that to the backend
    return True
