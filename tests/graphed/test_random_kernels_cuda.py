"""`graphed` over random programs of kernels of CUDA, many of which hide the addresses of their inputs."""

import random
import warnings

import pytest

import accelerator_graph as ag
import lanes

pytestmark = lanes.require("cuda")

from graphed import cuda_arrays
from graphed.cuda_arrays import Tensor, empty_like, plus, tensor

OPEN = "plus", "kernel", "block", "plus_struct", "table_in_the_graph", "child", "child_of_child"
HIDDEN = "plus_packed", "plus_table", "plus_from", "plus_halves", "masked", "randomly_masked", "plus_until"
SIZE, SPACE = 8, 1 << 11
MODES = "copy", "node", "bind"


@pytest.fixture(autouse=True)
def arrays(monkeypatch):
    with cuda_arrays.framework_on_a_stream(monkeypatch):
        yield


class Program:
    """Sums of values, and writes to its arguments and to its state."""

    def __init__(self, draw, hows):
        self.count = draw.randint(1, 3)
        self.steps = []
        for _ in range(draw.randint(1, 5)):
            how = draw.choice([*hows, *hows, "clone", "write", "clear", "state"])
            self.steps.append((how, draw.randrange(8), draw.randrange(8)))
        self.written = {one % self.count for how, one, _ in self.steps if how in ("write", "clear")}
        self.returns_argument = draw.random() < 0.2
        self.state = tensor(*[0.0] * SIZE)

    def __call__(self, *xs):
        values = list(xs)
        for how, one, other in self.steps:
            x, y = values[one % len(values)], values[other % len(values)]
            if how == "clone":
                values.append(x.clone())
            elif how == "write":
                xs[one % len(xs)].copy_(y)
            elif how == "clear":
                xs[one % len(xs)].fill_(0)
            elif how == "state":
                self.state.copy_(plus("plus", self.state, x))
                values.append(self.state)
            else:
                values.append(plus(how, x, y))
        last = plus("plus", values[-1], values[0])
        return (last, xs[0]) if self.returns_argument else (last,)

    def on_lists(self, state, *xs):
        """Do the same to lists of numbers, in place."""
        values = list(xs)
        for how, one, other in self.steps:
            x, y = values[one % len(values)], values[other % len(values)]
            if how == "clone":
                values.append(list(x))
            elif how == "write":
                xs[one % len(xs)][:] = y
            elif how == "clear":
                xs[one % len(xs)][:] = [0.0] * SIZE
            elif how == "state":
                state[:] = added(state, x)
                values.append(state)
            else:
                values.append(added(x, y))
        last = added(values[-1], values[0])
        return (last, list(xs[0])) if self.returns_argument else (last,)


def added(x, y):
    return [a + b for a, b in zip(x, y, strict=True)]


def compare(draw, mode, hows, calls=12):
    """Compare calls with sums in Python; return how the inputs were given."""
    program = Program(draw, hows)
    apart = bool(program.written) and draw.random() < 0.7
    warmup = draw.choice([0, 1]) if apart or not program.written else 0
    f = ag.graphed(program, warmup=warmup, inputs=mode, outputs=draw.choice(["copy", "static"]))
    space, state = Tensor(empty_like(Tensor(0, (SPACE,))).address, (SPACE,)), [0.0] * SIZE
    places = draw.choice([1, 8, 64])
    for _ in range(calls):
        numbers = [float(draw.randrange(100)) for _ in range(SPACE)]
        space.copy_(tensor(*numbers))
        if apart:
            starts = [SIZE * place for place in draw.sample(range(0, SPACE // SIZE, places), program.count)]
        else:  # arguments may overlap: they count as separate arrays, and are written one after another
            starts = [draw.randrange(0, SPACE - SIZE, places) for _ in range(program.count)]
        xs = [numbers[start : start + SIZE] for start in starts]
        want = program.on_lists(state, *xs)
        got = f(*(Tensor(space.address + 8 * start, (SIZE,)) for start in starts))
        assert [each.tolist() for each in got] == [*want], f.explain()
        assert program.state.tolist() == state
        for i in sorted(program.written):
            numbers[starts[i] : starts[i] + SIZE] = xs[i]
        assert space.tolist() == numbers, f.explain()
    (explained,) = f.explain()
    return explained


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(6))
def test_addresses_in_the_open(seed, mode):
    explained = compare(random.Random(f"open {seed} {mode}"), mode, OPEN)
    assert explained.inputs in {mode, "node" if mode == "bind" else mode}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", HIDDEN)
@pytest.mark.parametrize("seed", range(2))
def test_addresses_that_are_hidden(seed, how, mode):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        compare(random.Random(f"{how} {seed} {mode}"), mode, [how, *OPEN[:2]])
