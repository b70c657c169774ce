"""A kernel's geometry and arguments, as the CUDA and the HIP backend take them."""

import ctypes
import sys
from types import SimpleNamespace

import pytest

from accelerator_graph.backends._shared import kernels


class Pointer:
    def __init__(self, address):
        self.address = address

    def __int__(self):
        return self.address


class OnDevice:
    def __init__(self, address):
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (1,),
            "typestr": "<f4",
            "version": 3,
        }


class Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int8), ("b", ctypes.c_double))


def packed(args, sizes):
    """The bytes that the driver would copy for arguments of these sizes."""
    arguments = kernels.Arguments(args, Pointer)
    pointers = (ctypes.c_void_p * len(args)).from_address(arguments.pointer)
    return [ctypes.string_at(pointer, size) for pointer, size in zip(pointers, sizes, strict=True)]


def test_arguments_are_packed_as_pointers_to_values():
    args = (
        ctypes.c_int(-3),
        ctypes.c_float(0.5),
        Pair(1, 2.0),
        Pointer(2**40),
        OnDevice(2**41),
        OnDevice(None),
    )
    assert packed(args, (4, 4, ctypes.sizeof(Pair), 8, 8, 8)) == [
        bytes(ctypes.c_int(-3)),
        bytes(ctypes.c_float(0.5)),
        bytes(args[2]),
        (2**40).to_bytes(8, sys.byteorder),
        (2**41).to_bytes(8, sys.byteorder),
        bytes(8),
    ]
    assert kernels.Arguments((), Pointer).pointer == 0


def test_numpy_scalars_have_their_own_width():
    np = pytest.importorskip("numpy")
    args = (
        np.float64(0.1),
        np.float32(0.1),
        np.int8(-1),
        np.bool_(True),
        np.array(7, np.uint16),
        np.float16(2),
    )
    assert packed(args, (8, 4, 1, 1, 2, 2)) == [arg.tobytes() for arg in args]
    assert packed((OnDevice(np.uint64(2**63)),), (8,)) == [(2**63).to_bytes(8, sys.byteorder)]
    with pytest.raises(TypeError, match=r"^argument 0 of the kernel is an array in host memory, which .*\.$"):
        kernels.Arguments((np.zeros(2),), Pointer)


@pytest.mark.parametrize("arg", [3, 0.5, True, 1j])
def test_python_numbers_are_refused(arg):
    with pytest.raises(TypeError, match=rf"^argument 1 .* Python {type(arg).__name__}, .*ctypes\.c_int\(3\)"):
        kernels.Arguments((ctypes.c_int(1), arg), Pointer)


@pytest.mark.parametrize("interface", [{}, {"data": None}, {"data": ("x", False)}, ()])
def test_an_array_without_an_address_is_refused(interface):
    array = OnDevice(1)
    array.__cuda_array_interface__ = interface
    with pytest.raises(TypeError, match=r"^argument 0 of the kernel has a .* without an address; .*\.$"):
        kernels.Arguments((array,), Pointer)


@pytest.mark.parametrize("arg", [None, "x", b"x", [1], object()])
def test_other_arguments_are_refused(arg):
    with pytest.raises(TypeError, match=r"^argument 0 of the kernel is a .* object, which can't be passed; "):
        kernels.Arguments((arg,), Pointer)


def test_geometry():
    assert kernels.geometry(5, (2, 3), 48 << 10) == (5, 1, 1, 2, 3, 1, 48 << 10)
    assert kernels.geometry([2, 3, 4], 1, 0) == (2, 3, 4, 1, 1, 1, 0)
    for wrong in ((), (1, 2, 3, 4), 0, (1, -1), 1 << 32):
        with pytest.raises(ValueError, match=r"^grid must "):
            kernels.geometry(wrong, 1, 0)
        with pytest.raises(ValueError, match=r"^block must "):
            kernels.geometry(1, wrong, 0)
    for wrong in (1.5, "1", None, (1.0,)):
        with pytest.raises(TypeError, match=r"^grid must "):
            kernels.geometry(wrong, 1, 0)
        with pytest.raises(TypeError, match=r"^block must "):
            kernels.geometry(1, wrong, 0)
    for wrong in (-1, 1 << 32):
        with pytest.raises(ValueError, match=r"^shared_bytes must be "):
            kernels.geometry(1, 1, wrong)
    for wrong in (True, 1.0, None):
        with pytest.raises(TypeError, match=r"^shared_bytes must be "):
            kernels.geometry(1, 1, wrong)


def test_kernels():
    assert kernels.kernel_handle(4096) == 4096
    assert kernels.kernel_handle(Pointer(4096)) == 4096
    assert kernels.kernel_handle(SimpleNamespace(handle=Pointer(4096))) == 4096
    for wrong in (True, 1.5, "4096", None, print, SimpleNamespace(handle=None)):
        with pytest.raises(TypeError, match="object is not a kernel; pass a kernel that"):
            kernels.kernel_handle(wrong)
    with pytest.raises(ValueError, match="0 is not the handle of a kernel"):
        kernels.kernel_handle(Pointer(0))
