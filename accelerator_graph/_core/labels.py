"""Labels: names for parts of what a capture records, which become ranges of nodes in its graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import wraps
from inspect import unwrap
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from .._interpreter import Site, caller, outside, runs_later, warn_of_nothing
from ..errors import EmptyLabelWarning
from . import capture_table
from .capture import notify, part_of, why_empty

if TYPE_CHECKING:
    from ..backends.base import AnyBackend as Backend
    from ..backends.base import GraphEdge
    from .capture import Capture, Captured, LabelledRange

_P = ParamSpec("_P")
_R = TypeVar("_R")


class label:
    """Name the nodes that a capture records inside a ``with`` block, for `Graph.describe`.

    As a decorator, it names what each call of a function records.

    The label belongs to the capture that this thread has begun last. Everything that is recorded into that
    capture meanwhile is labelled, on every stream that takes part. Labels can be nested, and names can be
    used again. A block that is left on another thread, or not at all, ends with the capture.

    Outside a capture, on a thread that has begun none, and on a backend that can't count the nodes during a
    capture, a label does nothing.

    Parameters
    ----------
    name : str
        The name.

    Raises
    ------
    TypeError
        The name is not a string, or a generator or a coroutine is decorated: its body runs after the call.

    Warns
    -----
    EmptyLabelWarning
        The capture has recorded nothing inside the block.

    Examples
    --------
    ::

        with ag.Graph(keep_graph=True) as graph:
            with ag.label("attention"):
                attention(x)

        @ag.label("mlp")
        def mlp(x): ...
    """

    __slots__ = ("_name",)

    may_be_empty = False
    """No warning is issued if nothing is recorded."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"label: the name must be a str, not {name!r}.")
        self._name = name

    def __repr__(self) -> str:
        return f"label({self._name!r})"

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Return a function with the same parameters whose calls are labelled."""
        if not callable(function):
            raise TypeError(
                f"label can't decorate {function!r}, which can't be called; write "
                f"`with label({self._name!r}):` around the work."
            )
        if runs_later(function):
            raise TypeError(
                f"label can't decorate {function!r}, whose body runs after the call; write "
                f"`with label({self._name!r}):` inside it."
            )

        @wraps(function)
        def labelled(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with self:
                return function(*args, **kwargs)

        return labelled

    def __enter__(self) -> None:
        if capture_table.live:
            capture = capture_table.innermost()
            if capture is not None:
                part_of(capture.observations, Labels).enter(capture, self, self._name, self._site)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not capture_table.live:
            return
        for capture in reversed(capture_table.thread.unfinished.values()):
            known = [each for each in capture.observations if isinstance(each, Labels)]
            mark = known[0].leave(capture, self) if known else None
            if mark is not None:
                if mark.stop == mark.start and kind is None and not (self.may_be_empty or mark.goes_on):
                    fact = f"nothing was recorded inside the label {self._name!r}"
                    warn_of_nothing(f"{fact}: {why_empty(capture.backend)}.", EmptyLabelWarning)
                return

    def _site(self) -> Site:
        return caller()


# ---- the modules of a torch model ----------------------------------------------------------------


class ModuleLabels:
    """The labels of a model's modules, until `remove` or the end of a ``with`` block."""

    __slots__ = ("_hooks",)

    def __init__(self, hooks: ExitStack) -> None:
        self._hooks = hooks

    def remove(self) -> None:
        """Label the modules no longer. Calling it twice does nothing."""
        self._hooks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def label_modules(model: Any) -> ModuleLabels:
    """Label what each module of a torch model records, whenever a capture runs its ``forward``.

    The name is the module's qualified name, such as ``"layers.0.attention"``; for the model itself, the name
    of its class. The line is that of the module's ``forward``. Modules that record nothing, such as
    ``Identity``, have no label, and no warning is issued. Captures of the backward pass have none either.

    Call this ahead of the capture. Each call adds its own hooks, which cost next to nothing outside a
    capture.

    Parameters
    ----------
    model : torch.nn.Module
        The model.

    Returns
    -------
    ModuleLabels
        Has the method ``remove()``, and can be used in a ``with`` statement.

    Raises
    ------
    TypeError
        The argument is not a torch module.
    """
    names = ("named_modules", "register_forward_pre_hook", "register_forward_hook")
    if isinstance(model, type) or not all(hasattr(model, name) for name in names):
        raise TypeError(f"label_modules: the model must be a torch module, not {model!r}.")
    site = caller()
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            named = _ModuleLabel(name or type(module).__name__, _site(module) or site)
            for remove in named.attach(module):
                hooks.callback(remove)
        return ModuleLabels(hooks.pop_all())


