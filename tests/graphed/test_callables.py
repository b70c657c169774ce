"""`make_graphed_callables` with torch's own autograd, on the CPU backend: results as in eager runs."""

import copy
import gc
import threading
import warnings
import weakref

import pytest

import accelerator_graph as ag
import lanes

pytestmark = [lanes.require("torch", "no_gpu"), pytest.mark.usefixtures("torch_stream")]

from accelerator_graph._graphed.input_nodes import InputNodes
from accelerator_graph.backends.cpu import CpuBackend
from graphed import modules
from graphed.modules import grads, make, net, same, torch, x_of
from threads import in_threads


@pytest.fixture(autouse=True, params=["copy", "node"])
def inputs(request, monkeypatch):
    monkeypatch.setattr(modules, "inputs", request.param)
    return request.param


# ---- results -----------------------------------------------------------------------------------


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_training_is_equal_to_eager(pair, to_none, optimizer):
    optimizers = [optimizer(module.parameters(), lr=0.1) for module in pair]
    for _ in range(5):
        x, losses = x_of(), []
        for module, steps in zip(pair, optimizers, strict=True):
            steps.zero_grad(set_to_none=to_none)
            loss = module(x).square().sum()
            loss.backward()
            steps.step()
            losses.append(loss.detach())
        same([losses[0]], [losses[1]])
        same(list(pair[0].parameters()), list(pair[1].parameters()))


def test_the_capture_and_the_warm_up_leave_no_gradients_and_no_work_of_theirs(pair):
    ours, theirs = pair
    assert grads(ours) == [None] * 4
    same(list(ours.parameters()), list(theirs.parameters()))
    assert ours.forward.__qualname__ != theirs.forward.__qualname__


def test_gradients_accumulate(pair):
    for i in range(1, 6):
        x = x_of()
        for module in pair:
            (module(x) * i).sum().backward()
        same(*map(grads, pair))
    first = next(pair[0].parameters()).grad
    pair[0](x_of()).sum().backward()
    assert next(pair[0].parameters()).grad is first


def test_gradients_accumulate_over_a_change_in_place(pair):
    for _ in range(4):
        x = x_of()
        for module in pair:
            module(x).sum().backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        same(*map(grads, pair))


def test_the_gradient_of_an_argument_accumulates(pair):
    theirs = pair[1]
    ours = make(copy.deepcopy(theirs), (x_of(grad=True),))
    xs = [x_of(grad=True)]
    xs.append(xs[0].detach().clone().requires_grad_())
    for _ in range(3):
        for module, x in zip((ours, theirs), xs, strict=True):
            (module(x) ** 2).sum().backward()
        same([xs[0].grad], [xs[1].grad])


