"""Graphed methods: every instance has graphs of its own, which go with it and are not copied."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import accelerator_graph as ag
from graphed.functions import launch, twice


class Scale:
    def __init__(self, factor):
        self.factor = factor
        self.runs = 0

    @ag.graphed(warmup=1)
    def apply(self, x, *, offset=0):
        self.runs += 1
        out = np.empty_like(x)
        launch(np.multiply, x, self.factor, out)
        launch(np.add, out, offset, out)
        return out

    __hash__ = None


@pytest.mark.promise("graphs-of-instances")
def test_a_method_has_graphs_for_every_instance(stream):
    two, three = Scale(2), Scale(3)
    for i in range(4):
        y, z = two.apply(np.full(1, float(i))), three.apply(np.full(1, float(i)), offset=1)
        stream.synchronize()
        assert (y[0], z[0]) == (2 * i, 3 * i + 1)
    assert (two.runs, three.runs) == (2, 2)
    assert two.apply.cache_info().graphs == 1
    assert isinstance(Scale.apply.cache_info(), ag.CacheInfo)
    two.apply.cache_clear()
    assert two.apply.cache_info().graphs == 0
    assert three.apply.cache_info().graphs == 1
    ref = weakref.ref(three)
    stream.synchronize()
    del three
    gc.collect()
    assert ref() is None
    assert list(Scale.apply._instances) == [two.apply.__func__]


def test_static_and_class_methods(stream):
    class Two:
        factor = 2

        @staticmethod
        @ag.graphed(warmup=0)
        def static(x):
            launch(np.multiply, x, 2, x)
            return x

        @ag.graphed(warmup=0)
        def plain(self):
            launch(int)
            return 3

    x = np.ones(1)
    for _ in range(2):
        Two().static(x)
    stream.synchronize()
    assert x[0] == 4
    assert Two().plain() == 3


def test_instances_that_can_not_be_referenced_weakly():
    class Slots:
        __slots__ = ()

        @ag.graphed
        def f(self): ...

    with pytest.raises(TypeError, match="__weakref__"):
        Slots().f  # noqa: B018


class Model:
    def __init__(self):
        self.runs = 0
        self.bound = self.run

    @ag.graphed(warmup=0)
    def run(self, x, callback=None):
        self.runs += 1
        return self, twice(x)

    def method(self): ...


@pytest.mark.promise("graphs-of-instances")
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
            return twice(x)

    slots, table = Slots(), Slots.run._instances._without_dict
    for _ in range(2):
        slots.run(np.ones(1))
    assert slots.run.cache_info() == ag.CacheInfo(2, 0, 1, 0, 1, 16)
    assert len(table) == 1
    del slots
    gc.collect()
    assert not table


def test_the_method_on_the_class_is_all_instances(stream):
    models = Model(), Model()
    Model.run.cache_clear()
    for model in models:
        for _ in range(2):
            model.run(np.ones(1))
    assert Model.run.cache_info() == ag.CacheInfo(4, 0, 2, 0, 2, 16)
    Model.run.cache_clear()
    assert models[0].run.cache_info().graphs == 0
    assert Model.run.cache_info() == ag.CacheInfo(0, 0, 0, 0, 0, 16)


@pytest.mark.promise("copies-begin-without-graphs")
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
    return twice(x)


@pytest.mark.promise("copies-begin-without-graphs")
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
            return self, twice(x)

    holder = Holder()
    holder.forward(np.ones(1))
    twin = copy.deepcopy(holder)
    assert twin.forward.cache_info().graphs == 0
    assert twin.forward(np.ones(1))[0] is twin
    assert copy.copy(holder.forward).cache_info().graphs == 0
