"""How the CUDA backend calls the driver: in which context, in which mode; on a driver of a few lines."""

from __future__ import annotations

import contextlib
import re
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace

import pytest

from accelerator_graph import _interpreter, errors
from accelerator_graph.backends._cuda import node as nodes
from accelerator_graph.backends._cuda.driver import CudaNames, Driver, Executable, Graph
from accelerator_graph.backends._cuda.errors import call_broke, explain
from accelerator_graph.backends._shared import driver as codes
from accelerator_graph.backends.base import CaptureInfo
from backends.cuda.fakes import untouched
from backends.tools import BACKENDS, MODES


def test_calls_run_in_the_right_context_and_mode(fake):
    backend, api = fake
    graph, executable = Graph(21, 11), Executable(31, 11)
    relaxed, plain = MODES.index("relaxed"), MODES.index("global")
    for work, function, context, mode in [
        (lambda: backend.instantiate(graph), "cuGraphInstantiate", 11, relaxed),
        (lambda: backend.native_calls(9).upload(executable), "cuGraphUpload", 11, relaxed),
        (lambda: backend.destroy_executable(Executable(31, 11)), "cuGraphExecDestroy", 11, relaxed),
        (lambda: backend.destroy_graph(Graph(21, 11)), "cuGraphDestroy", 7, plain),  # needs neither
        (lambda: backend.destroy_stream(9), "cuStreamDestroy", 11, relaxed),
        (lambda: backend.synchronize(9), "cuStreamSynchronize", 11, plain),
        (lambda: backend.query(9), "cuStreamQuery", 11, plain),
    ]:
        for fail in ("", function):
            api.fail = fail
            api.seen.clear()
            with pytest.raises(errors.DriverError) if fail else contextlib.nullcontext():
                work()
            assert (function, context, mode) in api.seen
            untouched(api)


def test_the_context_of_the_stream_asked_for_last_is_known(fake):
    backend, api = fake
    stream, same_handle = int("1000"), int("1000")
    asked = []
    for each in (stream, stream, same_handle, stream):
        api.seen.clear()
        backend.query(each)
        asked.append([name for name, _, _ in api.seen].count("cuStreamGetCtx"))
    assert asked == [1, 0, 1, 1]


@pytest.mark.parametrize("has_newer", [True, False])
def test_edges_with_data_are_no_hindrance_where_the_driver_is_new_enough(fake, has_newer, monkeypatch):
    """cuda-python 12.9 has two functions, and the older one refuses such edges."""
    backend, api = fake
    success = api.CUresult.CUDA_SUCCESS

    def address(name, version, flags):
        found = has_newer or version < 12030
        return (success, 1) if found else (api.CUresult.CUDA_ERROR_X, None)

    api._cuGetProcAddress = address
    monkeypatch.setattr(_interpreter, "in_c", lambda: None)  # which would call what is at these addresses
    api._cuStreamGetCaptureInfo = api._cuStreamGetCaptureInfo_v3 = lambda stream: (success, 1, 77, 21)
    api._cuGraphGetNodes = lambda graph: (success, [], 3)
    backend.driver = Driver("cuda")
    assert backend.capture_info(9) == CaptureInfo(77, 3)
    asked = [name for name, *_ in api.seen if name.startswith("cuStreamGetCaptureInfo")]
    assert asked == ["cuStreamGetCaptureInfo_v3" if has_newer else "cuStreamGetCaptureInfo"]


def test_a_bound_replay_tells_what_the_launch_answered(fake):
    backend, api = fake
    replay = backend.native_calls(9).bind(Executable(31, 11))
    replay()
    api.fail = "cuGraphLaunch"
    with pytest.raises(
        errors.DriverError, match=r"^backend 'cuda': cuGraphLaunch returned CUDA_ERROR_X \(1\)"
    ):
        replay()
    with pytest.raises(errors.DriverError, match=r"cuGraphLaunch"):
        backend.replay(Executable(31, 11), 9)
    for raised, error in [
        (ValueError("919 is not a valid CUresult"), errors.DriverError),
        (RuntimeError("function cuGraphLaunch is not found"), errors.UnsupportedError),
    ]:

        def launch(executable, stream, raised=raised):
            raise raised

        api.cuGraphLaunch = launch
        with pytest.raises(error, match=r"cuGraphLaunch"):
            backend.native_calls(9).bind(Executable(31, 11))()


def test_a_driver_that_is_too_old(fake):
    backend, api = fake

    def missing(*args):
        raise RuntimeError("function is not found")

    api.cuGraphUpload = api.cuStreamGetDevice = missing
    with pytest.raises(
        errors.UnsupportedError, match=r"supports CUDA 12\.2, does not have cuGraphUpload; install"
    ):
        backend.native_calls(9).upload(Executable(31, 11))
    assert backend.device_of(9) == 0  # by way of its context
    assert ("cuCtxGetDevice", 11, 0) in api.seen
    untouched(api)


