"""Programs for `verify` over raw memory of a device: kernels, copies and fills, without any framework.

They are as those of `host_programs`; each is given the kit's work of the backend. A function may have a
method `close`, to be called at the end.
"""

import random
import struct
from functools import partial
from types import SimpleNamespace

import accelerator_graph as ag
from accelerator_graph import _demo
from diagnosis.changing_numbers import NUMBERS, next_number


class Floats:
    """Single-precision numbers on a device."""

    def __init__(self, work, values):
        self.buffer = work.buffer(4 * len(values))
        self.count = len(values)
        address = self.buffer.__cuda_array_interface__["data"]
        self.__cuda_array_interface__ = {
            "shape": (len(values),),
            "typestr": "<f4",
            "data": address,
            "version": 3,
        }
        stream = ag.Stream(backend=work.backend)
        data = struct.pack(f"<{len(values)}f", *values)  # kept until the copy is done
        stream.copy(self.buffer, data)
        stream.synchronize()

    @property
    def address(self):
        return self.__cuda_array_interface__["data"][0]


def x_of(work, *values):
    return Floats(work, values or (1.5, -2.25, 3.0, 0.5))


def copy(target, source):
    ag.current_stream().copy(target.buffer, source.buffer)


FAULTS = {}
RIGHT = {}


def fault(cause):
    return lambda make: FAULTS.setdefault(make.__name__, (make, cause))[0]


def right(make):
    return RIGHT.setdefault(make.__name__, make)


# ---- faults --------------------------------------------------------------------------------------


@fault("not_written")
def a_stray_stream_writes_the_output(work):
    stray, y, z = ag.Stream(backend=work.backend), x_of(work), x_of(work)

    def f(x):
        copy(z, x)
        if not ag.is_current_stream_capturing():
            stray.wait(ag.current_stream())
        stray.copy(y.buffer, x.buffer)
        stray_is_awaited(stray)
        return y

    return (f, x_of(work)), {}


def stray_is_awaited(stray):
    if not ag.is_current_stream_capturing():
        ag.current_stream().wait(stray)


@fault("not_written")
def a_stray_stream_updates_the_state(work):
    stray, total, y = ag.Stream(backend=work.backend), x_of(work), x_of(work)

    def f(x):
        copy(y, x)
        stray.fill(total.buffer, 65)
        stray_is_awaited(stray)
        return y

    return (f, x_of(work)), {}


@fault("not_written")
def a_stray_stream_clears_the_counter(work):
    stray, counter = ag.Stream(backend=work.backend), x_of(work, 0.0)

    def f(x):
        stray.fill(counter.buffer, 0)
        stray_is_awaited(stray)
        work.enqueue(ag.current_stream(), counter.address, 1, 5)
        return counter

    return (f, x_of(work)), {}


@fault("not_written")
def the_graph_writes_other_memory(work):
    x, y, other = x_of(work), x_of(work), x_of(work)
    with ag.Graph() as graph:
        copy(y, x)

    def reference(x):
        copy(y, x)
        return y

    return (graph, x), {"outputs": other, "reference": reference}


@fault("frozen")
def bytes_are_read_on_the_host(work):
    y, kept = x_of(work), []

    def f(x):
        kept.append(work.read_bytes(x.buffer))
        ag.current_stream().copy(y.buffer, kept[-1])
        return y

    return (f, x_of(work)), {}


@fault("frozen")
def a_counter_is_an_argument_of_a_kernel(work):
    y, counter = x_of(work), SimpleNamespace(step=1)

    def f(x):
        counter.step += 1
        copy(y, x)
        work.enqueue(ag.current_stream(), y.address, 1, counter.step << 22)
        return y

    return (f, x_of(work)), {}


@fault("frozen")
def a_flag_decides(work):
    y, flag = x_of(work), SimpleNamespace(on=False)

    def f(x):
        flag.on = not flag.on
        copy(y, x)
        if flag.on:
            work.enqueue(ag.current_stream(), y.address, 1, 7 << 22)
        return y

    return (f, x_of(work)), {}


@fault("stale_address")
def two_buffers_take_turns(work):
    y, turns = x_of(work), SimpleNamespace(now=x_of(work, 1.0, 2.0, 3.0, 4.0), then=x_of(work))

    def f(x):
        turns.now, turns.then = turns.then, turns.now
        copy(y, turns.now)
        return y

    return (f, x_of(work)), {}


@fault("stale_address")
def the_argument_lies_elsewhere(work):
    x, y = x_of(work), x_of(work)
    with ag.Graph() as graph:
        copy(y, x)

    def reference(x):
        copy(y, x)
        return y

    return (graph, x_of(work)), {"outputs": y, "reference": reference}


