"""How the backend calls the CUDA driver: checked, in the right context, without disturbing captures."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

import accelerator_graph._interpreter as interpreter

from ..._interpreter.sure_exit import Between
from ...errors import DriverError
from .._shared import ASKED, CAPTURE_MODES, NOT_READY, SPECIAL_STREAMS
from ..base import LaunchFunction
from .hot_calls import HotCalls, Relaxed, hot_calls
from .probe import import_driver, version_text

if TYPE_CHECKING:
    from .._shared.nodes import Shape
    from .raw_calls import Calls

_NOTHING_TO_DO = nullcontext()


class Handle:
    """A typed handle of the driver, with the context that it belongs to."""

    __slots__ = ("context", "destroyed", "handle")

    def __init__(self, handle: Any, context: Any) -> None:
        self.handle: Any = handle
        self.context: Any = context
        self.destroyed: list[Any] | None = None
        """`ASKED` and what the driver answered, once it was asked to destroy this."""


class Graph(Handle):
    """A recorded graph."""

    __slots__ = ()


class Executable(Handle):
    """An instantiated graph."""

    __slots__ = ("shape",)

    def __init__(self, handle: Any, context: Any) -> None:
        self.handle: Any = handle  # not by `super`: each capture makes one
        self.context: Any = context
        self.destroyed: list[Any] | None = None
        self.shape: Shape | None = None
        """The shape of its work, once it was updated: the graph's own may have changed since then."""


class Event(Handle):
    """An event."""

    __slots__ = ()


