"""Programs for `verify` on the CPU backend: right ones, and ones with a planted fault.

Each makes what `verify` is called with: the positional and the keyword arguments. The current stream is one
of the CPU backend.
"""

import itertools
import random
import time
from collections import deque
from functools import partial
from queue import SimpleQueue
from types import SimpleNamespace

import numpy as np

import accelerator_graph as ag
from accelerator_graph import _demo
from diagnosis.changing_numbers import NUMBERS, next_number


def launch(work, *args, **how):
    ag.current_stream().launch(work, *args, **how)


def doubled(x):
    out = np.empty_like(x)
    launch(np.multiply, x, 2, out)
    return out


class Unseen:
    """Keeps what `verify` can't see, and so does not put back, as a library in C does."""

    def __init__(self, *items):
        self._queue = SimpleQueue()
        for item in items:
            self._queue.put(item)

    def append(self, item):
        self._queue.put(item)

    def pop(self):
        return self._queue.get(timeout=120)

    def __len__(self):
        return self._queue.qsize()


def x_of(n=6):
    return np.linspace(0.5, 2.5, n)


# ---- faults --------------------------------------------------------------------------------------

FAULTS = {}
"""What makes the arguments, and the cause that has to be named."""


def fault(cause):
    return lambda make: FAULTS.setdefault(make.__name__, (make, cause))[0]


@fault("not_written")
def ordinary_numpy_writes_the_output():
    def f(x):
        launch(np.square, x, np.empty_like(x))
        return x * 2

    return (f, x_of()), {}


@fault("not_written")
def ordinary_numpy_clears_the_accumulator():
    def f(x):
        out = np.empty_like(x)
        out[:] = 0
        launch(np.add, out, x, out)
        return out

    return (f, x_of()), {}


@fault("not_written")
def ordinary_numpy_updates_the_state():
    total = np.zeros(6)

    def f(x):
        np.add(total, x, total)
        return doubled(x)

    return (f, x_of()), {}


@fault("not_written")
def a_stream_of_its_own_does_the_work():
    stray = ag.Stream(backend="cpu")

    def f(x):
        out, more = np.empty_like(x), np.empty_like(x)
        if not ag.is_current_stream_capturing():
            stray.wait(ag.current_stream())
        stray.launch(np.multiply, x, 2, out)
        if not ag.is_current_stream_capturing():
            ag.current_stream().wait(stray)
        launch(np.square, x, more)
        return out, more

    return (f, x_of()), {}


@fault("not_written")
def the_graph_writes_another_array():
    x, y, other = x_of(), np.zeros(6), np.zeros(6)
    with ag.Graph() as graph:
        launch(np.multiply, x, 2, y)
    return (graph, x), {"outputs": other, "reference": doubled}


@fault("frozen")
def a_number_is_computed_on_the_host():
    def f(x):
        out = np.empty_like(x)
        launch(np.multiply, x, float(x.sum()), out)
        return {"scaled": out}

    return (f, x_of()), {}


@fault("frozen")
def a_branch_is_taken_on_the_host():
    def f(x):
        out = np.empty_like(x)
        launch(np.negative if x[0] > 0.9 else np.square, x, out)
        return out

    return (f, x_of()), {}


@fault("frozen")
def a_counter_is_a_number():
    counter = SimpleNamespace(step=1)

    def f(x):
        counter.step += 1
        out = np.empty_like(x)
        launch(np.multiply, x, counter.step, out)
        return out

    return (f, x_of()), {}


@fault("stale_address")
def the_state_becomes_another_array():
    cache = SimpleNamespace(rows=np.ones(6))

    def f(x):
        longer = np.empty_like(x)
        launch(np.add, cache.rows, x, longer)
        cache.rows = longer
        return doubled(longer)

    return (f, x_of()), {}


@fault("stale_address")
def the_argument_is_another_array():
    x, y = x_of(), np.zeros(6)
    with ag.Graph() as graph:
        launch(np.multiply, x, 2, y)
    return (graph, x.copy()), {"outputs": y, "reference": doubled}


@fault("stale_address")
def the_weight_was_moved():
    model = SimpleNamespace(weight=np.arange(6.0))
    x, y = x_of(), np.zeros(6)

    def forward(x):
        out = np.empty_like(x)
        launch(np.multiply, x, model.weight, out)
        return out

    with ag.Graph() as graph:
        launch(np.multiply, x, model.weight, y)
    model.weight = model.weight.copy()
    return (graph, x), {"outputs": y, "reference": forward}