@fault("stale_address")
def the_weight_lies_elsewhere(work):
    x, y, model = x_of(work), x_of(work), SimpleNamespace(weight=x_of(work))

    def reference(x):
        copy(y, model.weight)
        return y

    with ag.Graph() as graph:
        copy(y, model.weight)
    model.weight = x_of(work)
    return (graph, x), {"outputs": y, "reference": reference}


@fault("stale_address")
def the_weight_of_a_graph_inside_lies_elsewhere(work):
    x, y, model = x_of(work), x_of(work), SimpleNamespace(weight=x_of(work, 1.0, 2.0, 3.0, 4.0))

    def reference(x):
        copy(y, model.weight)
        return y

    with ag.Graph(keep_graph=True) as inner:
        copy(y, model.weight)
    inner.replay()  # beside torch, whether a graph draws random numbers is known from then on
    with ag.Graph() as graph:
        graph.add(inner)
    model.weight = x_of(work)
    return (graph, x), {"outputs": y, "reference": reference}


@fault("random_repeats")
def a_random_number_is_an_argument_of_a_kernel(work):
    y = x_of(work)

    def f(x):
        copy(y, x)
        work.enqueue(ag.current_stream(), y.address, 1, random.randrange(1 << 20))
        return y

    return (f, x_of(work)), {}


def a_number(form, work):
    y, number = x_of(work), next_number(form)

    def f(x):
        copy(y, x)
        work.enqueue(ag.current_stream(), y.address, 1, int(number()) << 22)
        return y

    return (f, x_of(work)), {}


for form in NUMBERS:
    FAULTS[f"a_number_of_{form}"] = partial(a_number, form), "frozen"


# ---- right programs ------------------------------------------------------------------------------


@right
def a_copy(work):
    y = x_of(work)

    def f(x):
        copy(y, x)
        return y

    return (f, x_of(work)), {}


@right
def kernels_one_after_another(work):
    y = x_of(work)

    def f(x):
        copy(y, x)
        for i in range(5):
            work.enqueue(ag.current_stream(), y.address, 3, i)
        return y

    return (f, x_of(work)), {}


@right
def an_argument_is_changed_in_place(work):
    def f(x):
        work.enqueue(ag.current_stream(), x.address, 1, 1)

    return (f, x_of(work)), {}


@right
def a_state_is_changed_in_place(work):
    total, y = x_of(work, 0.0), x_of(work)

    def f(x):
        work.enqueue(ag.current_stream(), total.address, 1, 1)
        copy(y, x)
        return y

    return (f, x_of(work)), {}


@right
def only_a_part_is_written(work):
    y = x_of(work)

    def f(x):
        ag.current_stream().copy(y.buffer, x.buffer, 8)
        return y

    return (f, x_of(work)), {}


@right
def a_fork_that_is_joined(work):
    side, y, z = ag.Stream(backend=work.backend), x_of(work), x_of(work)

    def f(x):
        stream = ag.current_stream()
        side.wait(stream)
        side.copy(y.buffer, x.buffer)
        work.enqueue_slow(side, y.address, 1, 3)
        copy(z, x)
        stream.wait(side)
        work.enqueue(stream, y.address, 1, 4)
        return y, z

    return (f, x_of(work)), {}


@right
def a_graph_inside(work):
    y = x_of(work)
    with ag.Graph(keep_graph=True) as inner:
        work.enqueue(ag.current_stream(), y.address, 3, 1)

    def f(x):
        copy(y, x)
        inner.replay(ag.current_stream())
        work.enqueue(ag.current_stream(), y.address, 1, 2)
        inner.replay(ag.current_stream())
        return y

    return (f, x_of(work)), {}


@right
def a_graph_of_the_callers(work):
    x, y = x_of(work), x_of(work)
    with ag.Graph() as graph:
        copy(y, x)

    def reference(x):
        copy(y, x)
        return y

    return (graph, x), {"outputs": y, "reference": reference}


@right
def a_counter_on_the_device(work):
    counter, y = x_of(work, 0.0), x_of(work)

    def f(x):
        work.enqueue(ag.current_stream(), counter.address, 1, 1)
        ag.current_stream().copy(y.buffer, counter.buffer, 4)
        return y

    return (f, x_of(work)), {}


class Doubles:
    """Double-precision numbers at an address."""

    def __init__(self, address, count):
        self.__cuda_array_interface__ = {
            "shape": (count,),
            "typestr": "<f8",
            "data": (int(address), False),
            "version": 3,
        }


@right
def the_demo(work):
    stream, size = ag.current_stream(), 16
    side = ag.Stream(like=stream)
    plate = _demo._plates.load(work.backend)(stream, _demo.initial_state(size), size)
    plate.restore(stream)
    stream.synchronize()
    grids = [Doubles(address, size * size) for address in plate.grids]

    def f():
        _demo.enqueue(plate, size, 8, ag.current_stream(), side)
        return grids[0]

    f.close = plate.close
    return (f,), {"state": grids}
