"""What `make_graphed_callables` refuses, and failures of its captures, with torch on the CPU backend."""

import gc
import re
import weakref

import pytest

import accelerator_graph as ag
import lanes

pytestmark = [lanes.require("torch", "no_gpu"), pytest.mark.usefixtures("torch_stream")]

from graphed.modules import grads, make, net, same, torch, x_of
from threads import in_threads

# ---- calls that are refused --------------------------------------------------------------------


def test_backward_after_the_next_call_is_refused(pair):
    ours, _ = pair
    first, second = ours(x_of()).sum(), ours(x_of()).sum()
    with pytest.raises(ag.GraphStateError, match=re.escape("callable 0 (Sequential)")):
        first.backward()
    second.backward()
    third = ours(x_of()).sum()
    with torch.no_grad():
        ours(x_of())
    with pytest.raises(ag.GraphStateError, match="before the next one"):
        third.backward()


def test_backward_twice_is_refused(pair):
    loss = pair[0](x_of()).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(ag.GraphStateError, match="once for every call"):
        loss.backward()
    pair[0](x_of()).sum().backward()


def _new_data(module, sample):
    module[0].weight.data = module[0].weight.data.clone()


def _new_parameter(module, sample):
    module[0].weight = torch.nn.Parameter(module[0].weight.detach().clone())


def _new_buffer(module, sample):
    module.scale = module.scale.clone()


def _removed(module, sample):
    del module.scale


def _new_sample(module, sample):
    sample.data = sample.data.clone()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_new_data, "parameter '0.weight' was moved to other memory"),
        (_new_parameter, "parameter '0.weight' was moved to other memory"),
        (_new_buffer, "buffer 'scale' was moved to other memory"),
        (_removed, "buffer 'scale' was removed"),
        (_new_sample, "sample argument 0 was moved to other memory"),
    ],
)
def test_what_was_moved_before_the_first_call_is_refused(change, words):
    module, sample = net(), x_of()
    module.register_buffer("scale", torch.ones(3))
    weight, scale = module[0].weight, module.scale
    kept = weight.data, scale, sample.detach()
    make(module, (sample,))
    change(module, sample)
    for _ in range(2):
        with pytest.raises(ag.GraphStateError, match=re.escape(f"callable 0 (Sequential): {words}")):
            module(x_of())
    weight.data, sample.data = kept[0], kept[2]
    module[0].weight = weight
    module.register_buffer("scale", scale) if change is _removed else setattr(module, "scale", scale)
    module(x_of()).sum().backward()


def test_gradients_of_gradients_are_refused():
    g = make(lambda x: (x**2).sum(), (x_of(grad=True),))
    x = x_of(grad=True)
    [grad] = torch.autograd.grad(g(x), x, create_graph=True)
    same([grad.detach()], [2 * x.detach()])
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@pytest.mark.parametrize(
    ("args", "error", "words"),
    [
        (lambda: (x_of(5),), ValueError, r"argument 0 has shape \(5, 6\), not \(4, 6\)"),
        (lambda: (torch.randn(6),), ValueError, "argument 0 has shape"),
        (lambda: (x_of(grad=True),), ValueError, "argument 0 requires grad, and its sample did not"),
        (lambda: ([1.0],), TypeError, "argument 0 is of type 'list'"),
        (lambda: (1.0,), TypeError, "argument 0 is of type 'float'"),
        (lambda: (None,), TypeError, "argument 0 is of type 'NoneType'"),
        (lambda: (), TypeError, "the number or the nesting"),
        (lambda: (x_of(), x_of()), TypeError, "the number or the nesting"),
    ],
)
def test_arguments_that_differ_from_the_sample(pair, args, error, words):
    ours, theirs = pair
    given = args()
    with pytest.raises(error, match=words) as raised:
        ours(*given)
    assert "callable 0 (Sequential)" in str(raised.value)
    if given and getattr(given[0], "requires_grad", False):
        with torch.no_grad():
            same([ours(*given)], [theirs(*given)])
    x = x_of()
    same([ours(x)], [theirs(x)])


def test_torch_transforms_are_refused_as_torch_does():
    g = make(lambda x: x * 2, (x_of(grad=True),))
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda x: g(x).sum())(x_of())


# ---- captures that are refused -----------------------------------------------------------------


