"""The differences between torch's tensors that C must not miss."""

import pytest

import accelerator_graph as ag
from accelerator_graph._core.extension import fast

pytestmark = [
    pytest.mark.needs("torch"),
    pytest.mark.skipif(fast is None, reason="the C extension is not there"),
]


@pytest.fixture(autouse=True)
def stream(torch_stream):
    import torch

    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this torch does not describe its tensors in C")
    with torch.no_grad():
        yield


def double(x):
    return x * 2


def guarded(*args, function=double):
    """Return a function that was graphed for these arguments, and what sees that calls are alike."""
    f = ag.graphed(function, warmup=0, outputs="static")
    for _ in range(2):
        f(*args)
    assert f._latest is not None
    same = f._latest[1].same

    def guard(args, kwargs):
        found = same(args, kwargs)
        return found if found is None else found[:-1]

    return f, guard


def test_a_tensor_like_the_first_is_alike():
    import torch

    x = torch.rand(2, 3)
    f, guard = guarded(x)
    y = torch.rand(2, 3)
    assert guard((y,), {}) == [y]
    assert f(y).equal(2 * y)
    part = torch.rand(4, 3)[2:]
    assert guard((part,), {}) == [part]
    assert f(part).equal(2 * part)


@pytest.mark.parametrize(
    "change",
    [
        "x.resize_(3, 2)",
        "x.resize_(2, 2)",
        "x.t_()",
        "x.unsqueeze_(0)",
        "x.as_strided_((2, 3), (1, 2))",
        "x.requires_grad_()",
        "setattr(x, 'data', x.double())",
        "setattr(x, 'data', x[:, :2])",
        "setattr(x, 'data', torch.rand(3, 2).t())",
        "x.set_(torch.rand(6))",
    ],
)
def test_a_tensor_that_was_changed_is_not(change):
    import torch

    x = torch.rand(2, 3)
    f, guard = guarded(x)
    assert guard((x,), {}) is not None
    eval(change, {"x": x, "torch": torch})
    assert guard((x,), {}) is None
    assert f(x).equal(2 * x)


def others():
    import torch

    x = torch.rand(2, 3)
    return {
        "a parameter": torch.nn.Parameter(x),
        "sparse": x.to_sparse(),
        "on another device": torch.empty(2, 3, device="meta"),
        "of bits": x.view(torch.int32),
        "a list": x.tolist(),
        "None": None,
        "a fake": torch._subclasses.FakeTensorMode().from_tensor(x),
    }


@pytest.mark.parametrize(
    "what", ["a parameter", "sparse", "on another device", "of bits", "a list", "None", "a fake"]
)
def test_other_things_are_not(what):
    import torch

    _, guard = guarded(torch.rand(2, 3))
    assert guard((others()[what],), {}) is None


def test_a_tensor_inside_a_transformation_is_not():
    import torch

    _, guard = guarded(torch.rand(3))
    seen = []

    def note(x):
        assert type(x) is torch.Tensor
        seen.append(guard((x,), {}))
        return x

    torch.vmap(note)(torch.rand(2, 3))
    torch.func.grad(lambda x: note(x).sum())(torch.rand(3))
    assert seen == [None, None]


@pytest.mark.parametrize("mode", ["enable_grad()", "inference_mode()", "autocast('cpu')"])
def test_a_mode_is_seen(mode):
    import torch

    x = torch.rand(2, 3)
    _, guard = guarded(x)
    with eval(f"torch.{mode}"):
        assert guard((x,), {}) is None
    assert guard((x,), {}) is not None


def test_a_call_in_autocast_is_not_repeated():
    import torch

    x = torch.rand(2, 3)
    f = ag.graphed(double, warmup=0, outputs="static")
    with torch.autocast("cpu"):
        f(x), f(x)
    assert f._latest is None
    assert f(x).equal(2 * x)


def test_a_lazy_negation_is_altered():
    import torch

    x = torch.rand(2, 3)
    altered = torch.view_as_complex(torch.rand(2, 3, 2)).conj().imag
    assert altered.is_neg()
    f, _ = guarded(x)
    same = torch.rand(2, 3)
    assert f(same).equal(2 * same)
    g, guard = guarded(altered)
    assert guard((altered,), {}) == [altered]
    assert g(altered).equal(2 * altered)


def test_values_beside_tensors():
    import torch

    module, x = torch.nn.Linear(3, 3), torch.rand(2, 3)

    def function(layer, x, name, sizes, factor=1.5, *, bias=True):
        return layer(x) * factor

    sizes = (2, (3, "a"))
    f, guard = guarded(module, x, "name", sizes, function=function)
    assert guard((module, x, "name", sizes), {}) == [x]
    assert guard((torch.nn.Linear(3, 3), x, "name", sizes), {}) is None
    assert guard((module, x, "other", sizes), {}) is None
    assert guard((module, x, "name", (2, (3, "b"))), {}) is None
    assert guard((module, x, "name", sizes, 2.5), {}) is None
    assert f(module, x, "name", sizes, 2.5).equal(module(x) * 2.5)


def test_a_value_that_may_change_is_read_at_every_call():
    import torch

    f = ag.graphed(lambda x, sizes: x * sum(sizes), warmup=0, outputs="static")
    x, sizes = torch.rand(3), [1]
    for _ in range(3):
        assert f(x, sizes).equal(x)
    assert f._latest is None
    sizes.append(3)
    assert f(x, sizes).equal(x * 4)
