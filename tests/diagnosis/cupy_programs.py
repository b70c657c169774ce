"""Programs for `verify` with CuPy: right ones, and planted faults."""

import random
from types import SimpleNamespace

import cupy

import accelerator_graph as ag

FAULTS = {}
RIGHT = {}


def fault(cause):
    return lambda make: FAULTS.setdefault(make.__name__, (make, cause))[0]


def right(make):
    return RIGHT.setdefault(make.__name__, make)


def x_of(count=64):
    return cupy.linspace(0.5, 3.5, count, dtype="f4")


@right
def one_kernel():
    return (lambda x: x * 2 + 1, x_of()), {}


@right
def in_place_on_the_argument():
    def f(x):
        x += 1
        return x * x

    return (f, x_of()), {}


@right
def an_uninitialised_tail():
    def f(x):
        out = cupy.empty(2 * len(x), "f4")
        out[: len(x)] = x
        return out

    return (f, x_of()), {}


@right
def atomics():
    def f(index, values):
        out = cupy.zeros(8, "f4")
        cupy.add.at(out, index, values)
        return out

    return (f, cupy.arange(64) % 8, x_of()), {}


@right
def a_state():
    mean = cupy.zeros(64, "f4")

    def f(x):
        mean[:] = 0.9 * mean + 0.1 * x
        return mean - x

    return (f, x_of()), {}


@right
def columns_of_a_matrix():
    grid = x_of().reshape(8, 8)
    return (lambda x, y: x[::2] - y[::2], grid[:, 3], grid[:, 5]), {}


@right
def a_kernel_of_our_own():
    kernel = cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = x * y", "product")
    return (lambda x: kernel(x, x), x_of()), {}


@fault("frozen")
def a_counter_is_a_number():
    counter = SimpleNamespace(step=1)

    def f(x):
        counter.step += 1
        return x * counter.step

    return (f, x_of()), {}


@fault("stale_address")
def the_state_becomes_another_array():
    cache = SimpleNamespace(rows=x_of())

    def f(x):
        cache.rows = cache.rows + x
        return cache.rows * 2

    return (f, x_of()), {}


@fault("stale_address")
def the_argument_is_another_array():
    x = x_of()
    y = cupy.empty_like(x)
    cupy.multiply(x, 2, out=y)
    with ag.graph(ag.Graph()) as graph:
        cupy.multiply(x, 2, out=y)
    graph.retain(x)
    return (graph, x.copy()), {"outputs": y, "reference": lambda x: x * 2}


@fault("random_repeats")
def a_random_number_of_python():
    return (lambda x: x * random.random(), x_of()), {}


@fault("not_written")
def another_stream_writes_the_output():
    stray = cupy.cuda.Stream(non_blocking=True)

    def f(x):
        out, other = cupy.empty_like(x), x + 1
        if not ag.is_current_stream_capturing():  # otherwise eager runs would differ from each other
            cupy.cuda.get_current_stream().synchronize()
        with stray:
            cupy.multiply(x, 2, out=out)
        if not ag.is_current_stream_capturing():
            stray.synchronize()
        return out, other

    return (f, x_of()), {}
