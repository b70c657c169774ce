"""Calls of a function for many objects, and the numbers of objects: in C and in Python."""

from __future__ import annotations

import ctypes
import random
import struct
import threading

import pytest

from accelerator_graph import _interpreter
from accelerator_graph._interpreter import many_calls
from core.fast_bench import TIMEOUT, compiled

pytest_plugins = ["core.fast_fixtures"]

TELLS = r"""
#include <semaphore.h>
#include <stdint.h>
#include <time.h>

static int asked;

/* Twice the object, in the first of two words; the code is the object's if that is below 100. */
int tell(uintptr_t object, uintptr_t *answer)
{
    asked++;
    if (object < 100)
        return (int)object;
    answer[0] = 2 * object;
    return 0;
}

int tell_which(uintptr_t object, int which, uintptr_t *answer)
{
    answer[1] = (uintptr_t)which;
    return tell(object, answer);
}

int count(void) { return asked; }

static sem_t opened;

__attribute__((constructor)) static void make(void) { sem_init(&opened, 0, 0); }

int wait(uintptr_t object, uintptr_t *answer)
{
    struct timespec end;
    (void)object, (void)answer;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += SECONDS;
    return sem_timedwait(&opened, &end) ? -1 : 0;
}

void open_one(void) { sem_post(&opened); }
"""


@pytest.fixture(scope="module")
def tells():
    library = ctypes.CDLL(str(compiled("tells", TELLS, ".so", f"-DSECONDS={TIMEOUT}")))
    for name in ("tell", "tell_which", "wait"):
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        setattr(library, f"{name}_address", address)
    return library


@pytest.fixture(params=["in C", "in Python"])
def calls(request, monkeypatch):
    in_c = request.getfixturevalue("fast") if request.param == "in C" else None
    monkeypatch.setattr(_interpreter, "in_c", in_c)
    return many_calls


def handles(*numbers):
    return struct.pack(f"{len(numbers)}N", *numbers)


def numbers(found):
    return list(struct.unpack(f"{len(found) // 4}I", found))


@pytest.mark.parametrize("words", [b"", b"\0", b"\1", b"\0\1", b"\17\0\0"])
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_each_object_is_asked(calls, tells, count, words):
    objects, before = range(1 << 60, (1 << 60) + count), tells.count()
    expected = [0 if word else 2 * each for each in objects for word in words]
    assert calls.call_each(tells.tell_address, handles(*objects), words) == (0, handles(*expected))
    assert tells.count() - before == count


@pytest.mark.parametrize("which", [0, 4])
def test_what_each_object_is_asked_for(calls, tells, which):
    found = calls.call_each(tells.tell_which_address, handles(100, 200), b"\0\1", which)
    assert found == (0, handles(200, which, 400, which))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_first_error_ends_the_calls(calls, tells, place):
    objects, before = [100, 200, 300], tells.count()
    objects[place] = 7
    found = calls.call_each(tells.tell_address, handles(*objects), b"\0\1")
    expected = [word for each in objects[:place] for word in (2 * each, 0)]
    assert found == (7, handles(*expected))
    assert tells.count() - before == place + 1


def test_other_threads_run_meanwhile(calls, tells):
    box = []
    thread = threading.Thread(
        target=lambda: box.append(calls.call_each(tells.wait_address, handles(1), b"\0"))
    )
    thread.start()
    tells.open_one()  # not reached, and the thread's call fails, if that holds the interpreter's lock
    thread.join()
    assert box == [(0, bytes(8))]


def test_wrong_arguments_call_nothing(fast, tells):
    before = tells.count()
    with pytest.raises(ValueError, match="must be the address of a function, not 0"):
        fast.call_each(0, handles(100), b"\0")
    with pytest.raises(ValueError, match="at most 16 words"):
        fast.call_each(tells.tell_address, handles(100), b"\0\20")
    with pytest.raises(TypeError):
        fast.call_each(tells.tell_address, bytearray(handles(100)), b"\0")  # it could change meanwhile
    assert tells.count() == before


def test_the_numbers_of_objects(calls):
    drawn = random.Random(3)
    for count in (1, 2, 3, 4, 5, 63, 64, 1000):
        objects = drawn.sample(range(8, 1 << 40, 8), count)
        wanted = drawn.choices(objects, k=3 * count)
        found = calls.numbers_of(handles(*objects), handles(*wanted))
        assert [objects[number] for number in numbers(found)] == wanted
    assert calls.numbers_of(b"", b"") == calls.numbers_of(handles(8), b"") == b""


def test_objects_close_to_each_other(calls):
    objects = list(range(1, 300))
    assert numbers(calls.numbers_of(handles(*objects), handles(*reversed(objects)))) == list(
        range(298, -1, -1)
    )


@pytest.mark.parametrize("objects", [(), (8,), (8, 16, 24)])
def test_an_unknown_object(calls, objects):
    with pytest.raises(ValueError, match="not among the objects"):
        calls.numbers_of(handles(*objects), handles(*objects, 32))