@fault("race")
def a_branch_is_not_waited_for():
    """In a replay they take turns in coming first."""
    side, writes, reads, done = ag.Stream(backend="cpu"), Unseen(), Unseen(), Unseen()

    def copy(runs, turn, racing, source, out):
        runs.append(1)
        second = racing and len(runs) % 2 == turn
        if second:
            done.pop()
        np.copyto(out, source)
        if racing and not second:
            done.append(1)

    def f(x):
        stream, between, out = ag.current_stream(), np.empty_like(x), np.empty_like(x)
        launch(np.copyto, between, -1.0)
        side.wait(stream)
        racing = ag.is_current_stream_capturing()
        side.launch(copy, writes, 0, racing, x, between)
        if not racing:
            stream.wait(side)
        launch(copy, reads, 1, racing, between, out)
        stream.wait(side)
        return out

    return (f, x_of()), {}


@fault("random_repeats")
def random_numbers_are_drawn_on_the_host():
    generator = np.random.default_rng(1)

    def f(x):
        out = np.empty_like(x)
        launch(np.add, x, generator.random(len(x)), out)
        return out

    return (f, x_of()), {}


@fault("random_repeats")
def pythons_random_numbers_are_drawn():
    def f(x):
        out = np.empty_like(x)
        launch(np.multiply, x, random.random(), out)
        return out

    return (f, x_of()), {}


@fault("random_repeats")
def a_generator_of_pythons_own_class():
    generator = random.Random(3)

    def f(x):
        out = np.empty_like(x)
        launch(np.multiply, x, generator.random(), out)
        return out

    return (f, x_of()), {}


@fault("random_repeats")
def a_generator_of_numpys_old_class():
    generator = np.random.RandomState(3)

    def f(x):
        out = np.empty_like(x)
        launch(np.add, x, generator.rand(len(x)), out)
        return out

    return (f, x_of()), {}


@fault("random_repeats")
def numpys_own_random_numbers():
    def f(x):
        out = np.empty_like(x)
        launch(np.add, x, np.random.rand(len(x)), out)
        return out

    return (f, x_of()), {}


@fault("race")
def two_branches_write_one_array():
    side = ag.Stream(backend="cpu")

    def f(x):
        stream, out = ag.current_stream(), np.empty_like(x)
        side.wait(stream)
        side.copy(out, x)
        stream.fill(out, 0)
        stream.wait(side)
        return out

    return (f, x_of()), {}


@fault("race")
def a_branch_reads_what_another_writes():
    side = ag.Stream(backend="cpu")

    def f(x):
        stream, between, out = ag.current_stream(), np.zeros(len(x)), np.empty_like(x)
        side.wait(stream)
        side.copy(between, x)
        stream.copy(out, between)
        stream.wait(side)
        return out

    return (f, x_of()), {}


@fault("not_written")
def a_buffer_out_of_sight_is_filled_at_once():
    buffers = Unseen(np.zeros(6))

    def f(x):
        staging, out = buffers.pop(), np.empty_like(x)
        buffers.append(staging)
        staging[:] = x
        launch(np.multiply, staging, 2, out)
        return out

    return (f, x_of()), {}


@fault("not_written")
def a_buffer_in_sight_is_filled_at_once():
    staging = np.zeros(6)

    def f(x):
        out = np.empty_like(x)
        staging[:] = x
        launch(np.multiply, staging, 2, out)
        return out

    return (f, x_of()), {}


@fault("not_written")
def python_counts_in_an_array():
    count = np.zeros(1)

    def f(x):
        out = np.empty_like(x)
        count[0] += 1
        launch(np.multiply, x, count, out)
        return out

    return (f, x_of()), {}


@fault("frozen")
def a_branch_follows_a_sign():
    def f(x):
        out = np.empty_like(x)
        launch(np.negative if x.sum() > 0 else np.square, x, out)
        return out

    return (f, x_of()), {}


@fault("frozen")
def a_branch_that_an_example_takes():
    def f(x):
        out = np.empty_like(x)
        launch(np.square if x.sum() > 1e6 else np.negative, x, out)
        return out

    return (f, x_of()), {"examples": [(x_of() * 1e9,)]}