def test_a_node_that_the_binding_does_not_know_is_unknown():
    def call(function, node):
        raise ValueError("99 is not a valid CUgraphNodeType")

    assert nodes.kind_of(SimpleNamespace(call=call), 1) == "unknown"


# ---- what the binding answers --------------------------------------------------------------------


def test_the_binding_has_all_that_is_named():
    driver = pytest.importorskip("cuda.bindings.driver")
    sources = [Path(BACKENDS, "cuda.py"), *Path(BACKENDS, "_cuda").glob("*.py")]
    text = "\n".join(path.read_text() for path in sources)
    of_some_versions = {
        *("cuStreamGetCaptureInfo_v3", "cuGraphNodeGetParams"),
        *("cuGraphNodeGetToolsId", "cuGraphExecGetId", "cuGraphAddNode_v2"),
    }
    named = {value for name, value in vars(CudaNames).items() if not name.startswith("_")}
    functions = named | set(re.findall(r"\bcu[A-Z]\w+", text)) - of_some_versions
    assert len(functions) > 30
    assert [name for name in sorted(functions) if not hasattr(driver, name)] == []
    members = set(re.findall(r"\.(CU[A-Z]*_\w+)", text)) | {
        f"CU_STREAM_CAPTURE_MODE_{m.upper()}" for m in MODES
    }
    assert len(members) > 8
    enums = [
        driver,  # for constants
        driver.CUresult,
        driver.CUstream_flags,
        driver.CUevent_flags,
        driver.CUevent_record_flags,
        driver.CUstreamCaptureMode,
        driver.CUstreamUpdateCaptureDependencies_flags,
        driver.CUgraphNodeType,
        driver.CUgraphInstantiate_flags,
        driver.CUgraphDebugDot_flags,
        driver.CUgraphMem_attribute,
        driver.CUfunction_attribute,
        driver.CUpointer_attribute,
    ]
    assert [name for name in sorted(members) if not any(hasattr(enum, name) for enum in enums)] == []
    assert [int(s) for s in driver.CUstreamCaptureStatus] == [0, 1, 2]
    assert driver.CUstream_flags.CU_STREAM_NON_BLOCKING == codes.NON_BLOCKING
    assert driver.CUevent_flags.CU_EVENT_DISABLE_TIMING == codes.WITHOUT_TIMING


def test_an_enum_without_documentation_explains_nothing():
    class CUresult(IntEnum):
        """Of all codes, as in cuda-python 12."""

        CUDA_ERROR_X = 1

    assert explain(CUresult(1)) == ("CUDA_ERROR_X", "", "other")


def test_a_code_is_explained_by_the_first_sentence_of_its_documentation():
    class Code(int):
        name = "CUDA_ERROR_X"

    code = Code(1)
    code.__doc__ = "The version, 1.2\n    of :py:obj:`~.cuCall`, has gone. Use another one."
    assert explain(code) == ("CUDA_ERROR_X", "The version, 1.2 of cuCall, has gone", "other")


def test_a_code_that_the_binding_does_not_know(fake):
    backend, _ = fake
    with pytest.raises(
        errors.DriverError, match=r"cuCall returned an unknown code \(12345\): .* upgrade"
    ) as found:
        backend.driver.check("cuCall", 12345)
    assert (found.value.code, found.value.reason) == (12345, "other")


def test_what_the_binding_raises_is_translated():
    error = call_broke("cuda", "cuCall", RuntimeError("function cuCall is not found"), "12.0")
    assert isinstance(error, errors.UnsupportedError)
    assert str(error) == (
        "the driver, which supports CUDA 12.0, does not have cuCall; install a newer driver."
    )
    error = call_broke("cuda", "cuCall", ValueError("12345 is not a valid CUresult"), "12.0")
    assert (type(error), error.code, error.reason) == (errors.DriverError, 12345, "other")
    assert call_broke("cuda", "cuCall", ValueError("14 is not a valid CUgraphNodeType"), "12.0") is None


@pytest.mark.parametrize(
    "error", [ValueError("14 is not a valid CUgraphNodeType"), RecursionError("maximum recursion depth")]
)
def test_what_says_nothing_of_the_driver_passes_as_it_is(fake, error):
    backend, api = fake

    def refuse(stream):
        raise error

    api._cuStreamQuery = refuse
    with pytest.raises(type(error)) as caught:
        backend.query(9)
    assert caught.value is error
    assert error.__cause__ is None
