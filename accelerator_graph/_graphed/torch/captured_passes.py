"""The forward and the backward pass of a torch module or function: how they run, and the capture of one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..._arrays.arrays import array_type_of
from ..._core.pools import PoolId
from ..._core.streams import Stream
from ...api import Graph, graph
from ...backends.base import Capability
from ...errors import GraphStateError, UnsupportedError
from ..input_nodes import InputNodes

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def torch_module() -> Any:
    """Return torch, which somebody has imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise TypeError("sample_args must hold torch tensors, and torch has not been imported.")
    return torch


class Passes:
    """The passes of one callable, which are run as warm-up, run to be captured, and then replayed.

    The tensors in the sample arguments are the static inputs of the graphs. With `allow_unused`, the outputs
    need not depend on all inputs. TypeError, ValueError or UnsupportedError says that the callable can't be
    captured with these arguments; nothing has run then.
    """

    def __init__(self, name: str, function: Any, args: Sequence[Any], allow_unused: bool) -> None:
        torch = self.torch = torch_module()
        self.name = name
        self.function = function
        self.args = tuple(args)
        self._allow_unused = allow_unused
        self.statics: list[Any] = torch.utils._pytree.tree_leaves(self.args)
        """The tensors in the arguments."""
        for i, value in enumerate(self.statics):
            if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
                kind = f"of type {type(value).__name__!r}"
                raise TypeError(f"{name}: sample argument {i} is {kind}; only strided tensors can be passed.")
        self.arguments = [(f"argument {i}", value) for i, value in enumerate(self.statics)]
        self.parameters: list[tuple[str, Any]] = []
        self.is_module = isinstance(function, torch.nn.Module)
        if self.is_module:
            self._check_module()
            self.parameters = [(f"parameter {key!r}", value) for key, value in function.named_parameters()]
        tensors = [*self.arguments, *self.parameters]
        self._inputs = [(label, value) for label, value in tensors if value.requires_grad]
        self._check_autocast({value.device.type for _, value in tensors} or {"cuda"})
        self.forget()

    def _check_autocast(self, kinds: set[str]) -> None:
        torch = self.torch
        available = [kind for kind in kinds if torch.amp.is_autocast_available(kind)]
        if torch.is_autocast_cache_enabled() and any(map(torch.is_autocast_enabled, available)):
            raise UnsupportedError(
                f"{self.name}: autocast caches its casts, and replays would go on reading that cache; enter "
                "autocast with cache_enabled=False."
            )

    def _check_module(self) -> None:
        for kind in _HOOKS:
            if getattr(self.function, kind, None):
                raise ValueError(
                    f"{self.name} has hooks ({kind.strip('_')}), whose Python code would not be replayed; "
                    "register them afterwards."
                )
        for key, buffer in self.function.named_buffers():
            if buffer.requires_grad:
                raise ValueError(f"{self.name}: buffer {key!r} requires grad; make it a parameter.")

    @property
    def params(self) -> list[Any]:
        """The parameters that require grad."""
        return [value for _, value in self.parameters if value.requires_grad]

    def forget(self) -> None:
        """Drop the tensors that a run or a capture has left."""
        self.result: Any = None
        self._tracked: list[Any] = []
        self.incoming: list[Any] = []
        """The gradients of the outputs that require grad; none if there is no backward pass."""
        self.grads: Sequence[Any] = ()
        """The gradients of the arguments that require grad, and of the parameters. None for an unused one."""

    def forward(self) -> None:
        """Run the callable, and keep its result with the graph of autograd."""
        self.result = self.function(*self.args)

    def prepare_backward(self) -> bool:
        """Make the static gradients of the outputs; return True if there are any."""
        leaves = self.torch.utils._pytree.tree_leaves(self.result)
        self._tracked = [leaf for leaf in leaves if getattr(leaf, "requires_grad", False)]
        if self._tracked and not self._inputs:
            raise ValueError(
                f"{self.name}: its outputs require grad, but no argument and no parameter of its own does; "
                "pass the tensors that do as arguments, or call under no_grad()."
            )
        self.incoming = [self.torch.zeros_like(output) for output in self._tracked]
        return bool(self._tracked)

    def backward(self) -> None:
        """Compute the gradients of the inputs, and keep them."""
        inputs = [value for _, value in self._inputs]
        self.grads = self.torch.autograd.grad(self._tracked, inputs, self.incoming, allow_unused=True)
        unused = [label for (label, _), grad in zip(self._inputs, self.grads, strict=True) if grad is None]
        if unused and not self._allow_unused:
            raise ValueError(
                f"{self.name}: its outputs don't depend on {', '.join(unused)}; pass "
                "allow_unused_input=True if that is intended."
            )


