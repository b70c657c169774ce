"""Calls of a function for many objects, and the numbers of objects: in C and in Python."""

import ctypes
import random
import struct
import sys
import threading

import pytest

from accelerator_graph.backends._cuda import raw_calls
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

/* Fails, with a code that may mean another kind of object. */
int refuse(uintptr_t object, uintptr_t *answer)
{
    (void)object, (void)answer;
    return 9;
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
    for name in ("tell", "tell_which", "refuse", "wait"):
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        setattr(library, f"{name}_address", address)
    return library


@pytest.fixture(params=["in C", "in Python"])
def calls(request, monkeypatch):
    in_c = request.getfixturevalue("fast") if request.param == "in C" else None
    monkeypatch.setattr(raw_calls, "in_c", lambda: in_c)
    return raw_calls


def handles(*numbers):
    return struct.pack(f"{len(numbers)}N", *numbers)


def numbers(found):
    return list(struct.unpack(f"{len(found) // 4}I", found))


@pytest.mark.parametrize("words", [b"", b"\0", b"\1", b"\0\1", b"\17\0\0"])
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_each_object_is_asked(calls, tells, count, words):
    objects, before = range(1 << 60, (1 << 60) + count), tells.count()
    expected = [0 if word else 2 * each for each in objects for word in words]
    found = calls.call_each(handles(*objects), ((tells.tell_address, words, -1),))
    assert found == (0, 0, handles(*expected))
    assert tells.count() - before == count


def test_several_questions(calls, tells):
    questions = tuple((tells.tell_which_address, b"\1\0", which) for which in (0, 4))
    found = calls.call_each(handles(100, 200), questions)
    assert found == (0, 0, handles(0, 200, 4, 200, 0, 400, 4, 400))
    made_here = 0, 0, handles(0)
    assert sys.getrefcount(found[2]) == sys.getrefcount(made_here[2])


def test_objects_that_are_of_another_kind(calls, tells):
    """What has the code at the first question is not asked any more; at later ones it is an error."""
    first, then = (tells.tell_address, b"\0", -1), (tells.tell_which_address, b"\1", 3)
    before = tells.count()
    found = calls.call_each(handles(100, 7, 200), (first, then), 7)
    assert found == (0, 0, handles(200, 3, 0, 0, 400, 3))
    assert tells.count() - before == 5
    only_once = (tells.refuse_address, b"", -1)
    assert calls.call_each(handles(100), (first, only_once), 9) == (9, 1, b"")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_first_error_ends_the_calls(calls, tells, place):
    objects, before = [100, 200, 300], tells.count()
    objects[place] = 7
    found = calls.call_each(handles(*objects), ((tells.tell_address, b"\0\1", -1),))
    expected = [word for each in objects[:place] for word in (2 * each, 0)]
    assert found == (7, 0, handles(*expected))
    assert tells.count() - before == place + 1


def test_other_threads_run_meanwhile(calls, tells):
    box = []
    wait = ((tells.wait_address, b"\0", -1),)
    thread = threading.Thread(target=lambda: box.append(calls.call_each(handles(1), wait)))
    thread.start()
    tells.open_one()  # not reached, and the thread's call fails, if that holds the interpreter's lock
    thread.join()
    assert box == [(0, 0, bytes(8))]


def test_wrong_arguments_call_nothing(fast, tells):
    before, objects, right = tells.count(), handles(100), (tells.tell_address, b"\0", -1)
    for wrong, said in (
        (((0, b"\0", -1),), "must be the address of a function, not 0"),
        (((tells.tell_address, b"\0\20", -1),), "at most 16 words"),
        ((), "1 to 4 questions"),
        ((right,) * 5, "1 to 4 questions"),
    ):
        with pytest.raises(ValueError, match=said):
            fast.call_each(objects, wrong)
    for wrong in ((1,), (right[:2],), [right]):
        with pytest.raises(TypeError):
            fast.call_each(objects, wrong)
    with pytest.raises(TypeError):
        fast.call_each(bytearray(objects), (right,))  # it could change meanwhile
    with pytest.raises(TypeError):
        fast.distinct(bytearray(objects))
    assert tells.count() == before


def test_the_different_objects(calls):
    drawn = random.Random(4)
    for count in (0, 1, 2, 5, 64, 1000):
        objects = drawn.choices(range(0, 50 * count + 1, 50), k=count)
        assert calls.distinct(handles(*objects)) == handles(*dict.fromkeys(objects))


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
