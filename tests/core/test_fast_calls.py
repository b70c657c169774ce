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


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_each_object_is_asked(calls, tells, count):
    objects = range(1 << 60, (1 << 60) + count)
    code, answers = calls.call_each(tells.tell_address, handles(*objects), 16)
    assert code == 0
    assert struct.unpack(f"{2 * count}N", answers) == tuple(
        word for each in objects for word in (2 * each, 0)
    )


@pytest.mark.parametrize("which", [0, 4])
def test_what_each_object_is_asked_for(calls, tells, which):
    assert calls.call_each(tells.tell_which_address, handles(100, 200), 16, which) == (
        0,
        handles(200, which, 400, which),
    )


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_first_error_ends_the_calls(calls, tells, place):
    objects, before = [100, 200, 300], tells.count()
    objects[place] = 7
    code, answers = calls.call_each(tells.tell_address, handles(*objects), 16)
    assert (code, len(answers)) == (7, 16 * place)
    assert tells.count() - before == place + 1


def test_other_threads_run_meanwhile(calls, tells):
    box = []
    thread = threading.Thread(target=lambda: box.append(calls.call_each(tells.wait_address, handles(1), 8)))
    thread.start()
    tells.open_one()  # not reached, and the thread's call fails, if that holds the interpreter's lock
    thread.join()
    assert box == [(0, bytes(8))]


def test_wrong_arguments_call_nothing(fast, tells):
    before = tells.count()
    for wrong in ((0, handles(100), 16), (tells.tell_address, handles(100), 0)):
        with pytest.raises(ValueError, match="must be above 0"):
            fast.call_each(*wrong)
    with pytest.raises(TypeError):
        fast.call_each(tells.tell_address, bytearray(handles(100)), 16)  # it could change meanwhile
    with pytest.raises(MemoryError):
        fast.call_each(tells.tell_address, handles(100, 200), (1 << 63) - 1)
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