class FixedAddresses:
    """Where the tensors of captured passes were in the capture, until the first replay has compared that.

    It looks them up in the module again, so a tensor that was replaced by another is found, too.
    """

    __slots__ = ("_addresses", "_module", "_name", "_statics")

    def __init__(self, passes: Passes) -> None:
        self._name = passes.name
        self._statics = passes.arguments
        self._module = passes.function if passes.is_module else None
        self._addresses = dict(self._now())

    def check(self) -> None:
        """Raise `GraphStateError` if one of the tensors is elsewhere, or gone."""
        now = dict(self._now())
        for label, address in self._addresses.items():
            if now.get(label) != address:
                fact = "was moved to other memory" if label in now else "was removed"
                raise GraphStateError(
                    f"{self._name}: {label} {fact} since the capture, and a replay would read what is in the "
                    "old place now; copy new contents into it with copy_(), or capture again."
                )

    def _now(self) -> Iterator[tuple[str, int]]:
        tensors = [(f"sample {label}", tensor) for label, tensor in self._statics]
        if self._module is not None:
            tensors += [(f"parameter {key!r}", tensor) for key, tensor in self._module.named_parameters()]
            tensors += [(f"buffer {key!r}", tensor) for key, tensor in self._module.named_buffers()]
        for label, tensor in tensors:
            address = _address(tensor)
            if address:
                yield label, address


def _address(tensor: Any) -> int:
    try:
        return int(tensor.data_ptr())
    except (NotImplementedError, RuntimeError):  # it is sparse
        return 0


class CapturedPass:
    """The graph of one pass, captured into a pool beside a stream."""

    def __init__(self, side: Stream, pool: PoolId) -> None:
        self._side = side
        self._pool = pool
        self.graph: Graph = Graph()
        self.nodes: InputNodes | None = None
        """The copies that are nodes of the graph, if there are any."""

    def capture(self, run: Callable[[], None]) -> None:
        """Capture a pass whose static tensors are filled before each replay."""
        with graph(self.graph, self._pool, self._side):
            run()

    def capture_with_copies(self, run: Callable[[], None], targets: Sequence[Any], *, again: bool) -> bool:
        """Capture a pass and copies to its static tensors; return False if these can't be changed.

        Then the pass is captured without them, if it can run `again`.
        """
        statics = [each.detach() for each in targets]
        types = {i: array_type_of(each) for i, each in enumerate(statics)}
        known = {i: each for i, each in types.items() if each is not None}
        nodes = InputNodes(self._side, statics, statics, known, [*known])
        sources = [each.clone() if i in nodes.arguments else each for i, each in enumerate(statics)]
        self.graph = Graph(keep_graph=True)
        with graph(self.graph, self._pool, self._side):
            nodes.record(self._side, sources)
            run()
        backend = self.graph._kept("describe()").backend
        settable = Capability.SET_NODE in backend.capabilities(self._side.device)
        if settable and nodes.connect(self.graph):
            self.nodes = nodes if nodes.arguments else None
            return True
        if nodes.arguments:
            if not again:
                raise UnsupportedError("the sources of its copies can't be changed; pass inputs='copy'.")
            self.graph.reset()
            self.graph = Graph()
            self.capture(run)
        return False