def test_gradients_that_are_one_tensor_do_not_become_one_grad():
    class Shift(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.by = torch.nn.Parameter(torch.zeros(4, 6))
            self.more = torch.nn.Parameter(torch.zeros(4, 6))

        def forward(self, x):
            return x + self.by + self.more

    module = make(Shift(), (x_of(grad=True),))
    x = x_of(grad=True)
    module(x).sum().backward()
    found = [x.grad, module.by.grad, module.more.grad]
    assert len({each.data_ptr() for each in found}) == 3
    found[0].mul_(7)
    module(x).sum().backward()
    assert [each.unique().tolist() for each in found] == [[8.0], [2.0], [2.0]]


def test_autograd_grad_and_hooks_of_tensors(pair):
    x = x_of()
    found = [torch.autograd.grad(module(x).sum(), list(module.parameters())) for module in pair]
    same(*found)
    seen = []
    for module in pair:
        next(module.parameters()).register_hook(lambda grad: seen.append(grad.clone()))
        module(x).sum().backward()
    same(seen[:1], seen[1:])


def test_several_callables_in_a_chain():
    theirs = [net(), torch.nn.Linear(3, 6), torch.nn.Tanh()]
    ours = [copy.deepcopy(each) for each in theirs]
    samples = (x_of(),), (torch.randn(4, 3, requires_grad=True),), (x_of(grad=True),)
    made = make(tuple(ours), samples)
    assert isinstance(made, tuple)
    assert list(made) == ours
    for _ in range(4):
        x, outputs = x_of(), []
        for chain in (ours, theirs):
            y = x
            for module in chain:
                y = module(y)
            y.square().sum().backward()
            outputs.append(y.detach().clone())
        same(outputs[:1], outputs[1:])
        for one, other in zip(ours, theirs, strict=True):
            same(grads(one), grads(other))


def test_order_of_the_captures(monkeypatch):
    order = []
    enter = ag.graph.__enter__

    def entered(self):
        order.append(self._graph)
        return enter(self)

    monkeypatch.setattr(ag.graph, "__enter__", entered)
    modules = tuple(torch.nn.Linear(6, 6) for _ in range(3))
    seen = []
    for i, module in enumerate(modules):
        module.weight.register_hook(lambda _, i=i: seen.append(i))
    make(modules, tuple((x_of(),) for _ in modules), num_warmup_iters=0)
    assert len(set(map(id, order))) == 6
    assert seen == [2, 1, 0]
    assert len({each.pool() for each in order}) == 1


def test_functions_and_nested_arguments_and_results():
    def f(pair, z):
        a, b = pair["a"], pair["b"][0]
        return {"sum": a * b + z, "more": [a.sum(), None, 3], "n": (b.argmax(), "text")}

    sample = {"a": x_of(grad=True), "b": (x_of(grad=True),)}, x_of()
    g = make(f, sample)
    assert g is not f
    for _ in range(3):
        tensors = [x_of(grad=True), x_of(grad=True)]
        args = {"a": tensors[0], "b": (tensors[1],)}, x_of()
        found = []
        for each in (g, f):
            result = each(*args)
            assert result["more"][1:] == [None, 3]
            assert result["n"][1] == "text"
            assert result["n"][0].requires_grad is False
            loss = result["sum"].square().sum() + result["more"][0]
            found.append([result["sum"].detach().clone(), result["n"][0].clone()])
            found[-1] += torch.autograd.grad(loss, tensors)
        same(*found)


@pytest.mark.parametrize(
    "result", [lambda x: x * 2, lambda x: (x * 2,), lambda x: [x * 2], lambda x: (x, x * 2)]
)
def test_the_result_is_of_the_same_kind(result):
    g = make(result, (x_of(grad=True),))
    x = x_of(grad=True)
    for _ in range(2):
        ours, theirs = g(x), result(x)
        assert type(ours) is type(theirs)
        same(list(ours), list(theirs))
        sum(each.sum() for each in ours).backward()


def test_an_output_that_is_not_used_gets_no_gradient():
    theirs = torch.nn.LSTM(6, 5)
    ours = make(copy.deepcopy(theirs), (torch.randn(3, 2, 6),))
    for _ in range(3):
        x = torch.randn(3, 2, 6)
        for module in (ours, theirs):
            module(x)[0].sum().backward()
        same(grads(ours), grads(theirs))


def test_an_output_without_grad():
    def f(x):
        return x * 2, x.detach() + 1

    y, z = make(f, (x_of(grad=True),))(x_of(grad=True))
    assert (y.requires_grad, z.requires_grad) == (True, False)
    y.sum().backward()


def test_nothing_requires_grad():
    g = make(lambda x: x * 2, (x_of(),))
    x = x_of()
    y = g(x)
    assert not y.requires_grad
    same([y], [x * 2])
    h = make(lambda x: x.argmax(), (x_of(grad=True),))
    same([h(x)], [x.argmax()])


def test_without_grad_there_is_no_node(pair):
    ours, theirs = pair
    x = x_of()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            y = ours(x)
            assert y.grad_fn is None
            same([y], [theirs(x)])
    assert type(ours(x).grad_fn).__name__ == "GraphedBackward"


def test_frozen_parameters():
    theirs = net()
    theirs[0].weight.requires_grad_(False)
    ours = make(copy.deepcopy(theirs), (x_of(),))
    for _ in range(2):
        x = x_of()
        for module in (ours, theirs):
            module(x).sum().backward()
        same(grads(ours), grads(theirs))
    assert ours[0].weight.grad is None


def test_sparse_gradients():
    theirs = torch.nn.Embedding(10, 3, sparse=True)
    ours = make(copy.deepcopy(theirs), (torch.tensor([1, 2, 3]),))
    for _ in range(3):
        x = torch.tensor([1, 2, 4])
        for module in (ours, theirs):
            module(x).sum().backward()
        same(*([grad.to_dense() for grad in grads(module)] for module in (ours, theirs)))


def test_training_and_evaluation():
    ours = make(net(torch.nn.Dropout(0.5)), (x_of(),))
    x = x_of()
    assert ours(x).grad_fn.name() == "GraphedBackward"
    ours.eval()
    assert ours(x).grad_fn.name() != "GraphedBackward"
    same([ours(x)], [ours(x)])
    make(ours, (x_of(),))  # the other mode as well
    assert ours(x).grad_fn.name() == "GraphedBackward"
    same([ours(x).clone()], [ours(x)])
    ours.train()
    assert ours(x).grad_fn.name() == "GraphedBackward"
    assert not torch.equal(ours(x).clone(), ours(x))


def test_dropout_draws_anew_and_backward_has_the_same_mask():
    f = make(lambda x: torch.nn.functional.dropout(x, 0.5), (torch.ones(50, requires_grad=True),))
    masks = []
    for _ in range(6):
        x = torch.ones(50, requires_grad=True)
        y = f(x)
        y.backward(torch.ones(50))
        same([x.grad], [y.detach()])
        masks.append(y.detach().clone())
    assert {value for mask in masks for value in mask.tolist()} == {0.0, 2.0}
    assert not any(torch.equal(a, b) for i, a in enumerate(masks) for b in masks[:i])


def test_the_random_numbers_are_those_of_eager():
    def f(x):
        return torch.nn.functional.dropout(x, 0.5)

    g = make(f, (x_of(),))
    x, found = x_of(), []
    for each in (g, f):
        torch.manual_seed(5)
        found.append([each(x).clone() for _ in range(3)])
    same(*found)


def test_batch_normalisation_takes_note_of_every_call():
    theirs = net(torch.nn.BatchNorm1d(8))
    ours = make(copy.deepcopy(theirs), (x_of(),), num_warmup_iters=0)
    for _ in range(3):
        x = x_of()
        for module in (ours, theirs):
            module(x).sum().backward()
        same(list(ours.buffers()), list(theirs.buffers()))
        same(grads(ours), grads(theirs))


def test_hooks_that_are_registered_afterwards():
    ours, seen = make(net(), (x_of(grad=True),)), []
    ours.register_forward_hook(lambda module, args, output: seen.append("forward"))
    ours.register_full_backward_hook(lambda *args: seen.append("backward"))
    ours(x_of(grad=True)).sum().backward()
    assert seen == ["forward", "backward"]


def test_autocast_without_its_cache():
    module = net()
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        make(module, (x_of(),))
        y = module(x_of())
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in module.parameters())


