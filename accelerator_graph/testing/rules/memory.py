"""`fill`, `copy` and `launch`."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any
from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import Case, applied, lacks, needs, raises


class MemoryRules(Case):
    """Work that is enqueued through the library runs on an idle stream and is recorded on a capturing one."""

    @needs(Capability.ENQUEUE)
    def test_fill_sets_bytes(self) -> None:
        """`fill` sets all bytes of the memory, or the first `nbytes`."""
        stream, buffer = self._stream(), self.used.buffer(16)
        stream.fill(buffer, 255)
        stream.fill(buffer, 7, 4)
        stream.fill(buffer, 9, 0)
        assert self._bytes(buffer) == b"\x07" * 4 + b"\xff" * 12

    @needs(Capability.ENQUEUE)
    def test_copy_copies_bytes(self) -> None:
        """`copy` copies all of the source, or the first `nbytes`, into memory that may be larger."""
        stream, source, target = self._stream(), self.used.buffer(8), self.used.buffer(16)
        stream.fill(source, 3)
        stream.copy(target, source)
        assert self._bytes(target) == b"\x03" * 8 + b"\x00" * 8
        stream.fill(source, 4)
        stream.copy(target, source, 2)
        stream.copy(target, source, 0)
        assert self._bytes(target) == b"\x04" * 2 + b"\x03" * 6 + b"\x00" * 8

    @needs(Capability.ENQUEUE)
    def test_fill_and_copy_are_recorded(self) -> None:
        """During a capture `fill` and `copy` are recorded; each replay runs them in order."""
        stream = self._stream()
        first, second = self.used.buffer(8), self.used.buffer(8)
        graph = self.graph(stream)
        with graph:
            stream.fill(first, 1)
            stream.copy(second, first)
            stream.fill(first, 2, 4)
        assert (self._bytes(first), self._bytes(second)) == (bytes(8), bytes(8))
        for _ in range(2):
            stream.fill(first, 9)
            stream.fill(second, 9)
            graph.replay()
            assert self._bytes(first) == b"\x02" * 4 + b"\x01" * 4
            assert self._bytes(second) == b"\x01" * 8
        if self.has(Capability.NODES):
            assert graph.num_nodes >= 3

    @needs(Capability.ENQUEUE)
    def test_wrong_memory_is_refused_before_anything_is_enqueued(self) -> None:
        """Values out of range, too many bytes and wrong types are immediate ValueErrors and TypeErrors."""
        stream, small, large = self._stream(), self.used.buffer(8), self.used.buffer(16)
        for what, use, kinds in self._wrong(stream, small, large):
            with raises(*kinds, doing=what):
                use()
        assert (self._bytes(small), self._bytes(large)) == (bytes(8), bytes(16))
        self.works(stream, self.graph(stream))

    @needs(Capability.ENQUEUE)
    def test_wrong_memory_does_not_hurt_a_capture(self) -> None:
        """Wrong arguments during a capture are the same errors; nothing is recorded, the capture goes on."""
        stream, small, large = self._stream(), self.used.buffer(8), self.used.buffer(16)
        cell, graph = self.cell(), self.graph(stream)
        with graph:
            self.enqueue(stream, cell)
            for what, use, kinds in self._wrong(stream, small, large):
                with raises(*kinds, doing=what):
                    use()
            self.enqueue(stream, cell)
        graph.replay()
        assert self.read(cell) == applied(2)
        assert (self._bytes(small), self._bytes(large)) == (bytes(8), bytes(16))
        if self.has(Capability.NODES) and self.used.nodes_per_piece:
            assert graph.num_nodes == 2 * self.used.nodes_per_piece

    @needs(Capability.ENQUEUE)
    def test_graph_keeps_the_memory_that_it_uses(self) -> None:
        """The memory that `fill` and `copy` use in a capture lives until the graph is reset."""
        stream = self._stream()
        source, target = self.used.buffer(8), self.used.buffer(8)
        try:
            references = weakref.ref(source), weakref.ref(target)
        except TypeError as error:
            raise SkipTest(str(error)) from error
        graph = self.graph(stream)
        with graph:
            stream.fill(source, 1)
            stream.copy(target, source)
        del source, target
        gc.collect()
        assert all(reference() is not None for reference in references)
        graph.replay()
        stream.synchronize()
        graph.reset()
        gc.collect()
        self.graph().reset()  # an ordinary call, which destroys all queued objects
        assert all(reference() is None for reference in references)

    @lacks(Capability.ENQUEUE)
    def test_without_the_capability_nothing_is_enqueued(self) -> None:
        """Without "enqueue", `fill`, `copy` and `launch` raise an `UnsupportedError` that says so."""
        stream = self.stream()
        uses: list[Callable[[], None]] = [
            lambda: stream.fill(bytearray(1), 0),
            lambda: stream.copy(bytearray(1), bytearray(1)),
            lambda: stream.launch(print),
        ]
        for use in uses:
            with raises(ag.UnsupportedError) as caught:
                use()
            assert caught.error.capability == Capability.ENQUEUE

    def _stream(self) -> ag.Stream:
        return self.stream()

    def _bytes(self, buffer: Any) -> bytes:
        self.synchronize()
        return self.used.read_bytes(buffer)

    def _wrong(
        self, stream: ag.Stream, small: Any, large: Any
    ) -> list[tuple[str, Callable[[], None], tuple[type[Exception], ...]]]:
        """Return the calls that must be refused, with the possible exceptions."""
        odd: Any = "3"
        return [
            ("stream.fill(small, 256)", lambda: stream.fill(small, 256), (ValueError,)),
            ("stream.fill(small, -1)", lambda: stream.fill(small, -1), (ValueError,)),
            ("stream.fill(small, odd)", lambda: stream.fill(small, odd), (TypeError,)),
            ("stream.fill(small, 1.0)", lambda: stream.fill(small, 1.0), (TypeError,)),  # type: ignore[arg-type]
            ("stream.fill(small, None)", lambda: stream.fill(small, None), (TypeError,)),  # type: ignore[arg-type]
            ("stream.fill(small, 1, 9)", lambda: stream.fill(small, 1, 9), (ValueError,)),
            ("stream.fill(small, 1, -1)", lambda: stream.fill(small, 1, -1), (ValueError,)),
            ("stream.fill(small, 1, odd)", lambda: stream.fill(small, 1, odd), (TypeError,)),
            ("stream.fill(object(), 1)", lambda: stream.fill(object(), 1), (TypeError,)),
            ("stream.fill(None, 1)", lambda: stream.fill(None, 1), (TypeError,)),
            ("stream.fill(bytes(8), 1)", lambda: stream.fill(bytes(8), 1), (TypeError, ValueError)),
            ("stream.copy(bytes(8), small)", lambda: stream.copy(bytes(8), small), (TypeError, ValueError)),
            ("stream.copy(small, large)", lambda: stream.copy(small, large), (ValueError,)),
            ("stream.copy(small, large, 9)", lambda: stream.copy(small, large, 9), (ValueError,)),
            ("stream.copy(large, small, 9)", lambda: stream.copy(large, small, 9), (ValueError,)),
            ("stream.copy(large, small, -1)", lambda: stream.copy(large, small, -1), (ValueError,)),
            ("stream.copy(large, small, odd)", lambda: stream.copy(large, small, odd), (TypeError,)),
            ("stream.copy(object(), small)", lambda: stream.copy(object(), small), (TypeError,)),
            ("stream.copy(small, object())", lambda: stream.copy(small, object()), (TypeError,)),
            ("stream.launch(object())", lambda: stream.launch(object()), (TypeError,)),
        ]
