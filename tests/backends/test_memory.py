"""Finding the memory behind an object."""

import array
import ctypes
import mmap

import pytest

from accelerator_graph.backends.memory import elements_of, memory_of


def host(obj, nbytes=None, writable=False):
    return memory_of(obj, nbytes, writable=writable, device=False)


def interface(shape=(4,), typestr="<f4", data=(4096, False), **more):
    return {"shape": shape, "typestr": typestr, "data": data, "version": 3, **more}


class OnDevice:
    def __init__(self, **values):
        self.__cuda_array_interface__ = interface(**values)


class OnHost:
    def __init__(self, **values):
        self.__array_interface__ = interface(**values)


WRITABLE = {
    "bytearray": bytearray(b"abcdef"),
    "memoryview": memoryview(bytearray(b"xxabcdefxx"))[2:8],
    "array": array.array("B", b"abcdef"),
    "ctypes array": (ctypes.c_char * 6)(*b"abcdef"),
    "mmap": mmap.mmap(-1, 6),
}
WRITABLE["mmap"][:] = b"abcdef"
READ_ONLY = {"bytes": b"abcdef", "view of bytes": memoryview(b"xabcdefx")[1:7]}


@pytest.mark.parametrize("obj", [*WRITABLE.values(), *READ_ONLY.values()], ids=[*WRITABLE, *READ_ONLY])
def test_the_address_is_where_the_bytes_are(obj):
    memory = host(obj)
    assert memory.nbytes == 6
    assert ctypes.string_at(memory.address, 6) == b"abcdef"


@pytest.mark.parametrize("obj", WRITABLE.values(), ids=WRITABLE)
def test_what_is_written_there_is_seen_in_the_object(obj):
    memory = host(obj, writable=True)
    ctypes.memmove(memory.address, b"ABC", 3)
    assert bytes(obj) == b"ABCdef"
    ctypes.memmove(memory.address, b"abc", 3)


@pytest.mark.parametrize(
    ("obj", "elements"),
    [
        (4096, None),
        (b"abcd", None),
        (memoryview(b"abcd").cast("b"), None),
        ((ctypes.c_char * 2)(), None),
        (memoryview(b"abcd").cast("?"), ("|b1", 1)),
        (array.array("h", [1]), ("<i2", 2)),
        (array.array("N" if "N" in array.typecodes else "L", [1]), ("<u8", 8)),
        ((ctypes.c_float * 2)(), ("<f4", 4)),
        ((ctypes.c_uint32.__ctype_be__ * 2)(), (">u4", 4)),
        (OnHost(typestr="<c16"), ("<c16", 16)),
        (OnHost(typestr="<U3"), ("<U3", 12)),
        (OnHost(typestr="<M8[ns]"), ("<M8[ns]", 8)),
        (OnDevice(typestr="<V2"), ("<V2", 2)),
        (OnDevice(typestr=None), None),
        (object(), None),
    ],
)
def test_the_type_of_elements(obj, elements):
    assert elements_of(obj) == elements


@pytest.mark.parametrize("obj", READ_ONLY.values(), ids=READ_ONLY)
def test_read_only_memory_is_not_writable(obj):
    with pytest.raises(ValueError, match="is read-only"):
        host(obj, writable=True)


def test_a_ctypes_scalar_has_memory():
    value = ctypes.c_int(7)
    assert host(value, writable=True).address == ctypes.addressof(value)


def test_the_owner_keeps_the_memory_where_it_is():
    buffer = bytearray(8)
    memory = host(buffer)
    with pytest.raises(BufferError):
        buffer.extend(b"x")
    del memory
    buffer.extend(b"x")


def test_finding_the_address_holds_nothing_once_the_memory_is_forgotten():
    buffer = mmap.mmap(-1, 16)
    host(buffer)
    buffer.close()


def test_an_empty_buffer_has_no_bytes():
    assert host(b"").nbytes == host(bytearray()).nbytes == 0


def test_an_address_is_taken_as_it_is():
    assert host(4096, 16, writable=True) == (4096, 16, None)


def test_an_address_needs_the_number_of_bytes():
    with pytest.raises(ValueError, match="pass nbytes"):
        host(4096)


@pytest.mark.parametrize("address", [0, -1])
def test_an_address_is_positive(address):
    with pytest.raises(ValueError, match="not the address"):
        host(address, 4)


@pytest.mark.parametrize("nbytes", [2**64 - 4095, 2**64, 2**64 + 8, 2**70])
def test_an_address_is_followed_by_no_more_bytes_than_there_are_addresses(nbytes):
    with pytest.raises(ValueError, match=r"^\d+ bytes from the address 0x1000 on reach beyond 2\*\*64"):
        host(4096, nbytes)
    with pytest.raises(ValueError, match="reach beyond"):
        host(OnHost(shape=(nbytes,), typestr="|u1"))
    assert host(4096, 2**64 - 4096).nbytes == 2**64 - 4096


