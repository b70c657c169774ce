"""What stands between two segments: an eager call, or a loop or a branch whose flag the host reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from .._arrays.arrays import copy_all, on_device, on_host
from .._arrays.containers import leaves_of, only_tuples, rebuild
from .._arrays.placement import extent, works_on_host, writable
from .._core.replay import HostPart
from ..errors import CaptureError, GraphStateError, UnsupportedError

if TYPE_CHECKING:
    from .._arrays.signatures import Reader
    from .._core.streams import Stream
    from ..interop.base import ModeState

_NOTHING = object()


class Live:
    """Stands in the arguments of an eager call for what a replay gives by name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class EagerCall(HostPart):
    """A call between two segments.

    Parameters
    ----------
    function : callable
        The function.
    place : tuple of str, str and int
        The function's name, and the file and line of the call.
    given : tuple
        Its arguments by position and by name, in containers of their own.
    reader : Reader
        Reads results.
    stream : Stream
        The captured stream.
    """

    __slots__ = (
        "_copies",
        "_fixed",
        "_function",
        "_given",
        "_reader",
        "_result",
        "_results",
        "_returned",
        "_signature",
        "lives",
        "modes",
        "streams",
        "valid_rows",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        place: tuple[str, str, int],
        given: Any,
        reader: Reader,
        stream: Stream,
    ) -> None:
        super().__init__("eager", *place)
        self._function = function
        self._given = given
        self._reader = reader
        self._copies = on_host if works_on_host(stream) else on_device
        self.held = (*given[0], *given[1].values())
        self.lives = tuple(each.name for each in leaves_of(given) if isinstance(each, Live))
        """The names of the live objects among the arguments."""
        self._fixed = not self.lives and all(map(only_tuples, self.held))
        self.streams: tuple[Stream, ...] = ()
        """Other streams on which it leaves work."""
        self.valid_rows: Callable[..., int] | None = None
        self.modes: tuple[ModeState, ...] = ()
        self._refuse_gradients(given, "takes")

    # ---- in the capture --------------------------------------------------------------------------

    def first(self, result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], stream: Stream) -> None:
        """Note what the call has returned in the capture, for which arguments.

        Raises
        ------
        CaptureError
            A replay could not tell whether it returns the same, or gradients would pass through it.
        """
        self._results = list[Any]()
        self._signature = self._read(result, self._results)
        self._returned = rebuild(result, lambda x: x)  # the program may change its containers
        self.held = (*self.held, self._returned)
        self._refuse_gradients(result, "returns")
        self._result = result if only_tuples(result) else _NOTHING
        self._join(stream)
        self._clear_the_rest(stream, args, kwargs)

    def _read(self, result: Any, arrays: list[Any]) -> object:
        """Return what has to be the same in every replay, and append the arrays."""
        try:
            signature = self._reader.read((result,), arrays)
            hash(signature)
        except TypeError as error:
            raise CaptureError(
                f"{self.what} returned a value that replays can't compare with theirs ({error}); return "
                "arrays, hashable values, or tuples, lists, dicts and dataclasses of them.",
                reason="other",
            ) from error
        return signature

    def _refuse_gradients(self, value: Any, verb: str) -> None:
        if self._reader.requires_grad(value):
            raise UnsupportedError(
                f"{self.what} {verb} a tensor that requires grad, and no gradients pass through a break: "
                "the backward pass would read what the capture has saved. Pass its detach(), or capture "
                "under no_grad().",
                capability="autograd",
            )

    @property
    def nbytes(self) -> int | None:
        """How large the arrays are that it has returned in the capture, without those that it was given."""
        given = {id(each) for each in leaves_of(self._given)}
        extents = [extent(each) for each in self._results if id(each) not in given]
        return None if None in extents else sum(each[1] - each[0] for each in extents if each)

    # ---- in a replay -----------------------------------------------------------------------------

    def run(self, stream: Stream, live: Mapping[str, object]) -> None:
        """Call it on the current stream, and copy what it returns to where the next segment reads it."""
        args, kwargs = self._given if self._fixed else self._rebuilt(live)
        try:
            result = self._function(*args, **kwargs)
            if self.streams:
                self._join(stream)
            if result is not self._result:
                self._take(result, stream)
            if self.valid_rows is not None:
                self._clear_the_rest(stream, args, kwargs)
        except BaseException as error:
            error.add_note(
                f"It came from {self.what}, in a replay; the next replay begins at the first segment."
            )
            raise

    def _rebuilt(self, live: Mapping[str, object]) -> Any:
        return rebuild(self._given, lambda x: live[x.name] if isinstance(x, Live) else x)

    def _take(self, result: Any, stream: Stream) -> None:
        arrays: list[Any] = []
        if self._read(result, arrays) != self._signature:
            difference = self._difference(result, arrays)
            raise GraphStateError(
                f"{self.what} returned something else than in the capture: {difference}. The segments read "
                "what it returned there; keep what may change inside the call."
            )
        pairs = [pair for pair in zip(self._results, arrays, strict=True) if pair[0] is not pair[1]]
        if pairs:
            self._copies(stream, copy_all, pairs)

    def _join(self, stream: Stream) -> None:
        """Have a stream wait for the work that the call has left on others."""
        for other in self.streams:
            stream.wait(other)

    def _clear_the_rest(self, stream: Stream, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Set the rows of the results that are not valid to zero."""
        if self.valid_rows is not None:
            self._copies(stream, _clear, self._results, self.valid_rows(*args, **kwargs))

    def _difference(self, result: Any, arrays: Sequence[Any]) -> str:
        """Say in what a result differs from the captured one."""
        if len(arrays) != len(self._results):
            return f"{len(arrays)} arrays, and not {len(self._results)}"
        for i, (x, was) in enumerate(zip(arrays, self._results, strict=True)):
            if self._read(x, []) != self._read(was, []):
                return f"array {i} has {_unlike(x, was)}"
        for x, was in zip(leaves_of(result), leaves_of(self._returned), strict=False):
            if self._read(x, []) != self._read(was, []):
                return f"{x!r}, and not {was!r}"
        return "other containers"


def _clear(arrays: Sequence[Any], rows: int) -> None:
    for x in arrays:
        x[rows:] = 0


def _unlike(x: Any, y: Any) -> str:
    """Say what one array has, and the other one has not."""
    facts, others = _facts(x), _facts(y)
    name = next((each for each in facts if facts[each] != others[each]), "address")
    return f"{name} {facts[name]}, and not {others[name]}"


def _facts(x: Any) -> dict[str, object]:
    """Return what arrays differ in, by what that is called in messages."""
    kind: type = type(x)
    memory: Any = x if hasattr(x, "shape") else memoryview(x)
    strides = memory.stride() if hasattr(memory, "stride") else getattr(memory, "strides", None)
    return {
        "shape": tuple(memory.shape),
        "type": getattr(memory, "dtype", None) or getattr(memory, "format", None),
        "strides": strides,
        "class": f"{kind.__module__}.{kind.__qualname__}",
        "device": getattr(x, "device", None),
        "requires_grad": getattr(x, "requires_grad", None),
        "writable": writable(x),
        "address": extent(x),
    }


class HostTest(HostPart):
    """A loop or a branch between segments, whose flag the host reads.

    Parameters
    ----------
    kind : {"while", "if"}
        Which of the two.
    place : tuple of str and int
        The file and line of the call.
    flag : object
        Its ``read(stream)`` waits for the stream and returns whether the flag is true.
    limit : int or None
        The most bodies of a loop.
    check_every : int
        How many bodies of a loop run for each reading.
    held : tuple
        What has to live as long.
    """

    __slots__ = ("__weakref__", "_check_every", "_count", "flag", "limit")

    kind: Literal["while", "if"]

    def __init__(
        self,
        kind: Literal["while", "if"],
        place: tuple[str, int],
        flag: Any,
        limit: int | None = None,
        check_every: int = 1,
        held: tuple[object, ...] = (),
    ) -> None:
        super().__init__(kind, kind, *place)
        self.held = held
        self._count = 0
        self.flag = flag
        self.limit = limit
        self._check_every = check_every

    def runs(self) -> int:
        """Return how many bodies the last run of a loop has run."""
        return self._count

    def taken(self, stream: Stream) -> int | None:
        """Return which body runs now; None if none does, or there is none for this flag."""
        return 0 if self.flag.read(stream) else 1 if self.kind == "if" else None

    def run(self, stream: Stream, bodies: Sequence[Callable[[], None]], done: int = 0) -> None:
        """Run bodies as the flag says; so many have run already."""
        if self.kind == "if":
            taken = None if done else self.taken(stream)
            if taken is not None and taken < len(bodies):
                bodies[taken]()
            return
        self._count = done
        while self._count != self.limit and (self._count % self._check_every or self.flag.read(stream)):
            bodies[0]()
            self._count += 1