class Cached(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Linear(2, 2)
        self.used = torch.nn.Linear(6, 6)

    def forward(self, x, y):
        return self.used(x)


def hooked(kind):
    module = net()
    getattr(module, kind)(lambda *args: None)
    return module


def with_buffer():
    module = net()
    module.register_buffer("scale", torch.ones(1, requires_grad=True))
    return module


class Counting:
    """A callable object that must not be called."""

    def __call__(self, *args):
        raise AssertionError


TWICE = torch.zeros(4, 6)
REFUSED = [
    ("no tensor", lambda: (Counting(), (x_of(), 1.0)), TypeError, "sample argument 1 is of type 'float'"),
    ("none", lambda: (Counting(), (None,)), TypeError, "sample argument 0 is of type 'NoneType'"),
    ("sparse", lambda: (Counting(), (x_of().to_sparse(),)), TypeError, "only strided tensors"),
    ("bare", lambda: (Counting(), x_of()), TypeError, "a tuple of its arguments"),
    ("not callable", lambda: (3, (x_of(),)), TypeError, "must be a module or a function, not 3"),
    ("a list", lambda: ([net()], (x_of(),)), TypeError, "must be a module or a function"),
    ("too few", lambda: ((net(), net()), ((x_of(),),)), ValueError, "one tuple for every callable"),
    ("nothing", lambda: ((), ()), ValueError, "at least one"),
    *(
        (kind, lambda kind=kind: (hooked(f"register_{kind}"), (x_of(),)), ValueError, "has hooks")
        for kind in ("forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook")
    ),
    ("buffer", lambda: (with_buffer(), (x_of(),)), ValueError, "buffer 'scale' requires grad"),
    ("twice", lambda: ((Cached(),) * 2, ((x_of(), x_of()),) * 2), ValueError, "given twice"),
    ("shared", lambda: (Counting(), (TWICE, TWICE)), ValueError, "argument 1 shares memory"),
    ("expanded", lambda: (Counting(), (torch.ones(1).expand(3),)), ValueError, "argument 0 shares memory"),
    ("meta", lambda: (Counting(), (torch.ones(3, device="meta"),)), Exception, "meta"),
]


@pytest.mark.parametrize(
    ("args", "error", "words"), [each[1:] for each in REFUSED], ids=[e[0] for e in REFUSED]
)
def test_what_can_not_be_captured_is_refused_before_it_runs(args, error, words):
    with pytest.raises(error, match=words):
        make(*args())


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({"num_warmup_iters": -1}, ValueError),
        ({"num_warmup_iters": 1.5}, TypeError),
        ({"pool": (1, 1)}, ValueError),
        ({"pool": "x"}, TypeError),
    ],
)
def test_options_are_checked(named, error):
    with pytest.raises(error):
        make(Counting(), (x_of(),), **named)


def test_errors_name_the_callable():
    with pytest.raises(ValueError, match=re.escape("callable 1 (Sequential) has hooks (forward_hooks)")):
        make((net(), hooked("register_forward_hook")), ((x_of(),), (x_of(),)))

    def function(x):
        return x

    with pytest.raises(TypeError, match=r"callable 0 \(.*function\): sample argument 0"):
        make(function, (1,))


def test_the_cache_of_autocast_is_refused():
    with torch.autocast("cpu"), pytest.raises(RuntimeError, match="cache_enabled=False"):
        make(net(), (x_of(),))


def test_inputs_of_no_use():
    module = Cached()
    samples = x_of(), x_of(grad=True)
    with pytest.raises(ValueError, match=r"argument 1, parameter 'unused.weight', parameter 'unused.bias'"):
        make(module, samples)
    assert "forward" not in vars(module)
    make(module, samples, allow_unused_input=True)
    y = x_of(grad=True)
    module(x_of(), y).sum().backward()
    assert y.grad is None
    assert module.unused.weight.grad is None
    assert module.used.weight.grad is not None


def test_gradients_that_nothing_leads_to():
    w = torch.ones(6, requires_grad=True)
    with pytest.raises(ValueError, match="no argument and no parameter of its own"):
        make(lambda x: x * w, (x_of(),))


def test_a_backend_where_torch_takes_no_part():
    ag.interop.unregister("torch_cpu")
    try:
        with pytest.raises(ag.UnsupportedError, match="no framework takes part in captures on backend 'cpu'"):
            make(net(), (x_of(),))
    finally:
        ag.interop.register("torch_cpu", "torch_cpu.framework:TorchOnCpu")


