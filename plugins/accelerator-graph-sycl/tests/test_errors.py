"""Names and reasons of errors, and the runtime's own lists of names."""

from __future__ import annotations

import re
from importlib.metadata import distribution
from pathlib import Path

import pytest
from accelerator_graph_sycl._contents import KINDS
from accelerator_graph_sycl._library import CODES, reason_of

import accelerator_graph as ag


def header(name: str) -> str:
    """Return a header of the installed runtime."""
    for package in ("intel-sycl-rt", "intel-cmplr-lib-ur"):
        for file in distribution(package).files or ():
            if file.as_posix().endswith(f"include/{name}"):
                return Path(file.locate()).read_text(encoding="utf-8")
    raise LookupError(name)


def members(enumeration: str, text: str) -> list[str]:
    """Return the names of an enumeration in the order of their numbers, which begin with 0."""
    (body,) = re.findall(rf"enum class {enumeration}\b[^{{;]*{{([^}}]*)}}", text)
    found = [each.partition("=") for each in re.sub(r"//.*", "", body).split(",") if each.strip()]
    assert all(int(value or number) == number for number, (_, _, value) in enumerate(found))
    return [name.strip() for name, _, _ in found]


def test_codes_have_the_names_of_the_runtime() -> None:
    assert [name.rstrip("_") for name in members("errc", header("sycl/exception.hpp"))] == list(CODES)


def test_every_kind_of_node_is_known() -> None:
    """Most kinds have the name that the runtime has for them."""
    found = members("node_type", header("sycl/ext/oneapi/experimental/graph/node.hpp"))
    assert len(found) == len(KINDS)
    others = {name: kind for name, kind in zip(found, KINDS, strict=True) if name != kind}
    assert others == {
        "subgraph": "graph",
        "memfill": "memset",
        "ext_oneapi_barrier": "empty",
        "host_task": "host",
        "native_command": "native",
        "async_malloc": "malloc",
        "async_free": "free",
    }


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("UR_RESULT_ERROR_DEVICE_LOST", "device_lost"),
        ("UR_RESULT_ERROR_OUT_OF_HOST_MEMORY", "out_of_memory"),
        ("UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "out_of_memory"),
        ("UR_RESULT_ERROR_INVALID_VALUE", "other"),
    ],
)
def test_what_failed_below_sycl(name: str, reason: str) -> None:
    assert re.search(rf"\b{name}\b", header("unified-runtime/ur_api.h"))
    assert reason_of("runtime", f"opencl backend failed with error: 1 ({name}).") == reason


def test_out_of_memory_in_sycl() -> None:
    assert reason_of("memory_allocation", "") == "out_of_memory"


def test_no_exception_leaves_the_shim(stream: ag.Stream) -> None:
    """One that is not SYCL's has no number: here a node is looked for in another graph than its own."""
    backend = ag.backends.get("sycl")
    captures, library = backend._captures, backend._library  # type: ignore[attr-defined]
    other = ag.Stream(backend="sycl")
    with ag.Graph(stream=stream) as graph, ag.Graph(stream=other) as second:
        stream.record()
        other.record()
        number = backend.capture_info(stream.native).id  # type: ignore[union-attr]
        with pytest.raises(ag.DriverError, match=r"joined returned unknown: .*range") as caught:
            library.ask("joined", captures._open[number].graph.address, other.native.addressof_ref())
        assert (caught.value.code, caught.value.reason) == (None, "other")
    assert (graph.state, second.state) == ("ready", "ready")


def test_a_refusal_says_which_call_and_what_to_do(stream: ag.Stream) -> None:
    with ag.Graph(stream=stream) as graph:
        stream.record()
        with pytest.raises(ag.DriverError) as caught:
            stream.synchronize()
    assert graph.state == "ready"
    error = caught.value
    assert (error.backend, error.call, error.code) == ("sycl", "queue::wait_and_throw", None)
    assert str(error).startswith(
        "backend 'sycl': queue::wait_and_throw returned REFUSED: a call that is not "
    )
