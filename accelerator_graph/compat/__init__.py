"""torch's own names for graphs, with this library behind them.

::

    from accelerator_graph import compat

    compat.install()

From then on `torch.cuda.CUDAGraph`, `torch.cuda.graph` and `torch.accelerator.Graph` are the classes of this
package, for all code that looks them up in torch, including `torch.cuda.make_graphed_callables` and
`torch.compile`. You can also assign them one by one: ``torch.cuda.CUDAGraph = compat.CUDAGraph``.

torch is imported when one of the names is first used; `ImportError` is raised if it is not installed.
"""

from __future__ import annotations

from ._install import classes, install

TYPE_CHECKING: bool = False  # as in the package itself
if TYPE_CHECKING:
    from ._context import graph
    from ._graphs import CUDAGraph, Graph

__all__ = ["CUDAGraph", "Graph", "graph", "install"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return classes()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
