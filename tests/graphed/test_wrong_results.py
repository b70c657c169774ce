"""`graphed` where a result could be wrong in silence, or something be kept for ever: on the CPU backend."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import warnings
import weakref
from collections import OrderedDict
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._core import stream_stack
from accelerator_graph._graphed.arrays import family_of


@pytest.fixture
def stream():
    with ag.Stream(backend="cpu") as stream:
        yield stream
        stream.synchronize()


def launch(work, *args):
    ag.current_stream().launch(work, *args)


def doubled(x):
    out = np.empty_like(x)
    launch(np.multiply, x, 2, out)
    return out


# ---- containers --------------------------------------------------------------------------------


@dataclass
class Outputs(OrderedDict):
    """As those of Hugging Face's models."""

    logits: Any = None
    hidden: Any = None

    def __post_init__(self):
        for field in fields(self):
            if getattr(self, field.name) is not None:
                super().__setitem__(field.name, getattr(self, field.name))

    def __setattr__(self, name, value):
        if name in self:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __reduce__(self):
        return self.__class__, tuple(getattr(self, field.name) for field in fields(self))


@pytest.mark.parametrize("outputs", ["copy", "static"])
def test_a_result_that_is_a_dataclass_and_a_dict(stream, outputs):
    @ag.graphed(warmup=1, outputs=outputs)
    def f(x):
        y = doubled(x)
        found = Outputs(y, (y, [x]))
        found["more"] = doubled(y)
        return found

    for i in range(4):
        x = np.full(1, float(i))
        y = f(x)
        stream.synchronize()
        assert list(y) == ["logits", "hidden", "more"]
        assert y.logits is y["logits"]
        assert y.hidden is y["hidden"]
        assert y.hidden[0] is y.logits
        assert y.hidden[1][0] is x
        assert (y["logits"][0], y["more"][0]) == (2 * i, 4 * i)


def test_an_argument_that_is_a_dataclass_and_a_dict(stream):
    @ag.graphed(warmup=1)
    def f(given):
        out = np.empty(1)
        launch(np.add, given["logits"], given["more"], out)
        return out

    for i in range(4):
        given = Outputs(np.full(1, float(i)))
        given["more"] = np.full(1, 10.0)
        y = f(given)
        stream.synchronize()
        assert y[0] == 10 + i
    assert f.cache_info().captures == 1


def test_one_array_given_several_times_is_one_in_the_graph(stream):
    @ag.graphed(warmup=1)
    def f(x, y, *more):
        launch(np.add, x, 1, x)
        launch(np.add, y, 1, y)
        return x, y

    for _ in range(4):
        x, y = np.zeros(2), np.zeros(2)
        assert f(x, x)[1] is x
        f(x, y)
        f(x, y, 3, 4, 5, x)
        f(x, y, x, y, x, y)
        stream.synchronize()
        assert (x.tolist(), y.tolist()) == ([5.0] * 2, [3.0] * 2)
    assert f.cache_info().captures == 4


@pytest.mark.parametrize("where", [(0, 0), (0, 1, 0), (0, 1, 2, 1), (0, 1, 2, 3, 4, 0)])
def test_which_arrays_are_the_same_is_part_of_the_signature(stream, where):
    arrays = [np.zeros(1) for _ in range(9)]

    @ag.graphed(warmup=0)
    def f(*given):
        launch(int)

    f(*[arrays[i] for i in where])
    f(*[arrays[-1 - i] for i in where])
    assert f.cache_info().captures == 1
    f(*arrays[: len(where)])
    assert f.cache_info().captures == 2
    bucket = ag.graphed(f.__wrapped__, warmup=0, key=lambda *given: 1)
    bucket(*arrays[: len(where)])
    with pytest.raises(ValueError, match="let `key` tell them apart"):
        bucket(*[arrays[i] for i in where])


def test_an_array_that_says_only_on_a_device_where_it_is(stream):
    class Somewhere:
        __hash__ = None

        def __init__(self, on_device):
            self.on_device = on_device

        def __dlpack__(self): ...

        def __getattr__(self, name):
            if name == "__cuda_array_interface__" and self.on_device:
                return {"data": (1, False), "shape": (1,), "typestr": "<f4"}
            raise AttributeError(name)

    def read(family, on_device):
        return family.read(Somewhere(on_device), [])

    assert read(family_of(Somewhere(True)), True) == read(family_of(Somewhere(False)), True)
    f = ag.graphed(lambda x: None)
    with pytest.raises(TypeError, match="argument x is no strided array whose address can be read"):
        f(Somewhere(False))


# ---- what is kept ------------------------------------------------------------------------------