# ---- copies, outputs, streams ------------------------------------------------------------------


def test_static_inputs_are_not_copied(monkeypatch):
    static = x_of(grad=True), x_of()
    g = make(lambda x, y: x * y, static)
    copies, copy_ = [], torch.Tensor.copy_

    def counted(self, other):
        if threading.current_thread() is threading.main_thread():  # not in the replay
            copies.append(other)
        return copy_(self, other)

    monkeypatch.setattr(torch.Tensor, "copy_", counted)
    g(*static)
    g(static[0].detach().requires_grad_(), static[1])
    assert copies == []
    other = x_of()
    g(static[0], other)
    assert [each is other for each in copies] == [True] * (modules.inputs == "copy")


def test_memory_that_is_the_same_in_another_order_is_copied():
    static = torch.randn(5, 5)
    g = make(lambda x: x + 0, (static,))
    x = static.t()
    want = x.clone()
    same([g(x)], [want])


def test_outputs_are_static_memory(pair):
    ours, theirs = pair
    first, second = x_of(), x_of()
    with torch.no_grad():
        y = ours(first)
        z = ours(second)
        assert y is not z
        assert y.data_ptr() == z.data_ptr()
        same([y], [theirs(second)])


def test_calls_from_a_thread_with_no_stream(pair):
    ours, theirs = pair
    x, found = x_of(), []

    def work():
        ours(x).sum().backward()
        found.append(grads(ours))

    in_threads(work)
    theirs(x).sum().backward()
    same(found[0], grads(theirs))


