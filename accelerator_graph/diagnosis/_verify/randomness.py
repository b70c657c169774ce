"""Random numbers: setting them to where they were, in every framework alike."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable
from typing import Any

from ..._core.streams import Stream
from ...interop import registry as interop


class RandomState:
    """Where the random numbers are that a function may draw, when this is made.

    That is Python's and NumPy's global generators, those of the frameworks that take part, and the generators
    among the values that the function can reach.
    """

    def __init__(self, stream: Stream, reachable: Iterable[Any]) -> None:
        values = list(reachable)
        self.generators: list[Any] = []
        """The generators of frameworks, which have to be registered with a graph."""
        self._restores: list[Callable[[], object]] = []
        python = random.getstate()
        self._restores.append(lambda: random.setstate(python))
        numpy = getattr(sys.modules.get("numpy"), "random", None)
        if numpy is not None:
            legacy = numpy.get_state()
            self._restores.append(lambda: numpy.set_state(legacy))
        for value in values:
            bits = getattr(value, "bit_generator", None)
            if bits is not None and hasattr(bits, "state"):
                self._keep(bits)
        for framework in interop.inspectable(stream.backend):
            own = [value for value in values if framework.takes_generator(value)]
            self.generators += own
            restore = framework.random_state(stream.device, own)
            if restore is not None:
                self._restores.append(restore)

    def _keep(self, bits: Any) -> None:
        state = bits.state
        self._restores.append(lambda: setattr(bits, "state", state))

    def restore(self) -> None:
        """Set all random numbers back."""
        for restore in self._restores:
            restore()