@fault("frozen")
def the_shape_follows_the_data():
    def f(x):
        some = x[x > 0.9]
        out = np.empty_like(some)
        launch(np.multiply, some, 2, out)
        return out

    return (f, x_of()), {}


@fault("frozen")
def the_shape_follows_the_calls():
    sizes = itertools.count(2)

    def f(x):
        out = np.empty(next(sizes))
        launch(out.fill, 1)
        return out

    return (f, x_of()), {}


@fault("frozen")
def a_copy_is_made_on_the_host():
    def f(x):
        out = np.empty_like(x)
        launch(np.multiply, x.copy(), 2, out)
        return out

    return (f, x_of()), {}


@fault("frozen")
def an_index_is_found_on_the_host():
    def f(x):
        out = np.empty(1)
        launch(np.add, x[int(x.argmax()) :][:1], 0, out)
        return out

    return (f, x_of()), {}


@fault("frozen")
def the_state_is_read_on_the_host():
    weight = np.full(6, 2.0)

    def f(x):
        out = np.empty_like(x)
        launch(np.multiply, x, float(weight[0]), out)
        return out

    return (f, x_of()), {}


@fault("frozen")
def a_table_is_made_of_the_argument():
    tables = {}

    def f(x):
        out = np.empty_like(x)
        table = tables.setdefault(float(x[0]), x * 2)
        launch(np.add, table, 0, out)
        return out

    return (f, x_of()), {}


@fault("stale_address")
def arrays_take_turns():
    turns = deque([np.ones(6), np.full(6, 2.0), np.full(6, 3.0)])

    def f(x):
        turns.rotate()
        out = np.empty_like(x)
        launch(np.multiply, x, turns[0], out)
        return out

    return (f, x_of()), {}


@fault("stale_address")
def a_pair_of_arrays_is_swapped():
    pair = {"now": np.ones(6), "then": np.full(6, 2.0)}

    def f(x):
        pair["now"], pair["then"] = pair["then"], pair["now"]
        out = np.empty_like(x)
        launch(np.multiply, x, pair["now"], out)
        return out

    return (f, x_of()), {}


# ---- numbers that Python changes from run to run --------------------------------------------------


def a_number(form):
    number = next_number(form)

    def f(x):
        out = np.empty_like(x)
        launch(np.multiply, x, number(), out)
        return out

    return (f, x_of()), {}


for form in NUMBERS:
    FAULTS[f"a_number_of_{form}"] = partial(a_number, form), "frozen"


# ---- right programs ------------------------------------------------------------------------------

RIGHT = {}


def right(make):
    return RIGHT.setdefault(make.__name__, make)


@right
def one_piece_of_work():
    return (doubled, x_of()), {}


@right
def arguments_in_containers():
    def f(pair, *, scale):
        out = np.empty_like(pair["a"][0])
        launch(np.multiply, pair["a"][0], scale, out)
        launch(np.add, out, pair["b"], out)
        return [out, {"again": out}]

    return (partial(f, scale=3), {"a": (x_of(),), "b": x_of()}), {}


@right
def an_argument_changed_in_place():
    def f(x, step):
        launch(np.add, x, step, x)
        return x

    return (f, x_of(), np.full(6, 0.25)), {}


@right
def an_argument_given_twice():
    def f(x, y):
        out = np.empty_like(x)
        launch(np.add, x, y, out)
        return out

    x = x_of()
    return (f, x, x), {}


@right
def a_running_mean():
    mean = SimpleNamespace(value=np.zeros(6))

    def update(mean, x):
        mean *= 0.9
        mean += 0.1 * x

    def f(x):
        launch(update, mean.value, x)
        return doubled(x)

    return (f, x_of()), {}


@right
def a_cache_with_its_position_in_an_array():
    cache, position = np.zeros((8, 6)), np.zeros(1, int)

    def append(cache, position, x):
        cache[position[0] % 8] = x
        position += 1

    def f(x):
        out = np.empty(6)
        launch(append, cache, position, x)
        launch(np.sum, cache, 0, None, out)
        return out

    return (f, x_of()), {}


@right
def an_uninitialised_tail():
    def f(x):
        out = np.empty(10)
        launch(np.multiply, x, 2, out[:6])
        return out

    return (f, x_of()), {}