def test_the_pool_is_the_callers(monkeypatch):
    pools = []
    end = ag.Graph.capture_end

    def ended(self):
        end(self)
        pools.append(self.pool())

    monkeypatch.setattr(ag.Graph, "capture_end", ended)
    pool = ag.graph_pool_handle()
    make(net(), (x_of(),), pool=pool)
    assert pools == [pool] * 2


def test_the_warm_up_and_the_capture_are_on_one_side_stream(torch_stream):
    calls = []

    def f(x):
        calls.append(ag.current_stream())
        return x * 2

    for count in (0, 2):
        calls.clear()
        make(f, (x_of(grad=True),), num_warmup_iters=count)
        assert len(calls) == count + 1
        assert torch_stream not in calls
        assert len({each.native for each in calls}) == 1


def test_it_goes_with_the_callable():
    g = make(lambda x: x * 2, (x_of(grad=True),))
    node = g(x_of(grad=True)).grad_fn
    ref = weakref.ref(g)
    del g, node
    gc.collect()
    assert ref() is None


def test_arguments_that_lie_in_the_static_memory():
    a, b = torch.ones(4), torch.full((4,), 2.0)
    f = make(lambda x, y: x - y, (a, b))
    assert f(b, a).tolist() == [1.0] * 4
    buffer = torch.arange(5.0)
    g = make(lambda x: x * 1, (buffer[:4],))
    assert g(buffer[1:]).tolist() == [1.0, 2.0, 3.0, 4.0]


def test_the_same_memory_read_in_another_way():
    z, w = torch.tensor([1 + 2j]), torch.ones(4)
    conjugate = make(lambda x: x * 1, (z,))
    assert conjugate(z.conj()).tolist() == [1 - 2j]
    f = make(lambda x: x * 1, (w,))
    assert f(w.view(torch.int32)).tolist() == [1065353216.0] * 4
    assert make(lambda x: x * 1, (z.imag,))(z.imag).tolist() == z.imag.tolist()


def test_gradients_that_pass_as_they_are_are_no_empty_capture():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f = make(lambda x: x + 1, (x_of(grad=True),))
    x = x_of(grad=True)
    f(x).sum().backward()
    assert x.grad.unique().tolist() == [1.0]


# ---- gradients that are lent -------------------------------------------------------------------


class Times(torch.autograd.Function):
    """``x * w``, with gradients and notes in memory that the passes of a pool share, as in an allocator."""

    @staticmethod
    def forward(ctx, x, w, memory, lends):
        ctx.save_for_backward(x, w)
        ctx.memory, ctx.lends = memory, lends
        if not lends:
            memory.fill_(float("nan"))
        return x * w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        if not ctx.lends:
            ctx.memory.fill_(float("nan"))
            return grad * w, grad * x, None, None
        torch.mul(grad, x, out=ctx.memory)
        return grad * w, ctx.memory, None, None


