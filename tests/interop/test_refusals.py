"""What frameworks raise for a call that a capture can't have becomes the cause of a `CaptureError`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph import interop
from accelerator_graph.interop.base import Framework
from accelerator_graph.interop.cupy import CuPy
from accelerator_graph.interop.torch import Torch
from accelerator_graph.interop.warp import Warp

ACTIVE = " during CUDA graph capture. If you need this call to be captured, please file an issue. Current "
BENCHMARK = "is prohibited. Possible causes of this error:\n1. No warmup iterations occurred."

REFUSALS = {
    Torch: [
        "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned.",
        f"Cannot call CUDAGeneratorImpl::get_offset{ACTIVE}cudaStreamCaptureStatus: cudaStreamCaptureStatusA",
        f"Cannot construct a new CUDAGeneratorImpl{ACTIVE}cudaStreamCaptureStatus: cudaStreamCaptureStatusA",
        f"Refactor this op to use CUDAGeneratorImpl::philox_cuda_state. No{ACTIVE}",
        f"Current cudaStreamCaptureStatus: cudaStreamCaptureStatusActive\nCapturing cudnnFind {BENCHMARK}",
        "CTCLoss cannot be graph captured with CPU length tensors. Move CPU length tensors to GPU memory.",
        "CUDAGeneratorImpl::set_current_seed can be called during stream capture only if new seed is the sam",
        "Attempt to increase offset for a CUDA generator not in capture mode.",
        "RNG op during graph capture but could not find the CUDAGraph object.",
        "RNG within data-dependent conditional nodes is not supported yet.",
        "Capturing NCCL collectives is only allowed with NCCL >= 2.9.6",
        "Attempting CUDA graph capture of step() for an instance of A but param_groups' capturable is False",
        "CUDA error: operation not permitted when stream is capturing\nCUDA kernel errors might be",
        "HIP error: operation not permitted when stream is capturing\nSearch for `hipErrorStreamCapture",
    ],
    CuPy: [
        "the current stream is capturing, so synchronous API calls are disallowed",
        "the current stream is capturing, so H2D transfers are disallowed",
        "the current stream is capturing, so D2H transfers are disallowed",
    ],
    Warp: [
        "Cannot synchronize device cuda:0 while graph capture is active",
        "Cannot synchronize stream while graph capture is active",
        "Cannot synchronize event while graph capture is active",
        "Failed to allocate 6 bytes on device 'cuda:0':  Failed to allocate memory during graph capture be",
        "Failed to allocate a CPU staging buffer during graph capture",
        "Cannot run CPU/CUDA wp.copy() adjoints during CUDA graph capture",
        "BsrMatrix.nnz_sync() cannot read the block count during a live CUDA graph capture because it",
        "BsrMatrix.status_sync() cannot read sparse status during a live CUDA graph capture because",
        "`bsr_mm` requires either `topology='masked'` or `max_new_nnz` to be set for use in graph capture",
    ],
}
OTHERS = [
    "",
    "no capture",
    "my own trouble during CUDA graph capture",
    "not allowed while graph capture is active",
    "Capturing is prohibited.",
    "Offset increment outside graph capture encountered unexpectedly.",
    "CUDA error: invalid argument",
    "CUDA out of memory. Tried to allocate 2.00 GiB.",
]


class ByCode(RuntimeError):
    """Like the errors of torch and CuPy that have the code of CUDA's runtime."""

    def __init__(self, code):
        super().__init__(f"code {code}")
        self.error_code = self.status = code


class Mine(RuntimeError):
    pass


@pytest.fixture
def modules(monkeypatch):
    """The modules, with the exceptions that are known by type."""
    cuda = SimpleNamespace(
        runtime=SimpleNamespace(CUDARuntimeError=ByCode), driver=SimpleNamespace(CUDADriverError=ByCode)
    )
    for name, attributes in {"torch": {"AcceleratorError": ByCode}, "cupy": {"cuda": cuda}}.items():
        made = ModuleType(name)
        made.__dict__.update(attributes)
        monkeypatch.setitem(sys.modules, name, made)


@pytest.mark.parametrize("kind", REFUSALS)
def test_the_words_of_a_refusal_are_known_and_no_others(modules, kind):
    framework = kind()
    for words in REFUSALS[kind]:
        assert framework.refuses(RuntimeError(words)), words
        assert not framework.refuses(Mine(words)), words
        assert not framework.refuses(ValueError(words)), words
        assert not framework.refuses(RuntimeError(f"step 3: {words.lower()}")), words
    theirs = [words for other in REFUSALS if other is not kind for words in REFUSALS[other]]
    for words in OTHERS + theirs:
        assert not framework.refuses(RuntimeError(words)), words


def test_what_cupy_has_not_implemented_in_a_capture(modules):
    for library in ("cuBLAS", "cuRAND", "cuSOLVER", "cuSPARSE"):
        words = f"calling {library} API during stream capture is currently unsupported"
        assert CuPy().refuses(NotImplementedError(words))
        assert not CuPy().refuses(NotImplementedError(f"{words} here"))
    assert not CuPy().refuses(NotImplementedError("only CSR matrices are supported"))
    assert not CuPy().refuses(RuntimeError(f"{REFUSALS[CuPy][0]} here"))


