"""Random functions of torch tensors, and arguments for them: `graphed` is compared with eager runs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

import accelerator_graph as ag

MODES = "copy", "node", "bind", "break"
SHAPE = 4, 8
SIZE = 32
OFFSETS = (0, 0, 512, 128, 4, 1)
"""In elements."""

LAYOUTS = (
    *(
        "dense",
        "dense",
        "wandering",
        "wandering",
        "shared",
        "gaps",
        "transposed",
        "broadcast",
        "empty",
        "scalar",
    ),
    *("parameter", "subclass", "twice", "negative", "conjugate"),
)
"""How an argument lies in memory."""

DTYPES = (
    *(torch.float32,) * 5,
    *(torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool),
    *(torch.complex64, torch.float8_e4m3fn),
)


CONTAINERS = "arguments", "named", "list", "dict", "dataclass", "nested"


class Subclass(torch.Tensor):
    """A tensor that `graphed` does not know to be an ordinary one."""


@dataclass
class Box:
    """A container for arguments."""

    one: Any
    rest: Any


class Program(NamedTuple):
    """A function, and what its arguments are like."""

    arguments: tuple[tuple[str, torch.dtype], ...]
    """The layout and the type of each."""
    steps: tuple[tuple[str, int, int], ...]
    """What is done, and with which of the values so far."""
    results: tuple[tuple[str, int], ...]
    container: str

    @property
    def writes(self) -> bool:
        """Whether arguments are written."""
        return any(name in WRITES for name, _, _ in self.steps)

    @property
    def may_go_on_with_results(self) -> bool:
        """Whether the first result can be the first argument of the next call."""
        results = {kind for kind, _ in self.results}
        layouts = [layout for layout, _ in self.arguments]
        plain = self.arguments[0] == ("dense", torch.float32) and "twice" not in layouts
        return plain and results == {"value"} and not self.writes


def as_numbers(x):
    """Return any argument as new numbers of one shape."""
    x = x.as_subclass(torch.Tensor)
    if x.dtype is torch.float8_e4m3fn:
        x = x.float()
    if x.is_complex():
        x = torch.view_as_real(x.resolve_conj()).sum(-1)
    x = x.to(torch.float32)
    if x.numel() == SIZE:
        return x.reshape(SHAPE) + 0
    return x.sum().expand(SHAPE).contiguous()


def one_row(x, y):
    rows = x.clone()
    rows[1:3].mul_(0.5).add_(y[1:3])
    return rows


def each_of(x, y):
    return torch._foreach_add(torch._foreach_mul([x, y], 0.5), [y, x])[1]


STEPS = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y * 0.25,
    "relu": lambda x, y: torch.relu(x) - y,
    "matmul": lambda x, y: (x @ y.t()).repeat(1, 2) * 0.1,
    "cat": lambda x, y: torch.cat([x[2:], y[:2]]),
    "flip": lambda x, y: x.flip(1) + y[0],
    "sort": lambda x, y: torch.sort(x, dim=1)[0] + y,
    "cumsum": lambda x, y: torch.cumsum(x, 1) * 0.1 + y,
    "softmax": lambda x, y: torch.softmax(x, 1) + y,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "clone": lambda x, y: x.clone(),
    "zeros": lambda x, y: torch.zeros_like(x) + y,
    "rows": one_row,
    "foreach": each_of,
    "index": lambda x, y: x[torch.argsort(y[:, 0])],
    "scatter": lambda x, y: torch.zeros_like(x).scatter_(1, torch.argsort(y, dim=1), x),
}


def assign(x, y):
    if x.numel() == SIZE and not x.is_complex() and x.dtype is not torch.float8_e4m3fn:
        x.copy_(
            (y.clamp(-3, 3).abs() > 1).reshape(x.shape)
            if x.dtype is torch.bool
            else y.clamp(0, 3).reshape(x.shape).to(x.dtype)  # else torch forgets the sign of negated halves
        )
    elif x.numel():
        x.zero_()


def part(x, y):
    if x.dim() == 2 and x.numel() == SIZE and x.is_floating_point() and x.dtype is not torch.float8_e4m3fn:
        x[1:2].add_(y[:1].to(x.dtype).reshape(-1)[: x.shape[1]])


WRITES = {"assign": assign, "part": part, "clear": lambda x, y: x.zero_()}


def random_program(draw):
    """Return a program."""
    names = [*STEPS, *STEPS, *WRITES, "state", "keep"]
    kinds = ["value", "value", "argument", "view"]
    return Program(
        tuple((draw.choice(LAYOUTS), draw.choice(DTYPES)) for _ in range(draw.randint(1, 4))),
        tuple((draw.choice(names), draw.randrange(8), draw.randrange(8)) for _ in range(draw.randint(1, 8))),
        tuple((draw.choice(kinds), draw.randrange(8)) for _ in range(draw.randint(1, 3))),
        draw.choice(CONTAINERS),
    )


def tensors_in(value):
    """Return the tensors in containers, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Box):
        return tensors_in([value.one, value.rest])
    parts = value.values() if isinstance(value, dict) else value
    return [each for part in parts for each in tensors_in(part)]