class Scaled(torch.nn.Module):
    def __init__(self, value, memory, lends):
        super().__init__()
        self.w = torch.nn.Parameter(torch.full((6,), float(value)))
        self.memory, self.lends = memory, lends

    def forward(self, x):
        return Times.apply(x, self.w, self.memory, self.lends)


@pytest.mark.parametrize("together", [True, False], ids=["one call", "two calls with one pool"])
@pytest.mark.parametrize("which", ["forward", "backward"])
def test_a_gradient_that_a_parameter_holds_survives_another_pass(together, which):
    memory = torch.zeros(6)
    first, second = Scaled(2, memory, lends=False), Scaled(3, memory, lends=True)
    samples = [(torch.ones(6, requires_grad=True),) for _ in range(2)]
    if together:
        make((first, second), tuple(samples))
    else:
        pool = ag.graph_pool_handle()
        for module, sample in zip((first, second), samples, strict=True):
            make(module, sample, pool=pool)
    x = torch.arange(6.0)
    if which == "backward":
        y = first(x.clone().requires_grad_())
    second(x.clone().requires_grad_()).sum().backward()
    assert second.w.grad.data_ptr() == memory.data_ptr()  # so it is lent
    if which == "backward":
        y.sum().backward()
        same([first.w.grad], [x])
    else:
        first(x)
    assert memory.isnan().all()
    same([second.w.grad], [x])


# ---- copies that are nodes ---------------------------------------------------------------------


@pytest.fixture
def sources(monkeypatch):
    """The addresses that copies were told to read from."""
    found, real = [], InputNodes._set

    def noted(self, number, address):
        found.append(address)
        return real(self, number, address)

    monkeypatch.setattr(InputNodes, "_set", noted)
    return found


def test_the_graphs_read_where_arguments_and_gradients_lie(sources, inputs):
    g, given = make(lambda x, y: x * y, (x_of(grad=True), x_of())), []
    for _ in range(3):
        del sources[:]
        x, y, grad = x_of(grad=True), x_of(), torch.randn(4, 6)
        given += x, y, grad  # so that no address comes again
        z = g(x, y)
        z.backward(grad)
        same([z, x.grad], [x * y, grad * y])
        assert sources == [each.data_ptr() for each in (x, y, grad) if inputs == "node"]


@pytest.mark.parametrize("refused", ["setter", "blocks"])
def test_where_sources_can_not_be_changed_torch_copies(refused, monkeypatch):
    if refused == "setter":
        monkeypatch.setattr(CpuBackend, "capabilities", lambda self, device: self.inherited - {"set_node"})
    else:
        monkeypatch.setattr(CpuBackend, "node_setter", lambda *args: None)
    runs = []

    def function(x, y):
        runs.append(1)
        return x * y

    g = make(function, (x_of(grad=True), x_of()), num_warmup_iters=0)
    assert len(runs) == 1 + (modules.inputs == "node" and refused == "blocks")
    for _ in range(3):
        x, y = x_of(grad=True), x_of()
        g(x, y).sum().backward()
        same([x.grad, g(x, y)], [y, x * y])


def test_static_inputs_and_others_by_turns():
    static = x_of(), x_of()
    g = make(lambda x, y: x * 2 + y, static)
    for one, other in [(1, 1), (0, 1), (0, 0), (1, 0), (0, 0), (1, 1), (0, 1)]:
        given = static[0] if one else x_of(), static[1] if other else x_of()
        for each in static:
            each.copy_(x_of())
        want = given[0] * 2 + given[1]
        same([g(*given)], [want])


def test_arguments_of_another_type_or_order():
    g = make(lambda x: x * 2, (torch.zeros(6, 4),))
    for x in (
        torch.randn(6, 4),
        torch.randn(4, 6).t(),
        torch.arange(24).view(6, 4),
        torch.randn(6, 1).expand(6, 4),
    ):
        same([g(x)], [(x * 2).float()])