@pytest.mark.parametrize("kind", [Torch, CuPy])
def test_codes_of_the_runtime(modules, kind):
    assert [code for code in (1, 2, 700, 899, *range(900, 909), 909) if kind().refuses(ByCode(code))] == [
        *range(900, 909)
    ]


@pytest.mark.parametrize("name", ["CUDARuntimeError", "CUDADriverError"])
def test_both_kinds_of_errors_of_cupy_have_codes(modules, monkeypatch, name):
    kind = type(name, (ByCode,), {})
    for home in (sys.modules["cupy"].cuda.runtime, sys.modules["cupy"].cuda.driver):
        for attribute in vars(home):
            monkeypatch.setattr(home, attribute, kind if attribute == name else Mine)
    assert [CuPy().refuses(kind(code)) for code in (899, 900, 908, 909)] == [False, True, True, False]


def test_torch_without_errors_that_have_codes(modules, monkeypatch):
    monkeypatch.delattr(sys.modules["torch"], "AcceleratorError")
    assert not Torch().refuses(ByCode(900))


# ---- in every way of capturing ---------------------------------------------------------------------------


class Refused(Exception):
    """What a call raises that can't be captured."""


class Refusing(Framework):
    """A framework one of whose calls can't be captured."""

    api_version = 1
    asked = 0

    def backend(self):
        return "cpu"

    def refuses(self, error):
        Refusing.asked += 1
        return type(error) is Refused


@pytest.fixture
def stream(monkeypatch):
    monkeypatch.setitem(sys.modules, "refusing", ModuleType("refusing"))
    monkeypatch.setattr(Refusing, "asked", 0)
    interop.register("refusing", Refusing)
    with ag.Stream(backend="cpu") as stream:
        yield stream
    interop.unregister("refusing")


def run(x):
    """Do what can be captured, and then what can't be."""
    stream = ag.current_stream()
    stream.launch(np.add, x, 1, x)
    if ag.current_graph() is not None:
        raise Refused("no")
    return x


def capture_in_a_block(x):
    with ag.Graph():
        run(x)


def capture_beside(x):
    with ag.graph(ag.Graph()):
        run(x)


def capture_again(x):
    with ag.graph(g := ag.Graph(keep_graph=True)):
        ag.current_stream().launch(np.multiply, x, 3, x)
    try:
        with g.recapture():
            run(x)
    finally:
        x[:] = 1
        g.replay()
        ag.current_stream().synchronize()
        assert x.tolist() == [3.0] * 4


def capture_by_graphed(x):
    ag.graphed(run, warmup=0)(x)


def capture_to_verify(x):
    ag.verify(run, x)


WAYS = [capture_in_a_block, capture_beside, capture_again, capture_by_graphed, capture_to_verify]


@pytest.mark.promise("cause-of-a-capture-error")
@pytest.mark.parametrize("diagnosed", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_refused_call_is_the_cause_in_every_way_of_capturing(stream, way, diagnosed):
    where = r" at \S+test_refusals.py:\d+ in run" if diagnosed else ""
    words = rf"failed{where}: a call was refused \(Refused: no\); move it out"
    with (
        pytest.raises(ag.CaptureError, match=words) as caught,
        ag.diagnose() if diagnosed else nullcontext(),
    ):
        way(np.ones(4))
    assert caught.value.reason == "illegal_call"
    assert type(caught.value.__cause__) is Refused
    assert ag.current_graph() is None
    with ag.Graph() as g:
        stream.launch(np.add, x := np.ones(4), 1, x)
    assert g.num_nodes == 1


def test_graphed_runs_eagerly_after_it(stream):
    x = np.zeros(4)
    add = ag.graphed(run, warmup=1, on_capture_error="eager")
    with pytest.warns(RuntimeWarning, match="runs eagerly from now on .* [(]Refused: no"):
        list(map(add, [x] * 4))
    stream.synchronize()
    assert x.tolist() == [4.0] * 4


def test_other_exceptions_pass_unchanged(stream):
    for error in (RuntimeError("no"), KeyboardInterrupt(), SystemExit()):
        with pytest.raises(type(error)) as caught, ag.Graph():
            raise error
        assert caught.value is error
    assert Refusing.asked == 1  # an interrupt is never a refusal


def test_outside_of_a_capture_nobody_is_asked(stream):
    with pytest.raises(Refused), stream:
        raise Refused
    g = ag.Graph()
    g.capture_begin()
    g.reset()
    assert Refusing.asked == 0


def test_a_capture_that_is_broken_is_said_to_be_broken(stream):
    def broken():
        with pytest.raises(ag.AcceleratorGraphError):
            stream.synchronize()
        raise Refused

    with pytest.raises(ag.CaptureError) as caught, ag.Graph():
        broken()
    assert caught.value.reason == "invalidated"


def test_a_capture_on_a_backend_of_others_is_not_theirs_to_judge(stream, monkeypatch):
    monkeypatch.setattr(Refusing, "backend", lambda self: "cuda")
    interop.refresh()
    with pytest.raises(Refused), ag.Graph():
        raise Refused