def test_a_capture_that_fails_drops_no_graph(stream):
    @ag.graphed(warmup=0, max_graphs=1)
    def f(x, bad):
        launch(int)
        if bad:
            stream.synchronize()
            ag.current_stream().synchronize()

    f(np.ones(1), False)
    with pytest.raises(ag.CaptureError):
        f(np.ones(1), True)
    assert f.cache_info() == ag.CacheInfo(1, 0, 1, 0, 1, 1)
    f(np.ones(1), False)
    assert f.cache_info().captures == 1


def test_an_argument_that_always_changes_is_warned_of_once(stream):
    @ag.graphed
    def f(x, i):
        launch(int)

    x = np.ones(1)
    for i in range(64):
        f(x, i)
    with pytest.warns(RuntimeWarning, match="f> was called with 65 signatures too seldom") as found:
        f(x, 64)
    assert found[0].filename == __file__
    for i in range(65, 400):
        f(x, i)
    assert len(f._seen._seen) == 256


def test_names_of_arguments_are_not_kept_for_ever(stream):
    f = ag.graphed(lambda **named: None, key=lambda **named: 1)
    for i in range(200):
        with pytest.raises(ValueError, match="let `key`") if i else warnings.catch_warnings():
            f(**{f"name{i}": 1})
    assert len(f._arguments._plans) <= 64


class Model:
    def __init__(self):
        self.runs = 0
        self.bound = self.run

    @ag.graphed(warmup=0)
    def run(self, x, callback=None):
        self.runs += 1
        return self, doubled(x)

    def method(self): ...


def test_an_instance_goes_although_its_graphs_refer_to_it(stream):
    model = Model()
    for _ in range(2):
        assert model.run(np.ones(1), model.method)[0] is model
    ref = weakref.ref(model)
    stream.synchronize()
    del model
    gc.collect()
    assert ref() is None


def test_an_instance_without_a_dictionary(stream):
    class Slots:
        __slots__ = ("__weakref__",)

        @ag.graphed(warmup=0)
        def run(self, x):
            return doubled(x)

    slots, table = Slots(), Slots.run._instances._without_dictionary
    for _ in range(2):
        slots.run(np.ones(1))
    assert slots.run.cache_info() == ag.CacheInfo(2, 0, 1, 0, 1, 16)
    assert len(table) == 1
    del slots
    gc.collect()
    assert not table


def test_the_method_on_the_class_is_all_instances(stream):
    models = Model(), Model()
    Model.run.clear()
    for model in models:
        for _ in range(2):
            model.run(np.ones(1))
    assert Model.run.cache_info() == ag.CacheInfo(4, 0, 2, 0, 2, 16)
    Model.run.clear()
    assert models[0].run.cache_info().graphs == 0
    assert Model.run.cache_info() == ag.CacheInfo(0, 0, 0, 0, 0, 16)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copied_instance_has_graphs_of_its_own(stream, how):
    model = Model()
    for _ in range(2):
        model.run(np.ones(1))
    twin = how(model)
    assert twin.run.cache_info().graphs == 0
    for function in (twin.run, twin.bound):
        assert function(np.ones(1))[0] is function.__self__
    assert model.run(np.ones(1))[0] is model
    assert twin.run.cache_info().graphs == 1


@ag.graphed(warmup=0)
def function(x):
    return doubled(x)


def test_copies_of_a_graphed_function_begin_without_graphs(stream):
    assert copy.deepcopy(function) is function
    assert pickle.loads(pickle.dumps(function)) is function

    class Holder:
        def __init__(self):
            self.factor = 2
            self.forward = ag.graphed(self.forward, warmup=0, pool=ag.graph_pool_handle())
            self.name = "holder"

        def __repr__(self):
            return self.name  # which a copy that is being made has not yet

        def forward(self, x):
            return self, doubled(x)

    holder = Holder()
    holder.forward(np.ones(1))
    twin = copy.deepcopy(holder)
    assert twin.forward.cache_info().graphs == 0
    assert twin.forward(np.ones(1))[0] is twin
    assert copy.copy(holder.forward).cache_info().graphs == 0


# ---- interrupts --------------------------------------------------------------------------------


class Interrupt(BaseException):
    pass


@pytest.mark.parametrize("where", ["work", "leave", "after"])
def test_an_interrupt_leaves_no_stream_entered(where):
    target, entered = ag.Stream(backend="cpu"), []

    def work():
        entered.append(ag.current_stream())
        if where == "work":
            raise Interrupt

    def trace(frame, event, arg):
        name = frame.f_code.co_name
        if event == "call" and where == "leave" and name == "leave":
            sys.settrace(None)
            raise Interrupt
        if event == "return" and where == "after" and name == "leave":
            sys.settrace(None)
            raise Interrupt
        return trace

    def run():
        tracing = sys.gettrace()
        try:
            sys.settrace(trace)
            stream_stack.within(target, work)
        finally:
            sys.settrace(tracing)

    before = list(stream_stack.thread.entries)
    with pytest.raises(Interrupt):
        run()
    assert entered == [target]
    assert stream_stack.thread.entries == before