class Function:
    """A program's function, with state of its own. Each step of which `eager` is true is an eager call."""

    def __init__(self, program, device, eager=lambda step: False):
        self.program = program
        self.eager = eager
        self.state = torch.zeros(SHAPE, device=device)
        self.kept = None

    def __call__(self, *args, **named):
        given = [*tensors_in(args), *(named[each] for each in sorted(named))]
        values = [as_numbers(x) for x in given]
        for i, (name, one, other) in enumerate(self.program.steps):
            call = ag.eager if self.eager(i) else lambda function: function
            x, y = values[one % len(values)], values[other % len(values)]
            if name == "state":
                self.state.mul_(0.5).add_(x)
                values.append(self.state + y)
            elif name == "keep":
                self.kept = given[one % len(given)]
            elif name in WRITES:
                call(WRITES[name])(given[one % len(given)], y)
                values.append(as_numbers(given[one % len(given)]))
            else:
                values.append(call(STEPS[name])(x, y))
        found = []
        for kind, index in self.program.results:
            if kind == "value":
                found.append(values[-1 - index % len(values)].contiguous())
            else:
                x = given[index % len(given)]
                found.append(x if kind == "argument" or x.dim() == 0 else x[:1])
        return found


class Arguments:
    """The arguments of one call, as views of some memories."""

    def __init__(self, program, device, draw, memories=None):
        self.program, self.device = program, device
        self.memories = []
        self.views = []
        """Of each argument: the number of its memory, where it begins, shape and strides."""
        shared = {}
        for layout, dtype in program.arguments:
            if layout == "shared" and dtype in shared:
                memory = shared[dtype]
            else:
                memory = len(self.memories)
                self.memories.append(random_numbers(2048, dtype, device, draw))
                shared.setdefault(dtype, memory)
            self.views.append((memory, *self._view(layout, draw)))

    def _view(self, layout, draw):
        dense, steps = SHAPE, (8, 1)
        if layout == "wandering":
            return draw.choice(OFFSETS), dense, steps
        if layout == "shared":
            taken = len(self.views) * SIZE
            step = draw.choice([1, 16, 128])
            free = draw.randrange(0, 256, step) if not self.program.writes else taken + 256
            return free, dense, steps
        if layout == "gaps":
            return draw.choice(OFFSETS), dense, (16, 2)
        if layout == "transposed":
            return draw.choice(OFFSETS), dense, (1, 4)
        if layout == "broadcast" and not self.program.writes:
            return draw.choice(OFFSETS), dense, (0, 1)
        if layout == "empty":
            return draw.choice(OFFSETS), (0, 8), steps
        if layout == "scalar":
            return draw.choice(OFFSETS), (), ()
        return 0, dense, steps

    def tensors(self, memories):
        found = []
        for (memory, start, shape, steps), (layout, dtype) in zip(
            self.views, self.program.arguments, strict=True
        ):
            x = memories[memory].as_strided(shape, steps, start)
            if layout == "parameter" and dtype.is_floating_point and dtype.itemsize > 1:
                x = torch.nn.Parameter(x, requires_grad=False)
            elif layout == "subclass":
                x = x.as_subclass(Subclass)
            elif layout == "twice" and found:
                x = found[-1]
            elif layout == "negative" and dtype.is_floating_point and dtype.itemsize > 1:
                x = torch._neg_view(x)
            elif layout == "conjugate" and dtype.is_complex:
                x = x.conj()
            found.append(x)
        return found

    def call(self, function, found):
        names = [f"x{i}" for i in range(len(found))]
        how = self.program.container
        if how == "named":
            return function(*found[:1], **dict(zip(names[1:], found[1:], strict=True)))
        if how == "list":
            return function(found)
        if how == "dict":
            return function(dict(zip(names, found, strict=True)))
        if how == "dataclass":
            return function(Box(found[0], found[1:]))
        if how == "nested":
            return function((found[0], [{"x": found[1:]}]))
        return function(*found)


def random_numbers(n, dtype, device, draw):
    generator = torch.Generator(device).manual_seed(draw.randrange(1 << 30))
    if dtype is torch.bool:
        return torch.randint(0, 2, (n,), device=device, generator=generator).bool()
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex64 if dtype.is_complex else torch.float32
        return torch.randn(n, device=device, dtype=wide, generator=generator).to(dtype)
    return torch.randint(1, 100, (n,), device=device, generator=generator).to(dtype)


def same(x, y):
    x, y = (each.as_subclass(torch.Tensor).resolve_neg().resolve_conj() for each in (x, y))
    if x.dtype is torch.float8_e4m3fn:
        x, y = x.view(torch.uint8), y.view(torch.uint8)
    return x.dtype == y.dtype and x.shape == y.shape and torch.equal(x.nan_to_num(), y.nan_to_num())


def compare(program, mode, outputs, draw, device="cuda", calls=10):
    """Compare calls of a graphed program with eager runs; return how its inputs were given."""
    how = {"inputs": mode} if mode != "break" else {"on_capture_error": "break"}
    eager = [mode == "break" and draw.random() < 0.4 for _ in program.steps]
    ours, theirs = Function(program, device, eager.__getitem__), Function(program, device)
    f = ag.graphed(ours, warmup=draw.choice([0, 1, 2]), outputs=outputs, **how)
    noise, got = [], []
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for i in range(calls):
            if i % 3 == 0:  # so that allocations lie elsewhere
                noise = [torch.full((draw.randrange(1, 9000),), 7e7, device=device) for _ in range(3)]
            arguments = Arguments(program, device, draw)
            other = [each.clone() for each in arguments.memories]
            given, eager = arguments.tensors(arguments.memories), arguments.tensors(other)
            if got and program.may_go_on_with_results and draw.random() < 0.3:
                given[0], eager[0] = got[0], got[0].clone()  # the graph's own memory, or a copy of it
            want = arguments.call(theirs, eager)
            got = arguments.call(f, given)
            if device == "cpu":
                ag.current_stream().synchronize()
            for x, y in zip([*got, *arguments.memories], [*want, *other], strict=True):
                assert same(x, y), (i, f.explain())
            assert same(ours.state, theirs.state), i
            if theirs.kept is not None:
                assert same(ours.kept, theirs.kept), i
    del noise
    return f.explain()