class Driver:
    """``cuda.bindings.driver``, initialised."""

    __slots__ = (
        "_ending",
        "_latest",
        "_primary",
        "api",
        "ask_context",
        "ask_current",
        "ask_status",
        "calls",
        "capture_function",
        "capture_info",
        "capture_modes",
        "current_address",
        "device_count",
        "edges_address",
        "instantiate_flags",
        "launch_broke",
        "launch_failed",
        "launch_found",
        "name",
        "pointer_type",
        "relaxed",
        "relaxed_mode",
        "status_address",
        "stream_type",
        "success",
        "wait",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.api = import_driver()
        self.stream_type = self.api.CUstream
        self.pointer_type = self.api.CUdeviceptr
        self.success = self.api.CUresult.CUDA_SUCCESS
        modes = self.api.CUstreamCaptureMode
        self.capture_modes = {
            mode: getattr(modes, f"CU_STREAM_CAPTURE_MODE_{mode.upper()}") for mode in CAPTURE_MODES
        }
        self.relaxed_mode = self.capture_modes["relaxed"]
        flags = self.api.CUgraphInstantiate_flags
        self.instantiate_flags = (
            flags.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
            | flags.CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
        )
        """The flags that torch uses: each replay frees what the last one left."""
        self._primary: dict[int, Any] = {}
        self._ending: dict[int, Handle] = {}
        self._latest: tuple[Any, Any] = (None, None)
        """The stream whose context was asked for last, and that context: the binding's object, which stands
        for one stream as long as that exists."""
        self.call("cuInit", 0)
        self.device_count: int = self.call("cuDeviceGetCount")
        # made once, since every bound launch holds them
        self.launch_broke = partial(self.broke, "cuGraphLaunch")
        self.launch_failed = partial(self.failed, "cuGraphLaunch")
        self.calls: Calls | None = None
        """Those of `raw_calls`, once they were asked for."""
        answered = partial(self.answered, "cuGraphLaunch")
        self.launch_found = LaunchFunction(self.address("cuGraphLaunch", 12000), answered)
        self.current_address = self.address("cuCtxGetCurrent", 12000)
        self.status_address = self.address("cuStreamIsCapturing", 12000)
        self.edges_address = self.address("cuGraphGetEdges", 12030)
        # For CUDA 12 the binding has two functions. The one without the suffix refuses edges that have data.
        newer = hasattr(self.api, "cuStreamGetCaptureInfo_v3") and self.address(
            "cuStreamGetCaptureInfo", 12030
        )
        self.capture_function = "cuStreamGetCaptureInfo_v3" if newer else "cuStreamGetCaptureInfo"
        self.use(hot_calls(self, interpreter.in_c()))

    def use(self, hot: HotCalls) -> None:
        """Make calls in this way from now on."""
        self.ask_current, self.ask_context, self.ask_status = hot.current, hot.context, hot.status
        self.capture_info, self.relaxed, self.wait = hot.capture_info, hot.relaxed, hot.wait

    # ---- calls ---------------------------------------------------------------------------------

    def call(self, function: str, *args: Any) -> Any:
        """Call a function and return what it answers: nothing, one value, or a tuple of several.

        Raises
        ------
        DriverError
            The driver answered an error.
        UnsupportedError
            The installed driver does not have the function.
        """
        try:
            answer = getattr(self.api, function)(*args)
        except (RuntimeError, ValueError) as error:
            self.broke(function, error)
        if answer[0] is not self.success:
            self.failed(function, answer[0])
        return answer[1] if len(answer) == 2 else answer[1:] or None

    def answer(self, function: str, *args: Any) -> tuple[Any, ...]:
        """Call a function and return its code and values, unchecked."""
        try:
            answer: tuple[Any, ...] = getattr(self.api, function)(*args)
        except (RuntimeError, ValueError) as error:
            self.broke(function, error)
        return answer

    def is_done(self, function: str, handle: Any) -> bool:
        """Return the answer of a query; raise its error."""
        answer = self.answer(function, handle)
        if answer[0] == NOT_READY:
            return False
        self.checked(function, answer)
        return True

    def keep(self, answers: list[Any], function: str, arg: Any, *before: Any) -> None:
        """Like `answer`, but append `before` and the answer to a list, where no interrupt can lose them."""
        try:
            answers.extend(chain(before, map(getattr(self.api, function), (arg,))))
        except (RuntimeError, ValueError) as error:
            self.broke(function, error)

    def destroy(self, function: str, handle: Handle, *, disturbs: bool = True) -> None:
        """Destroy what a handle stands for, unless a call that was interrupted has done so.

        With `disturbs` False, the function needs no context and disturbs no capture.
        """
        answers = handle.destroyed = handle.destroyed or []
        if not answers:
            what = answers, function, handle.handle, ASKED
            if disturbs:
                self.relaxed(handle.context).run(self.keep, *what)
            else:
                self.keep(*what)
        if answers[-1] is not ASKED:
            self.checked(function, answers[-1])

    def destroy_stream(self, stream: Any) -> None:
        """Destroy a stream, unless a call that was interrupted has done so."""
        key = id(stream)  # its handle may be another thread's new stream as soon as this one is destroyed
        ending = self._ending.get(key)
        if ending is None:
            ending = self._ending[key] = Handle(stream, self.context_of(stream))
        try:
            self.destroy("cuStreamDestroy", ending)
        except DriverError:
            del self._ending[key]
            raise
        del self._ending[key]  # no call after it: an interrupt there would destroy the stream again

    def checked(self, function: str, answer: tuple[Any, ...]) -> Any:
        """Return the values of an answer, or raise its error."""
        if answer[0] is not self.success:
            self.failed(function, answer[0])
        return answer[1] if len(answer) == 2 else answer[1:] or None

    def failed(self, function: str, code: Any) -> NoReturn:
        """Raise the error for a code that is not success."""
        from .errors import call_failed

        raise call_failed(self.name, function, code)

    def broke(self, function: str, error: Exception) -> NoReturn:
        """Raise the error for an exception that the binding raised."""
        from .errors import call_broke

        ours = call_broke(self.name, function, error, self._version())
        if ours is None:
            raise error
        raise ours from error

    def answered(self, function: str, number: int) -> NoReturn:
        """Raise the error for a code that is not 0, from a call that was made without the binding."""
        try:
            code = self.api.CUresult(number)
        except ValueError as error:
            self.broke(function, error)
        self.failed(function, code)

    def check(self, function: str, number: int) -> None:
        """Raise the error for the code of a call that was made without the binding, unless it is 0."""
        if number:
            self.answered(function, number)

    def address(self, function: str, version: int) -> int:
        """Return the address of a function as CUDA `version` has it; 0 if the driver does not report it."""
        code, *found = self.answer("cuGetProcAddress", function.encode(), version, 0)
        return int(found[0] or 0) if code is self.success and found else 0

    def _version(self) -> str:
        code, version = self.api.cuDriverGetVersion()
        return version_text(version) if code is self.success else "?"

    def new_event(self, stream: Any, *, timed: bool = False) -> Any:
        """Return a new event that marks the present end of a stream's work."""
        flags = self.api.CUevent_flags
        event = self.call("cuEventCreate", flags.CU_EVENT_DEFAULT if timed else flags.CU_EVENT_DISABLE_TIMING)
        try:
            self.call("cuEventRecord", event, stream)
        except BaseException:
            self.answer("cuEventDestroy", event)
            raise
        return event

    # ---- contexts ------------------------------------------------------------------------------

    def primary_context(self, device: int) -> Any:
        """Return the primary context of a device, retained on first use and never released."""
        context = self._primary.get(device)
        if context is None:
            context = self.call("cuDevicePrimaryCtxRetain", self.call("cuDeviceGet", device))
            context = self._primary.setdefault(device, context)
        return context

    def context_of(self, stream: Any) -> Any:
        """Return a stream's own context."""
        if int(stream) not in SPECIAL_STREAMS:
            known, context = self._latest
            if known is not stream:
                context = self.call("cuStreamGetCtx", stream)
                self._latest = stream, context
            return context
        return self.ask_current() or self.primary_context(0)

    def device_of(self, stream: Any) -> int:
        """Return the ordinal of a stream's device: the current one for the special streams.

        ``cuStreamGetDevice`` would answer 900 on a capturing stream and invalidate the capture (driver
        580); ``cuStreamGetCtx`` does not.
        """
        with self.current_for(stream):
            return int(self.call("cuCtxGetDevice"))

    def current(self, context: Any) -> AbstractContextManager[None]:
        """Make a context current on this thread; afterwards the caller's is current as before.

        The context is set, not pushed, because setting can be undone wherever an interrupt strikes. On a
        thread without a context, setting null empties the stack again.
        """
        before = self.ask_current()
        if before == int(context):
            return _NOTHING_TO_DO
        return self._exchanged(before, context)

    def _exchanged(self, before: int, context: Any) -> AbstractContextManager[None]:
        return Between(partial(self.call, "cuCtxSetCurrent", context), partial(self.set_back, before))

    def call_in(self, context: Any, function: str, *args: Any) -> Any:
        """Like `call`, while a context is current."""
        before = self.ask_current()
        if before == int(context):
            return self.call(function, *args)
        with self._exchanged(before, context):
            return self.call(function, *args)

    def keep_in(self, context: Any, answers: list[Any], function: str, arg: Any) -> None:
        """Like `keep`, while a context is current."""
        before = self.ask_current()
        if before == int(context):
            self.keep(answers, function, arg)
        else:
            with self._exchanged(before, context):
                self.keep(answers, function, arg)

    def current_for(self, stream: Any) -> AbstractContextManager[None]:
        """Make the context of a stream current."""
        if int(stream) in SPECIAL_STREAMS and self.ask_current():
            return _NOTHING_TO_DO  # such a stream is one of the current context
        return self.current(self.context_of(stream))

    def set_back(self, context: int) -> None:
        """Make a context current again, whatever the driver answers."""
        try:  # noqa: SIM105 (an interrupt in `suppress` would come before the restoring)
            self.api.cuCtxSetCurrent(context)
        except (RuntimeError, ValueError):  # a code that the binding doesn't know
            pass

    def relaxed_for(self, stream: Any) -> Relaxed:
        """Like `current_for`, and like `relaxed`."""
        return self.relaxed(self.context_of(stream))
