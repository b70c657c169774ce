"""The parts of runtimes like CUDA's: names, numbers, handles, and calls that are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import chain
from typing import Any, ClassVar, NoReturn, TypeGuard, TypeVar
from weakref import ref

from ..._interpreter.interruptions import Between, Identity, Section, this_thread
from ...errors import AcceleratorGraphError, DriverError, Reason, driver_error, explain
from ..base import CaptureMode, CaptureStatus

Result = TypeVar("Result")

CAPTURE_MODES: tuple[CaptureMode, ...] = ("thread_local", "global", "relaxed")
CAPTURE_STATUSES = (CaptureStatus.NONE, CaptureStatus.ACTIVE, CaptureStatus.INVALIDATED)

ACTIVE = CAPTURE_STATUSES.index(CaptureStatus.ACTIVE)

LEGACY_STREAMS = (0, 1)
PER_THREAD_STREAM = 2
SPECIAL_STREAMS = frozenset((*LEGACY_STREAMS, PER_THREAD_STREAM))
"""Handles that mean a stream of whichever context or device is current."""

ILLEGAL_STATE = 401
NOT_READY = 600
INVALIDATED = 901

NON_BLOCKING = 1
WITHOUT_TIMING = 2
"""Flags of a new stream and of a new event."""

_ASKED = object()
"""Stands for the answer to a destruction that was interrupted inside of the call."""

_NOTHING_TO_DO = nullcontext()


class Names:
    """The names of the runtime's functions, without the prefix: those of CUDA's runtime.

    A subclass gives the prefix, ``class MyNames(Names, prefix="my")``, and the names that differ. The
    comments list what a function takes, and after the arrow what it returns beside the code.
    """

    get_current = "GetDevice"  # -> device
    set_current = "SetDevice"  # device
    stream_place = "StreamGetDevice"  # stream -> device
    exchange_mode = "ThreadExchangeStreamCaptureMode"  # mode -> former mode
    memory_info = "MemGetInfo"  # -> free, total
    graph_memory = "DeviceGetGraphMemAttribute"  # device, attribute -> bytes
    priority_range = "DeviceGetStreamPriorityRange"  # -> least, greatest
    create_stream = "StreamCreateWithPriority"  # flags, priority -> stream
    destroy_stream = "StreamDestroy"  # stream
    query_stream = "StreamQuery"  # stream
    synchronize_stream = "StreamSynchronize"  # stream
    wait_event = "StreamWaitEvent"  # stream, event, flags
    create_event = "EventCreateWithFlags"  # flags -> event
    record_event = "EventRecord"  # event, stream
    destroy_event = "EventDestroy"  # event
    query_event = "EventQuery"  # event
    synchronize_event = "EventSynchronize"  # event
    elapsed_time = "EventElapsedTime"  # start, end -> milliseconds
    fill = "MemsetAsync"  # address, value, bytes, stream
    copy = "MemcpyAsync"  # target, source, bytes, (kind,) stream
    launch_kernel = "LaunchKernel"  # kernel, three and three dimensions, bytes, stream, arguments, None
    host_memory = "HostAlloc"  # bytes, flags -> address
    begin_capture = "StreamBeginCapture"  # stream, mode
    end_capture = "StreamEndCapture"  # stream -> graph
    is_capturing = "StreamIsCapturing"  # stream -> status
    capture_info = "StreamGetCaptureInfo"  # stream -> status, number, graph, ...
    capture_after = "StreamUpdateCaptureDependencies"  # stream, nodes, (None,) their number, 0: beside others
    add_graph = "GraphAddChildGraphNode"  # graph, nodes, their number, graph -> node
    add_record = "GraphAddEventRecordNode"  # graph, nodes, their number, event -> node
    add_wait = "GraphAddEventWaitNode"  # graph, nodes, their number, event -> node
    destroy_node = "GraphDestroyNode"  # node
    nodes = "GraphGetNodes"  # graph -> nodes, their number
    dump = "GraphDebugDotPrint"  # graph, path, flags
    instantiate = "GraphInstantiateWithFlags"  # graph, flags -> executable
    upload = "GraphUpload"  # executable, stream
    launch = "GraphLaunch"  # executable, stream
    destroy_graph = "GraphDestroy"  # graph
    destroy_executable = "GraphExecDestroy"  # executable

    def __init_subclass__(cls, *, prefix: str) -> None:
        for what in vars(Names):
            if not what.startswith("_"):
                setattr(cls, what, prefix + getattr(cls, what))


def reasons(device_lost: Iterable[int]) -> dict[int, Reason]:
    """Return the neutral reason for each error code.

    Parameters
    ----------
    device_lost : iterable
        The codes after which every further call answers the same, or has no context to run in.
    """
    return {
        2: "out_of_memory",
        900: "illegal_call",  # StreamCaptureUnsupported
        INVALIDATED: "invalidated",
        902: "foreign_capture",  # StreamCaptureMerge: two captures would have become one
        903: "foreign_capture",  # StreamCaptureUnmatched: begun on another stream
        904: "unjoined",
        905: "foreign_capture",  # StreamCaptureIsolation: waiting for what was recorded outside
        906: "default_stream",  # StreamCaptureImplicit
        907: "illegal_call",  # CapturedEvent
        908: "wrong_thread",
        **dict.fromkeys(device_lost, "device_lost"),
    }


def is_handle(obj: object) -> TypeGuard[int]:
    """Return True if an object is an `int` that could be a handle."""
    return isinstance(obj, int) and not isinstance(obj, bool) and 0 <= obj < 1 << 64


# ---- handles, with the place that they belong to -----------------------------------------------------


class Handle:
    """A handle of the runtime, with the context or the device that it belongs to."""

    __slots__ = ("destroyed", "handle", "place")

    def __init__(self, handle: Any, place: Any) -> None:
        self.handle: Any = handle
        self.place: Any = place
        self.destroyed: list[Any] | None = None
        """What the runtime answered, once it was asked to destroy this."""


class Graph(Handle):
    """A recorded graph."""

    __slots__ = ()


class Executable(Handle):
    """An instantiated graph."""

    __slots__ = ()


class Event(Handle):
    """An event. If it was recorded in a capture, it may have its number and the nodes before the event."""

    __slots__ = ("capture", "nodes")

    def __init__(self, handle: Any, place: Any, capture: int = 0, nodes: Sequence[Any] = ()) -> None:
        super().__init__(handle, place)
        self.capture: int = capture
        self.nodes: Sequence[Any] = nodes


class ExternalEvent(Event):
    """An event that crosses the border of a capture."""

    __slots__ = ()


class Position:
    """Where a stream is in a capture, whose number is 0 if there is none or it is invalidated."""

    __slots__ = ("capture", "graph", "nodes", "status")

    def __init__(self, status: CaptureStatus, capture: int, graph: Any, nodes: Sequence[Any]) -> None:
        self.status: CaptureStatus = status
        self.capture: int = capture
        self.graph: Any = graph
        self.nodes: Sequence[Any] = nodes  # which the stream's next one will follow


_NOWHERE = Position(CaptureStatus.NONE, 0, None, ())


class Capture(Handle):
    """A capture on the stream `handle`, which this thread begins."""

    __slots__ = ("mode", "over", "thread")

    def __init__(self, handle: Any, place: Any, mode: CaptureMode) -> None:
        super().__init__(handle, place)
        self.mode: CaptureMode = mode
        self.over: bool = False
        self.thread: ref[Identity] = ref(this_thread())


# ---- calls -----------------------------------------------------------------------------------------


class Driver:
    """The runtime, initialised: its functions, checked, on the right device, without disturbing captures.

    A place is what has to be current for a call: a device, by its number. A subclass for a runtime with
    contexts overrides `place`, `place_of`, `device_of` and `ask_device`.

    Parameters
    ----------
    name : str
        The name of the backend.
    api : object
        The binding: it has the functions.

    Attributes
    ----------
    stream_type, pointer_type, graph_type, executable_type : type
        The binding's types of handles, made of an address. By default all of them are `int`.
    success : object
        The code of success, as the binding returns it: codes are compared by identity.
    capture_modes : dict
        The binding's values of the three capture modes.
    instantiate_flags, host_flags, verbose : object
        Flags of an executable, of memory of the host that all devices can write, and of a full drawing.
    copy_kind : tuple
        The argument with which the runtime finds out itself between which memories it copies, if it has one.
    edge_data : tuple
        The argument of `Names.capture_after` that is for the data of edges, if the function has it.
    pinned : list
        The addresses of memory of the host that no reading uses now.
    graph_memory : tuple
        The attributes of memory that graphs use, and that is reserved for them.
    ask_current, ask_status, ask_capture, relaxed, wait : callable
        Return the current place as a number, and the status and the facts of a stream's capture; make a place
        current and the capture mode relaxed; wait for a stream. Each capture makes these calls, so a subclass
        may have them in C.
    """

    __slots__ = (
        "_ending",
        "api",
        "ask_capture",
        "ask_current",
        "ask_status",
        "capture_function",
        "capture_modes",
        "copy_kind",
        "device_count",
        "edge_data",
        "executable_type",
        "graph_memory",
        "graph_type",
        "host_flags",
        "instantiate_flags",
        "launch_broke",
        "launch_failed",
        "name",
        "pinned",
        "pointer_type",
        "relaxed",
        "stream_type",
        "success",
        "verbose",
        "wait",
    )

    names: ClassVar[type[Names]]
    raises: ClassVar[tuple[type[Exception], ...]] = ()
    """What the binding raises, for `broke`."""

    device_count: int

    def __init__(self, name: str, api: Any) -> None:
        self.name: str = name
        self.api: Any = api
        self.stream_type: Any = int
        self.pointer_type: Any = int
        self.graph_type: Any = int
        self.executable_type: Any = int
        self.success: Any = 0
        self.capture_modes: Mapping[CaptureMode, Any] = {"global": 0, "thread_local": 1, "relaxed": 2}
        self.instantiate_flags: Any = 0
        self.host_flags: Any = 0
        self.verbose: Any = 1
        self.copy_kind: tuple[Any, ...] = ()
        self.edge_data: tuple[Any, ...] = ()
        self.graph_memory: tuple[Any, Any] = 0, 2
        self.pinned: list[int] = []
        self._ending: dict[int, Handle] = {}
        names = self.names
        # made once, since every bound launch holds them
        self.launch_broke: Callable[[Exception], NoReturn] = partial(self.broke, names.launch)
        self.launch_failed: Callable[[Any], NoReturn] = partial(self.failed, names.launch)
        self.ask_current: Callable[[], int] = partial(self.call, names.get_current)
        self.ask_status: Callable[[Any], int] = partial(self.call, names.is_capturing)
        self.capture_function: str = names.capture_info
        self.ask_capture: Callable[[Any], tuple[int, int] | None] = self.capture_info
        self.relaxed: Callable[[Any], Relaxed] = partial(Relaxed, self)
        self.wait: Callable[[Any], object] = partial(self.call, names.synchronize_stream)

    def explain(self, function: str, code: Any) -> tuple[str, str, Reason]:
        """Return the name of a code, what it says about a function, and the neutral reason."""
        raise NotImplementedError

    def broke(self, function: str, error: Exception) -> NoReturn:
        """Raise the error for an exception that the binding raised."""
        raise error

    def clear(self) -> None:
        """Clear this thread's last error, if the runtime has one: a framework would take it for its own."""

    def call(self, function: str, *args: Any) -> Any:
        """Call a function and return what it answers: nothing, one value, or a tuple of several.

        Raises
        ------
        DriverError
            The runtime answered an error.
        UnsupportedError
            The installed runtime does not have the function.
        """
        try:
            answer = getattr(self.api, function)(*args)
        except self.raises as error:
            self.broke(function, error)
        if answer[0] is not self.success:
            self.failed(function, answer[0])
        return answer[1] if len(answer) == 2 else answer[1:] or None

    def answer(self, function: str, *args: Any) -> tuple[Any, ...]:
        """Call a function and return its code and values, unchecked."""
        try:
            answer: tuple[Any, ...] = getattr(self.api, function)(*args)
        except self.raises as error:
            self.broke(function, error)
        return answer

    def keep(self, answers: list[Any], function: str, arg: Any, *before: Any) -> None:
        """Like `answer`, but append `before` and the answer to a list, where no interrupt can lose them."""
        try:
            answers.extend(chain(before, map(getattr(self.api, function), (arg,))))
        except self.raises as error:
            self.broke(function, error)

    def undo(self, function: str, arg: Any) -> None:
        """Call a function that sets something back, whatever it answers. Makes no error, which could fail."""
        try:  # noqa: SIM105 (an interrupt in `suppress` would come before the call)
            getattr(self.api, function)(arg)
        except self.raises:
            pass

    def checked(self, function: str, answer: tuple[Any, ...]) -> Any:
        """Return the values of an answer, or raise its error."""
        if answer[0] is not self.success:
            self.failed(function, answer[0])
        return answer[1] if len(answer) == 2 else answer[1:] or None

    def failed(self, function: str, code: Any) -> NoReturn:
        """Raise the error for a code that is not success."""
        self.clear()
        name, detail, reason = self.explain(function, code)
        raise driver_error(
            backend=self.name, call=function, code=int(code), code_name=name, reason=reason, detail=detail
        )

    def is_done(self, function: str, handle: Any) -> bool:
        """Return the answer of a query; raise its error."""
        answer = self.answer(function, handle)
        if answer[0] == NOT_READY:
            return False
        self.checked(function, answer)
        return True

    def destroy(self, function: str, handle: Handle, *, disturbs: bool = True) -> None:
        """Destroy what a handle stands for, unless a call that was interrupted has done so.

        With `disturbs` False, the function needs no context and disturbs no capture.
        """
        answers = handle.destroyed = handle.destroyed or []
        if not answers:
            what = answers, function, handle.handle, _ASKED
            if disturbs:
                self.relaxed(handle.place).run(self.keep, *what)
            else:
                self.keep(*what)
        if answers[-1] is not _ASKED:
            self.checked(function, answers[-1])

    def destroy_stream(self, stream: Any) -> None:
        """Destroy a stream, unless a call that was interrupted has done so."""
        key = id(stream)  # its handle may be another thread's new stream as soon as this one is destroyed
        ending = self._ending.get(key)
        if ending is None:
            ending = self._ending[key] = Handle(stream, self.place_of(stream))
        try:
            self.destroy(self.names.destroy_stream, ending)
        except DriverError:
            del self._ending[key]
            raise
        del self._ending[key]  # no call after it: an interrupt there would destroy the stream again

    def new_event(self, stream: Any, timed: bool = False) -> Any:
        """Return a new event that marks the present end of a stream's work."""
        event = self.call(self.names.create_event, 0 if timed else WITHOUT_TIMING)
        try:
            self.call(self.names.record_event, event, stream)
        except BaseException:
            self.answer(self.names.destroy_event, event)
            raise
        return event

    def stream(self, handle: Any) -> Any:
        """Return a handle of a stream as an object of the binding."""
        return handle if type(handle) is self.stream_type else self.stream_type(int(handle))

    def graph(self, handle: Any) -> Any:
        """Return a handle of a graph as an object of the binding."""
        return handle if type(handle) is self.graph_type else self.graph_type(int(handle))

    def memory(self, obj: Any) -> Any:
        """Return the address of a pointer of the binding; any other object as it is."""
        return int(obj) if isinstance(obj, self.pointer_type) else obj

    def capture_info(self, stream: Any) -> tuple[int, int] | None:
        """Return the number of the capture of a stream, and how many nodes it has.

        None if there is no capture, or it is broken.
        """
        status, number, graph, *_ = self.call(self.capture_function, stream)
        if int(status) != ACTIVE or not int(graph or 0):
            return None
        return int(number), self.node_count(graph)

    def position(self, stream: Any) -> Position:
        """Return where a stream is in a capture. The legacy stream never is; asking it may answer 906."""
        if int(stream) in LEGACY_STREAMS:
            return _NOWHERE
        answer, number, graph, nodes, *_, count = self.call(self.capture_function, stream)
        status = CAPTURE_STATUSES[int(answer)]
        active = status is CaptureStatus.ACTIVE
        return Position(status, int(number) if active else 0, graph, self.listed(nodes, count))

    def listed(self, nodes: Any, count: int) -> Sequence[Any]:
        """Return the nodes of an answer."""
        return nodes[:count] if count else ()

    def array(self, nodes: Sequence[Any]) -> Any:
        """Return nodes as the binding's functions take them."""
        return [*nodes]

    def follow(self, stream: Any, nodes: Sequence[Any], *, others: bool) -> None:
        """Let the next node recorded on a stream follow these nodes, beside the others or instead of them."""
        call = self.names.capture_after, stream, self.array(nodes), *self.edge_data
        self.call(*call, len(nodes), 0 if others else 1)

    def add(self, stream: Any, function: str, what: Any) -> None:
        """Record a node on a capturing stream by the function that adds it to a graph."""
        here = self.position(stream)
        if here.status is CaptureStatus.INVALIDATED:
            raise self.refused(function, "invalidated", explain("invalidated"))
        node = self.call(function, here.graph, self.array(here.nodes), len(here.nodes), what)
        try:
            self.follow(stream, [node], others=False)
        except BaseException:
            self.answer(self.names.destroy_node, node)
            raise

    def refused(self, call: str, reason: Reason, fact: str) -> DriverError:
        """Return the error of a call that the runtime would have accepted or not explained."""
        text = f"backend {self.name!r}: {call}: {fact}."
        return DriverError(text, backend=self.name, call=call, reason=reason)

    def status_of(self, capture: Capture) -> int:
        """Return the status of the stream of a capture; active if the runtime does not report."""
        with suppress(AcceleratorGraphError):
            call = self.call, self.names.is_capturing
            return int(self.within(capture.place, *call, capture.handle))
        return ACTIVE

    def node_count(self, graph: Any) -> int:
        """Return the number of a graph's nodes."""
        count: int = self.call(self.names.nodes, graph)[1]
        return count

    # ---- places --------------------------------------------------------------------------------

    def place(self, device: int) -> Any:
        """Return the place to be in for work on a device."""
        return device

    def place_of(self, stream: Any) -> Any:
        """Return the place of a stream."""
        if int(stream) in SPECIAL_STREAMS:
            return self.ask_current()
        return int(self.call(self.names.stream_place, stream))

    def device_of(self, stream: Any) -> int:
        """Return the number of a stream's device: the current one for the special streams."""
        device: int = self.place_of(stream)
        return device

    def ask_device(self) -> int:
        """Return the number of the current device."""
        return self.ask_current()

    def current(self, place: Any) -> AbstractContextManager[None]:
        """Make a place current on this thread; afterwards the caller's is current as before.

        It is set, not pushed, because setting can be undone wherever an interrupt strikes.
        """
        before = self.ask_current()
        if before == int(place):
            return _NOTHING_TO_DO
        return self.exchanged(before, place)

    def exchanged(self, before: int, place: Any) -> AbstractContextManager[None]:
        """Make a place current that is not; afterwards `before` is, which was asked for."""
        return Between(
            partial(self.call, self.names.set_current, place),
            partial(self.undo, self.names.set_current, before),
        )

    def within(self, place: Any, work: Callable[..., Result], *args: Any) -> Result:
        """Return ``work(*args)``, done while a place is current: faster than a ``with`` statement."""
        before = self.ask_current()
        if before == int(place):
            return work(*args)
        with self.exchanged(before, place):
            return work(*args)


class Relaxed(Section):
    """Makes a place current, and exchanges the thread's capture mode for the relaxed one.

    Calls made inside disturb no capture, not even this thread's.
    """

    __slots__ = ("_before", "_driver", "_mode", "_place")

    def __init__(self, driver: Driver, place: Any) -> None:
        self._driver = driver
        self._place = place
        self._before: int | None = None
        self._mode: list[tuple[Any, ...]] = []

    def begin(self) -> None:
        """Do both."""
        driver, mode, exchange = self._driver, self._mode, self._driver.names.exchange_mode
        current = driver.ask_current()
        if current != int(self._place):
            self._before = current
            driver.call(driver.names.set_current, self._place)
        driver.keep(mode, exchange, driver.capture_modes["relaxed"])
        if mode[0][0] is not driver.success:
            driver.failed(exchange, mode[0][0])

    def end(self) -> None:
        """Undo both, as far as they were done."""
        driver, mode = self._driver, self._mode
        former = mode[0][1] if mode else None
        if former is not None and int(former) != int(driver.capture_modes["relaxed"]):
            driver.undo(driver.names.exchange_mode, former)
        if self._before is not None:
            driver.undo(driver.names.set_current, self._before)