class _ModuleLabel(label):
    __slots__ = ("_defined_at",)

    may_be_empty = True

    def __init__(self, name: str, defined_at: Site) -> None:
        super().__init__(name)
        self._defined_at = defined_at

    def _site(self) -> Site:
        return self._defined_at

    def attach(self, module: Any) -> list[Callable[[], None]]:
        """Register hooks around everything else that the module does; return what removes them."""
        before = module.register_forward_pre_hook(self._before, prepend=True)
        try:
            after = module.register_forward_hook(self._after, always_call=True)
        except BaseException:
            before.remove()
            raise
        return [before.remove, after.remove]

    def _before(self, *_: object) -> None:
        self.__enter__()

    def _after(self, *_: object) -> None:
        self.__exit__(None, None, None)


def _site(module: Any) -> Site | None:
    """Return where the module's ``forward`` is written; None if that is not known."""
    code = getattr(unwrap(module.forward), "__code__", None)
    return None if code is None else (code.co_filename, code.co_firstlineno)


# ---- what labels leave in a capture --------------------------------------------------------------


class Mark:
    """A label in a capture. `stop` is None until its block is left."""

    __slots__ = ("goes_on", "label", "name", "site", "start", "stop")

    def __init__(self, label: object, name: str, start: int, site: Site, goes_on: bool = False) -> None:
        self.label = label
        self.name = name
        self.start = start
        self.site = site
        self.stop: int | None = None
        self.goes_on = goes_on
        """Whether its block was entered in an earlier segment."""


def marks_of(observations: Iterable[Any]) -> Sequence[Mark]:
    """Return the marks of a capture's labels, in the order in which they began."""
    return next((each.marks for each in observations if isinstance(each, Labels)), ())


class Labels:
    """The labels of one capture, in the order in which they began."""

    __slots__ = ("marks",)

    def __init__(self) -> None:
        self.marks: list[Mark] = []

    def enter(self, capture: Capture, label: object, name: str, site: Callable[[], Site]) -> None:
        """Note that a label's block was entered, if the nodes can be counted."""
        notify(capture.observations, "border", [*self._open_names(), name])
        start = capture.recorded()
        if start is not None:
            self.marks.append(Mark(label, name, start, site()))

    def go_on(self, capture: Capture, former: Sequence[Mark]) -> list[Mark]:
        """Have labels that were open at the end of a segment be open in the next one; return their marks."""
        self.marks += [Mark(each.label, each.name, 0, each.site, goes_on=True) for each in former]
        notify(capture.observations, "border", self._open_names())
        return self.marks[-len(former) :]

    def leave(self, capture: Capture, label: object) -> Mark | None:
        """Note that a label's block was left, and return its mark; None if it is not of this capture."""
        for mark in reversed(self.marks):
            if mark.label is label and mark.stop is None:
                mark.stop = capture.recorded()
                notify(capture.observations, "border", self._open_names())
                return mark
        return None

    def _open_names(self) -> list[str]:
        """Return the names of the labels whose blocks have not been left."""
        return [mark.name for mark in self.marks if mark.stop is None]

    def succeeded(self, captured: Captured) -> None:
        """Give the graph its labels, without those that have no node.

        None, with a RuntimeWarning, if the backend has counted wrongly during the capture.
        """
        count = captured.count
        if count is None:
            return
        found = [(mark, count if mark.stop is None else mark.stop) for mark in self.marks]
        if not all(0 <= mark.start <= stop <= count for mark, stop in found):
            _complain(captured.backend, "counted the nodes of a capture wrongly")
            return
        captured.labels = tuple(
            (mark.name, mark.start, stop, *mark.site) for mark, stop in found if mark.start < stop
        )


def if_in_order(
    labels: tuple[LabelledRange, ...], edges: Sequence[GraphEdge], backend: Backend
) -> tuple[LabelledRange, ...]:
    """Return the labels; nothing, with a RuntimeWarning, if nodes are not in the order of recording."""
    if labels and any(edge.source >= edge.target for edge in edges):
        _complain(backend, "lists nodes in another order than that of recording")
        return ()
    return labels


def _complain(backend: Backend, fact: str) -> None:
    warnings.warn(
        f"backend {backend.name!r} {fact}, so the labels are left out; report that to its authors.",
        RuntimeWarning,
        stacklevel=outside()[0],
    )