def test_no_stream_is_current():
    def work():
        with pytest.raises(ag.CaptureError) as info:
            make(net(), (x_of(),))
        assert info.value.reason == "default_stream"

    in_threads(work)


def test_in_a_capture():
    g, x = ag.Graph(), x_of()
    with g:
        x.add_(1)
        with pytest.raises(ag.CaptureError):
            make(net(), (x_of(),))
    g.reset()


# ---- failures ----------------------------------------------------------------------------------


class Failing(torch.nn.Module):
    """Fails in one of its runs, forward or backward."""

    def __init__(self, fails_at, how):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)
        self.left, self.how = fails_at, how

    def forward(self, x):
        self.count(x)
        y = self.linear(x)
        y.register_hook(lambda grad: self.count(grad))
        return y

    def count(self, x):
        self.left -= 1
        if self.left < 0:
            if self.how is ag.CaptureError:
                x.sum().item()
                self.left = 1000
            else:
                raise self.how


FAILURES = [
    *((0, "the warm-up"), (1, "the warm-up"), (3, "the warm-up")),
    *((4, "the capture of the forward pass"), (5, "the capture of the backward pass")),
]


@pytest.mark.parametrize(
    ("fails_at", "when", "how"),
    [
        *((*each, how) for each in FAILURES for how in (ZeroDivisionError, KeyboardInterrupt)),
        *((*each, ag.CaptureError) for each in FAILURES[3:]),
    ],
)
def test_a_failure_leaves_no_trace(torch_stream, monkeypatch, fails_at, when, how):
    graphs = []
    init = ag.Graph.__init__

    def made(self, *args, **named):
        graphs.append(self)
        init(self, *args, **named)

    monkeypatch.setattr(ag.Graph, "__init__", made)
    modules = net(), Failing(fails_at, how), torch.nn.Linear(6, 6)
    before = [list(map(torch.clone, module.parameters())) for module in modules]
    pool = ag.graph_pool_handle()
    with pytest.raises(how) as raised:
        make(modules, ((x_of(),), (x_of(),), (x_of(),)), num_warmup_iters=2, pool=pool)
    assert f"callable 1 (Failing): this was {when}." in raised.value.__notes__
    assert len(graphs) == 6
    assert {each.state for each in graphs} == {"empty"}
    assert ag.current_stream() is torch_stream
    for module, params in zip(modules, before, strict=True):
        assert "forward" not in vars(module)
        assert grads(module) == [None] * len(params)
        same(list(module.parameters()), params)
    modules[1].left = 1000
    ours = make(modules, ((x_of(),), (x_of(),), (x_of(),)))
    ours[2](x_of()).sum().backward()


@pytest.mark.promise("failed-capture-keeps-nothing")
def test_nothing_of_a_failed_capture_is_kept():
    refs = []

    def f(x):
        y = x * 2
        refs.append(weakref.ref(y))
        return y

    def g(x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        make((f, g), ((x_of(grad=True),), (x_of(),)), num_warmup_iters=0)
    gc.collect()
    assert [ref() for ref in refs] == [None]
    assert raised.value.__traceback__ is not None  # its frames refer to everything


def test_a_module_whose_forward_can_not_be_replaced():
    class Stubborn(torch.nn.Linear):
        def __setattr__(self, name, value):
            if name == "forward":
                raise AttributeError(name)
            super().__setattr__(name, value)

    modules = net(), Stubborn(6, 6)
    with pytest.raises(AttributeError):
        make(modules, ((x_of(),), (x_of(),)))
    assert "forward" not in vars(modules[0])


def test_an_empty_capture_is_said():
    with pytest.warns(ag.EmptyGraphWarning):
        f = make(lambda x: x, (x_of(grad=True),))
    x = x_of(grad=True)
    f(x).sum().backward()
    assert x.grad.unique().tolist() == [1.0]


@pytest.mark.parametrize("inputs", ["bind", None])
def test_ways_to_pass_arguments_that_do_not_exist(inputs):
    with pytest.raises(ValueError, match=f"inputs must be 'copy' or 'node', not {inputs!r}"):
        make(net(), (x_of(),), inputs=inputs)
