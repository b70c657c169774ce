"""Labels for the modules of a torch model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from inspect import unwrap
from types import TracebackType
from typing import Any, Self

from .call_site import Site, caller
from .labels import label


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
