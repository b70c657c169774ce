"""Which functions the HIP backend calls, and how: read from its sources, and compared with hip-python's."""

import ast
import ctypes
import re
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from enum import IntEnum
from pathlib import Path

import pytest

from accelerator_graph.backends._hip import driver
from accelerator_graph.backends._hip import node as _hip_node
from accelerator_graph.backends._hip.driver import HipNames
from accelerator_graph.backends._hip.library import _SIGNATURES, _TEXTS, import_hip
from accelerator_graph.backends._shared import driver as codes
from backends.tools import ROOT

BACKENDS = ROOT / "accelerator_graph" / "backends"
SOURCES = [BACKENDS / "hip.py", *sorted((BACKENDS / "_hip").glob("*.py"))]
FROM_THE_BINDING = {"has_symbol"}
"""All that is called of hip-python: it says whether there is a function, and opens the library for that."""


class Numbers(codes.Driver):
    """Has the numbers that the base takes for HIP's."""

    names = HipNames

    def __init__(self):
        super().__init__("hip", None)


@pytest.fixture(scope="module")
def binding():
    pytest.importorskip("hip")
    return import_hip()


def nodes(kind):
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, kind):
                yield node


def attributes():
    return {node.attr for node in nodes(ast.Attribute)}


def strings():
    return {node.value for node in nodes(ast.Constant) if isinstance(node.value, str)}


def test_the_sources_are_found():
    assert len(SOURCES) >= 8
    assert "hipMemcpyKind" in attributes()
    assert "hipGraphLaunch" in strings()


def test_functions_of_hip_python_are_not_called(binding):
    """Some overwrite memory, some hold the interpreter's lock: see `_hip_library`."""
    here = {name for name in attributes() if hasattr(binding, name) and not name.startswith("__")}
    assert {"hipMemcpyKind", "ihipStream_t"} <= here
    functions = {name for name in here if not isinstance(getattr(binding, name), (type, int))}
    assert functions <= FROM_THE_BINDING
    if "rocm" not in binding.__name__:
        assert not functions  # what is called of 10.0 only is not even there


def test_what_is_taken_from_hip_python_is_there(binding):
    """Types, enumerations, their members and constants."""
    wanted = {name for name in attributes() if re.match(r"i?hip[A-Z]|HIP_", name)}
    assert len(wanted) > 8
    enumerations = [
        each for each in vars(binding).values() if isinstance(each, type) and issubclass(each, IntEnum)
    ]
    members = {member for each in enumerations for member in each.__members__}
    assert sorted(name for name in wanted if name not in members and not hasattr(binding, name)) == []


def test_numbers_that_the_backend_knows_are_those_of_hip_python(binding):
    assert [int(each) for each in binding.hipStreamCaptureStatus] == [0, 1, 2]
    modes = binding.hipStreamCaptureMode.__members__
    assert {name.lower().removeprefix("hipstreamcapturemode"): int(mode) for name, mode in modes.items()} == {
        name.replace("_", ""): number for name, number in Numbers().capture_modes.items()
    }
    flags = binding.hipStreamNonBlocking, binding.hipEventDefault, binding.hipEventDisableTiming
    assert flags == (codes.NON_BLOCKING, 0, codes.WITHOUT_TIMING)
    amounts, drawing = binding.hipGraphMemAttributeType, binding.hipGraphDebugDotFlags
    current = amounts.hipGraphMemAttrUsedMemCurrent, amounts.hipGraphMemAttrReservedMemCurrent
    assert Numbers().graph_memory == current
    assert Numbers().verbose == drawing.hipGraphDebugDotFlagsVerbose
    errors = binding.hipError_t
    assert errors.hipErrorNotReady == codes.NOT_READY
    assert errors.hipErrorNoDevice == driver._NO_DEVICE
    assert errors.hipErrorIllegalState == codes.ILLEGAL_STATE
    kinds = [
        re.sub(r"(?<!^)(?=[A-Z])", "_", name.removeprefix("hipGraphNodeType")).lower()
        for name in binding.hipGraphNodeType.__members__
        if not name.endswith("Count")
    ]
    ours = [kind.replace("semas", "semaphore") for kind in _hip_node._KINDS]
    assert kinds[: len(ours)] == ours[: len(kinds)]


def test_every_function_that_is_named_has_a_signature():
    named = {text for text in strings() if re.fullmatch(r"hip[A-Z]\w+", text)}
    named |= {value for name, value in vars(HipNames).items() if not name.startswith("_")}
    assert named - set(_SIGNATURES) - set(_TEXTS) == set()
    assert set(_SIGNATURES) & set(_TEXTS) == set()


# ---- the table against hip-python's declarations -------------------------------------------------

WORDS = {"int": c_int, "unsigned int": c_uint, "size_t": c_size_t}
WORDS |= {"unsigned long": c_size_t, "unsigned long long": c_ulonglong, "hipDevice_t": c_int}
DECLARATION = re.compile(r"^cdef (.+?) ?(hip\w+)\(([^)]*)\) (?:except|noexcept|nogil)", re.MULTILINE)


def declared(binding):
    """The functions that hip-python declares: the types of their arguments, in the words of C."""
    package = Path(binding.__file__).parent
    (source,) = (each for each in (package / "cyhip.pxd", package / "chip.pxd") if each.exists())
    found = {}
    for answer, name, arguments in DECLARATION.findall(source.read_text(encoding="utf-8")):
        kinds = []
        for argument in filter(None, arguments.split(",")):
            *words, name_of_it = argument.replace("*", " * ").split()
            if name_of_it == "*":
                words.append("*")
            kinds.append(" ".join(words).replace("const ", "").replace("enum ", "").strip())
        found[name] = answer, kinds
    return found


def size_of(kind, binding):
    """How an argument is passed: as a pointer, or as a number of so many bytes."""
    if "*" in kind:
        return "pointer"
    if kind in WORDS:
        return ctypes.sizeof(WORDS[kind])
    known = getattr(binding, kind, None)
    if isinstance(known, type) and issubclass(known, IntEnum):
        return ctypes.sizeof(c_int)
    assert kind.endswith(("_t", "Callback")), kind
    return "pointer"  # a handle


def passed(kind):
    return "pointer" if kind in (c_void_p, c_char_p) or hasattr(kind, "contents") else ctypes.sizeof(kind)


@pytest.mark.parametrize("name", sorted({**_SIGNATURES, **_TEXTS}))
def test_signatures_are_those_of_the_declarations(binding, name):
    functions = declared(binding)
    assert len(functions) > 300
    answer, kinds = functions[name]
    ours = {**_SIGNATURES, **_TEXTS}[name]
    assert [*map(passed, ours)] == [size_of(kind, binding) for kind in kinds]
    assert answer == ("const char *" if name in _TEXTS else "hipError_t")


# ---- the layout of what the runtime fills --------------------------------------------------------


def test_the_parameters_of_a_kernel_node_are_laid_out_as_hip_python_has_them(binding):
    parameters = _hip_node.KernelParameters()
    parameters.grid[:] = 1, 2, 3
    parameters.block[:] = 4, 5, 6
    parameters.shared_bytes, parameters.function = 7, 0x1000
    theirs = binding.hipKernelNodeParams.fromObj(ctypes.addressof(parameters))
    assert (theirs.gridDim.x, theirs.gridDim.y, theirs.gridDim.z) == (1, 2, 3)
    assert (theirs.blockDim.x, theirs.blockDim.y, theirs.blockDim.z) == (4, 5, 6)
    assert theirs.sharedMemBytes == 7
    assert int(theirs.func) == 0x1000