@right
def a_table_that_is_made_in_the_first_call():
    tables = {}

    def f(x):
        if "table" not in tables:
            tables["table"] = np.arange(float(len(x)))
        out = np.empty_like(x)
        launch(np.multiply, x, tables["table"], out)
        return out

    return (f, x_of()), {}


@right
def a_static_output():
    out = np.zeros(6)

    def f(x):
        launch(np.multiply, x, 2, out)
        return out

    return (f, x_of()), {}


@right
def a_constant_result():
    table = np.arange(6.0)

    def f(x):
        return doubled(x), table, 3, "name"

    return (f, x_of()), {}


@right
def branches_that_are_joined():
    side = ag.Stream(backend="cpu")

    def f(x):
        stream, a, b, out = ag.current_stream(), np.empty_like(x), np.empty_like(x), np.empty_like(x)
        side.wait(stream)
        side.launch(np.square, x, a)
        launch(np.negative, x, b)
        stream.wait(side)
        launch(np.add, a, b, out)
        return out

    return (f, x_of()), {}


@right
def random_numbers_of_the_work():
    generator = np.random.default_rng(1)

    def f(x):
        out = np.empty_like(x)
        launch(lambda: generator.random(out=out))
        launch(np.add, x, out, out)
        return out

    return (f, x_of()), {}


@right
def a_counter_that_changes_nothing():
    counter = SimpleNamespace(calls=0)

    def f(x):
        counter.calls += 1
        return doubled(x)

    return (f, x_of()), {}


@right
def integers_and_indices():
    def f(indices, values):
        out = np.empty(len(indices))
        launch(np.take, values, indices, None, out)
        return out

    return (f, np.array([5, 0, 3]), x_of()), {}


@right
def arrays_with_gaps():
    def f(x, y):
        out = np.empty((4, 3)).T
        launch(np.add, x, y, out)
        return out[:, ::2]

    grid = np.arange(48.0).reshape(6, 8)
    return (f, grid[::2, ::2], grid[1::2, 1::2]), {}


@right
def half_precision_and_complex_numbers():
    def f(x, z):
        a, b = np.empty_like(x), np.empty_like(z)
        launch(np.exp, x, a)
        launch(np.multiply, z, 1j, b)
        return a, b

    return (f, x_of().astype("f2"), x_of() + 1j), {}


@right
def read_only_arguments():
    x = x_of()
    x.flags.writeable = False
    return (doubled, x), {}


@right
def no_arguments():
    state = x_of()

    def f():
        return doubled(state)

    return (f,), {}


@right
def a_method():
    class Model:
        scale = np.full(6, 3.0)

        def forward(self, x):
            out = np.empty_like(x)
            launch(np.multiply, x, self.scale, out)
            return out

    return (Model().forward, x_of()), {}


@right
def a_sum_in_any_order():
    """Adds in another order in every run, as atomics do."""

    def add(x, out):
        order = np.random.default_rng(time.perf_counter_ns()).permutation(len(x))
        total = np.float32(0)
        for value in x[order]:
            total += value
        out[:] = total

    def f(x):
        out = np.empty(1, "f4")
        launch(add, x, out)
        return out

    return (f, np.linspace(0.1, 3, 500, dtype="f4")), {}


@right
def a_graph_of_the_callers():
    x, y = x_of(), np.zeros(6)
    with ag.Graph() as graph:
        launch(np.multiply, x, 2, y)
    return (graph, x), {"outputs": y, "reference": doubled}


@right
def a_graph_over_state():
    model = SimpleNamespace(weight=np.arange(6.0))
    x, y = x_of(), np.zeros(6)

    def forward(x):
        out = np.empty_like(x)
        launch(np.multiply, x, model.weight, out)
        return {"y": out}

    with ag.Graph() as graph:
        launch(np.multiply, x, model.weight, y)
    return (graph, x), {"outputs": {"y": y}, "reference": forward}


@right
def the_demo():
    size, side = 16, ag.Stream(backend="cpu")
    plate = _demo._plates.load("cpu")(ag.current_stream(), _demo.initial_state(size), size)

    def f():
        _demo.enqueue(plate, size, 8, ag.current_stream(), side)
        return plate.grids[0]

    return (f,), {"state": plate.grids}
