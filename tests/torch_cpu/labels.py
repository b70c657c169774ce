"""Labels of torch's modules."""

import inspect

import pytest
import torch
from torch import nn

import accelerator_graph as ag

pytestmark = [pytest.mark.needs("torch"), pytest.mark.usefixtures("stream")]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.nothing = nn.Identity()

    def forward(self, x):
        return self.nothing(self.linear(x)).relu()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x + 1


class Fails(nn.Module):
    def forward(self, x):
        raise ValueError(x + 1)


def captured(work):
    with ag.Graph(keep_graph=True) as graph, torch.no_grad():
        work()
    return graph


def names(graph):
    return [label.name for label in graph.describe().labels]


def hooks(model):
    return [
        len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._forward_hooks_always_called)
        for module in model.modules()
    ]


def test_each_module_has_the_nodes_of_its_forward():
    model, x = Model(), torch.ones(2, 4)
    with ag.label_modules(model):
        graph = captured(lambda: model(x))
    labels = {label.name: label for label in graph.describe().labels}
    assert list(labels) == ["Model", "blocks.0", "blocks.0.linear", "blocks.1", "blocks.1.linear"]
    kinds = {
        name: [node.kind for node in graph.describe().nodes[label.start : label.stop]]
        for name, label in labels.items()
    }
    count = len(graph.describe().nodes)
    assert [len(kinds[name]) for name in labels] == [count, (count - 1) // 2, 1, (count - 1) // 2, 1]
    assert labels["blocks.0"].file == __file__
    assert labels["blocks.0"].line == inspect.getsourcelines(Block.forward)[1]
    assert labels["blocks.0.linear"].file == inspect.getsourcefile(nn.Linear)


def test_modules_are_timed():
    model, x = Model(), torch.ones(2, 4)
    with ag.label_modules(model), ag.Graph(keep_graph=True) as graph, torch.no_grad():
        y = model(x)
    profile = graph.profile(3)
    times = {each.label.name: each.time for each in profile.labels}
    assert list(times) == ["Model", "blocks.0", "blocks.0.linear", "blocks.1", "blocks.1.linear"]
    assert 0 < times["blocks.0.linear"] < times["blocks.0"] < times["Model"] <= profile.with_events
    torch.testing.assert_close(y, model(x), rtol=0, atol=0)


def test_the_labels_end_with_remove():
    model, x = Model(), torch.ones(2, 4)
    before = hooks(model)
    labels = ag.label_modules(model)
    assert hooks(model) != before
    labels.remove()
    labels.remove()
    assert hooks(model) == before
    assert names(captured(lambda: model(x))) == []
    with pytest.raises(ValueError, match="x"), ag.label_modules(model):
        raise ValueError("x")
    assert hooks(model) == before


def test_results_are_the_same():
    model, x = Model(), torch.ones(2, 4)
    want = model(x)
    with ag.label_modules(model):
        torch.testing.assert_close(model(x), want, rtol=0, atol=0)


def test_a_forward_that_raises_ends_its_label():
    model, x = nn.Sequential(nn.ReLU(), Fails()), torch.ones(4)

    def work():
        with pytest.raises(ValueError, match="2"):
            model(x)
        x.add_(1)

    with ag.label_modules(model):
        graph = captured(work)
    labels = graph.describe().labels
    assert [(label.name, label.stop) for label in labels] == [("Sequential", 2), ("0", 1), ("1", 2)]
    assert len(graph.describe().nodes) == 3


def test_a_forward_that_raises_fails_the_capture_as_ever():
    model, x, graph = Fails(), torch.ones(4), ag.Graph(keep_graph=True)
    with ag.label_modules(model):
        with pytest.raises(ValueError, match="2"), graph:
            model(x)
        assert graph.state == "empty"


def test_a_module_that_is_used_twice_and_inside_itself():
    class Twice(nn.Module):
        def forward(self, x, depth=1):
            return self(x, depth - 1) * 2 if depth else x + 1

    model, x = Twice(), torch.ones(4)
    with ag.label_modules(model):
        graph = captured(lambda: (model(x), model(x)))
    found = [(label.name, label.start, label.stop) for label in graph.describe().labels]
    assert found == [("Twice", 0, 2), ("Twice", 0, 1), ("Twice", 2, 4), ("Twice", 2, 3)]


def test_other_hooks_run_inside_the_label():
    model, x = nn.ReLU(), torch.ones(4)
    model.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    with ag.label_modules(model):
        graph = captured(lambda: model(x))
    (label,) = graph.describe().labels
    assert (label.start, label.stop) == (0, 2)


def test_modules_and_blocks_are_nested():
    model, x = Block(), torch.ones(2, 4)

    def work():
        with ag.label("step"):
            model(x)

    with ag.label_modules(model):
        graph = captured(work)
    assert "[step / Block / linear]" in str(graph.describe())


def test_a_model_outside_a_capture_has_no_labels_and_no_warning(recwarn):
    model = nn.Identity()
    with ag.label_modules(model):
        model(torch.ones(1))
        captured(lambda: model(torch.ones(1)).add_(1))
    assert [each for each in recwarn if each.category is ag.EmptyLabelWarning] == []
