"""Bodies that the device repeats, in a capture that torch records."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ...errors import CaptureError
from ..base import PoolId

Uses = dict[PoolId, tuple[int, list[None]]]


class Bodies:
    """The bodies of one capture, of which `token` is the backend's.

    The `generators` take part in it, and `unused` takes part in no capture. `uses` gets, by the pool of a
    body, its `device` and torch's answer each time that it was told to use the pool.
    """

    def __init__(self, token: Any, device: int, generators: Sequence[Any], unused: Any, uses: Uses) -> None:
        self.token = token
        self._device, self._generators, self._unused, self._uses = device, generators, unused, uses
        self._native = sys.modules["torch"]._C
        self._pools: list[PoolId] = []
        """The pools of the bodies that are being recorded, the innermost last."""
        self._states: list[tuple[Any, Any]] = []
        """The generators that have another state meanwhile, each with its own."""

    @contextmanager
    def record(self, pool: PoolId, what: str) -> Iterator[None]:
        """Have this thread allocate from a pool, and refuse the numbers of generators that the graph knows.

        A replay moves these generators on once, and not once for each run of a body. Inside, they have the
        state of the unused one. If the block raises, `TorchRecorder.capture_abandon` leaves it.
        """
        depth = len(self._pools)
        if depth:  # torch asks for the pool that was begun first
            self._end(self._pools[-1])
        else:
            for generator in self._generators:
                self._states.append((generator, generator.graphsafe_get_state()))
                generator.graphsafe_set_state(self._unused)
        self._pools.append(pool)
        self._begin(pool)
        try:
            yield
        except RuntimeError as error:
            if "generator not in capture mode" not in str(error):
                raise
            raise CaptureError(
                f"{what}: a body draws random numbers of torch, which a replay moves on once, and not once "
                "for each run of a body; draw them before, or pass native=False.",
                reason="illegal_call",
            ) from error
        self.leave(depth)

    def leave(self, depth: int = 0) -> None:
        """Leave the bodies that are deeper than this. May be called again, and on any thread."""
        pools = self._pools
        inner = len(pools) > depth
        while len(pools) > depth:
            self._end(pools[-1])
            pools.pop()
        if pools and inner:
            self._begin(pools[-1])
        while self._states and not pools:
            generator, state = self._states[-1]
            generator.graphsafe_set_state(state)
            self._states.pop()

    def _begin(self, pool: PoolId) -> None:
        device, answers = self._uses.setdefault(pool, (self._device, []))
        answers.extend(map(self._native._cuda_beginAllocateCurrentThreadToPool, (device,), (pool,)))  # in C

    def _end(self, pool: PoolId) -> None:
        with suppress(RuntimeError):  # an interrupt has come before it began, or behind its end
            self._native._cuda_endAllocateToPool(self._device, pool)