def test_fewer_bytes_can_be_asked_for_but_not_more():
    assert host(b"abcd", 3).nbytes == 3
    assert host(b"abcd", 0).nbytes == 0
    with pytest.raises(ValueError, match="has 4 bytes, not 5"):
        host(b"abcd", 5)


@pytest.mark.parametrize("obj", [b"abcd", 4096])
@pytest.mark.parametrize(("nbytes", "error"), [(-1, ValueError), (True, TypeError), (2.0, TypeError)])
def test_the_number_of_bytes_is_an_int_that_is_not_negative(obj, nbytes, error):
    with pytest.raises(error, match="nbytes"):
        host(obj, nbytes)


@pytest.mark.parametrize("obj", [None, True, "text", 1.5, object(), [1, 2]])
def test_anything_else_has_no_memory(obj):
    with pytest.raises(TypeError, match="has no memory"):
        host(obj, 1)


def test_strided_memory_is_refused():
    with pytest.raises(ValueError, match="not contiguous"):
        host(memoryview(bytearray(8))[::2])


def test_references_to_python_objects_are_never_overwritten():
    with pytest.raises(TypeError, match="references to Python objects"):
        host((ctypes.py_object * 2)())


def test_device_memory_only_where_it_is_meant():
    obj = OnDevice()
    assert memory_of(obj, None, writable=True, device=True) == (4096, 16, obj)
    with pytest.raises(TypeError, match="is device memory"):
        host(obj)


def test_host_memory_is_understood_beside_device_memory():
    assert memory_of(b"abc", None, writable=False, device=True).nbytes == 3


def test_array_interface():
    obj = OnHost(shape=(2, 3), typestr="<f8", data=(8192, True))
    assert host(obj) == (8192, 48, obj)
    with pytest.raises(ValueError, match="is read-only"):
        host(obj, writable=True)


@pytest.mark.parametrize(
    ("shape", "typestr", "strides", "nbytes"),
    [
        ((2, 3), "<f4", (12, 4), 24),
        ((2, 1, 3), "<f4", (12, 999, 4), 24),  # an extent of one is never stepped over
        ((0, 3), "<f4", (7, 7), 0),
        ((), "|u1", None, 1),
        ((2,), "<U3", None, 24),
        ((2,), "<M8[ns]", None, 16),
    ],
)
def test_contiguous_interfaces(shape, typestr, strides, nbytes):
    obj = OnHost(shape=shape, typestr=typestr, strides=strides)
    assert host(obj).nbytes == nbytes


@pytest.mark.parametrize("strides", [(4, 8), (24, 4), (12, 8), (-12, 4)])
def test_interfaces_with_gaps_or_another_order_are_refused(strides):
    with pytest.raises(ValueError, match="not contiguous"):
        host(OnHost(shape=(2, 3), strides=strides))


@pytest.mark.parametrize("more", [{"mask": OnHost()}, {"data": None}, {"typestr": "|t4"}])
def test_interfaces_that_no_address_describes_are_refused(more):
    with pytest.raises(TypeError, match="pass its plain data"):
        host(OnHost(**more))


@pytest.mark.parametrize(
    "more",
    [
        *({"shape": 4}, {"shape": (0.5,)}, {"typestr": ""}, {"typestr": "<f"}, {"typestr": None}),
        *({"data": ()}, {"data": (4096,)}, {"data": ("x", False)}, {"strides": 4}),
    ],
)
def test_interfaces_that_are_not_valid_are_refused(more):
    with pytest.raises(
        TypeError, match=r"^the memory of the 'OnHost' object can't be found: its array inter"
    ):
        host(OnHost(**more))


@pytest.mark.parametrize("interface", [{}, (), 5])
def test_an_interface_of_another_kind_is_refused(interface):
    device = OnDevice()
    device.__cuda_array_interface__ = interface
    with pytest.raises(TypeError, match="array interface is not valid"):
        memory_of(device, None, writable=True, device=True)


def test_an_empty_device_array_has_no_address():
    memory = memory_of(OnDevice(shape=(0,), data=(None, False)), None, writable=True, device=True)
    assert memory[:2] == (0, 0)


def test_numpy():
    numpy = pytest.importorskip("numpy")
    values = numpy.arange(6, dtype="<i4").reshape(2, 3)
    assert host(values, writable=True)[:2] == (values.ctypes.data, 24)
    dates = numpy.zeros(3, "M8[s]")  # no format for a memoryview
    assert host(dates, writable=True)[:2] == (dates.ctypes.data, 24)
    for refused in (values.T, values[:, ::2]):
        with pytest.raises(ValueError, match="not contiguous"):
            host(refused)
    with pytest.raises(TypeError, match="references to Python objects"):
        host(numpy.array([None, None]))
    assert host(OnHost(shape=(numpy.int64(2),), data=(numpy.uint64(4096), False)))[:2] == (4096, 8)
    scalar = numpy.int64(3)  # its __array_interface__ names memory that is gone at once
    assert ctypes.string_at(host(scalar).address, 8) == scalar.tobytes()
    with pytest.raises(ValueError, match="is read-only"):
        host(scalar, writable=True)
