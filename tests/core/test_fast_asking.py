"""What C asks a driver, and sections in which a thread disturbs no capture."""

from __future__ import annotations

import ctypes
import sys
import threading

import pytest

from core.fast_bench import compiled

pytest_plugins = ["core.fast_fixtures"]

DRIVER = r"""
#include <stddef.h>
#include <stdint.h>
#include <time.h>

void *context = (void *)1;
int mode = 7, refused, of_set; /* `refused`: the function that fails, from 1 */
int sets, exchanges;

int current(void **now) { *now = context; return refused == 1 ? 31 : 0; }

int set_current(void *wanted)
{
    sets++;
    context = wanted;
    return refused == 2 ? 32 : 0;
}

int exchange(int *wanted)
{
    int before = mode;
    exchanges++;
    if (refused == 3)
        return 33;
    mode = *wanted;
    *wanted = before;
    return 0;
}

int twice(uintptr_t handle, unsigned *answer)
{
    if (handle == 5)
        return 35;
    *answer = 2 * (unsigned)handle;
    return 0;
}

int until_set(volatile int *flag)
{
    struct timespec millisecond = {0, 1000000};
    for (int i = 0; i < 5000 && !*flag; i++)
        nanosleep(&millisecond, NULL);
    return *flag ? 0 : 36;
}

int forty(uint64_t *answer) { *answer = 1ull << 40; return 0; }

/* The stream's handle is the status, and the code from 100 on. */
int info(uintptr_t stream, int *status, uint64_t *id, void **graph, void ***dependencies, size_t *count)
{
    *status = (int)stream;
    *id = 3;
    *graph = (void *)(uintptr_t)(*status == 1 ? 64 : 35);
    if (*status == 35)
        *status = 1;
    *dependencies = NULL;
    *count = 9;
    return stream < 100 ? 0 : (int)stream;
}

int info_with_edges(uintptr_t stream, int *status, uint64_t *id, void **graph, void ***dependencies,
                    void **edges, size_t *count)
{
    *edges = NULL;
    return info(stream, status, id, graph, dependencies, count);
}

int nodes(uintptr_t graph, void **found, size_t *count)
{
    *count = found == NULL ? graph + 1 : 0;
    return graph == 64 ? 0 : (int)graph;
}
"""

FUNCTIONS = (
    *("current", "set_current", "exchange", "twice", "forty", "info", "info_with_edges", "nodes"),
    "until_set",
)


class Failed(Exception):
    pass


def failed(*about):
    raise Failed(*about)


class Driver:
    def __init__(self):
        self.library = ctypes.CDLL(str(compiled("asking", DRIVER, ".so")))
        self.address = {
            name: ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value for name in FUNCTIONS
        }
        self.go_to(1, 7)

    def number(self, name):
        return ctypes.c_int.in_dll(self.library, name)

    def go_to(self, context, mode, refused=0):
        ctypes.c_void_p.in_dll(self.library, "context").value = context
        for name, value in (("mode", mode), ("refused", refused), ("sets", 0), ("exchanges", 0)):
            self.number(name).value = value

    @property
    def thread(self):
        """The context and the mode."""
        return ctypes.c_void_p.in_dll(self.library, "context").value, self.number("mode").value


@pytest.fixture(name="driver")
def driver_fixture():
    return Driver()


@pytest.fixture(name="relaxing")
def relaxing_fixture(fast, driver):
    functions = (driver.address[name] for name in FUNCTIONS[:3])
    return fast.Relaxing(*functions, 2, failed)


def test_run_is_inside(driver, relaxing):
    section = relaxing(4)
    assert section.run(lambda *args, **how: (driver.thread, args, how), 1, 2, three=3) == (
        (4, 2),
        (1, 2),
        {"three": 3},
    )
    assert driver.thread == (1, 7)
    assert section.run(lambda: section.run(lambda: driver.thread)) == (4, 2)
    assert driver.thread == (1, 7)


def test_what_is_raised_inside_passes(driver, relaxing):
    with pytest.raises(ZeroDivisionError):
        relaxing(4).run(divmod, 1, 0)
    assert driver.thread == (1, 7)
    inside = []
    with pytest.raises(ZeroDivisionError), relaxing(4):
        divmod(1, 0 * len(inside.append(driver.thread) or inside))
    assert inside == [(4, 2)]
    assert driver.thread == (1, 7)


def test_the_context_is_set_only_if_it_is_another(driver, relaxing):
    with relaxing(1):
        assert driver.thread == (1, 2)
    assert driver.number("sets").value == 0
    assert driver.number("exchanges").value == 2


@pytest.mark.parametrize("refused", [1, 2, 3])
@pytest.mark.parametrize("how", ["run", "with"])
def test_a_step_that_fails_leaves_nothing_changed(driver, relaxing, refused, how):
    driver.go_to(1, 7, refused)
    section = relaxing(4)
    with pytest.raises(Failed) as info:
        section.run(print) if how == "run" else section.__enter__()
    assert info.value.args == (refused - 1, 30 + refused)
    assert driver.thread == (1, 7)


def test_a_section_that_nobody_left_ends_when_it_goes(driver, relaxing):
    section = relaxing(4)
    section.__enter__()
    with pytest.raises(RuntimeError, match="entered already"):
        section.__enter__()
    assert driver.thread == (4, 2)
    del section
    assert driver.thread == (1, 7)


def test_leaving_twice_does_nothing(driver, relaxing):
    section = relaxing(4)
    with section:
        pass
    driver.go_to(9, 8)
    section.__exit__(None, None, None)
    assert driver.thread == (9, 8)


def test_a_failure_that_is_not_raised_is_an_error(fast, driver):
    functions = (driver.address[name] for name in FUNCTIONS[:3])
    driver.go_to(1, 7, refused=1)
    with pytest.raises(SystemError, match="did not raise"):
        fast.Relaxing(*functions, 2, lambda *about: None)(4).run(print)
    ask = fast.Ask(driver.address["twice"], lambda code: None)
    with pytest.raises(SystemError, match="did not raise"):
        ask(5)


def test_numbers_are_asked_for(fast, driver):
    twice = fast.Ask(driver.address["twice"], failed)
    assert [twice(3), twice(ctypes.c_uint(4).value), twice(True)] == [6, 8, 2]
    assert fast.Ask(driver.address["forty"], failed)() == 1 << 40
    handle = int("100000")
    before = sys.getrefcount(handle)
    assert {twice(handle) for _ in range(9)} == {200_000}
    assert sys.getrefcount(handle) == before
    with pytest.raises(Failed) as info:
        twice(5)
    assert info.value.args == (35,)
    with pytest.raises(TypeError):
        twice(None)
    with pytest.raises(TypeError):
        twice(1, 2)
    with pytest.raises(OverflowError):
        twice(1 << 64)


def test_other_threads_run_during_a_call_that_waits(fast, driver):
    flag = ctypes.c_int()
    setter = threading.Timer(0.05, lambda: setattr(flag, "value", 1))
    setter.start()
    fast.Ask(driver.address["until_set"], failed, waits=True)(ctypes.addressof(flag))
    setter.join()


@pytest.mark.parametrize("edges", [False, True])
def test_the_nodes_of_a_capture_are_counted(fast, driver, edges):
    info = driver.address["info_with_edges" if edges else "info"]

    def failed(which, code):
        raise Failed(which, code)

    told = fast.CaptureInfo(info, driver.address["nodes"], edges, failed)
    assert [told(status) for status in (0, 1, 2)] == [None, (3, 65), None]
    for status, what in ((101, (0, 101)), (35, (1, 35))):
        with pytest.raises(Failed) as error:
            told(status)
        assert error.value.args == what
    with pytest.raises(TypeError):
        told()


def test_addresses_must_not_be_0(fast, driver):
    place = driver.address["current"]
    for make in (
        lambda: fast.Ask(0, failed),
        lambda: fast.CaptureInfo(0, place, False, failed),
        lambda: fast.CaptureInfo(place, 0, True, failed),
        lambda: fast.Relaxing(place, 0, place, 2, failed),
    ):
        with pytest.raises(ValueError, match="not 0"):
            make()
    with pytest.raises(TypeError):
        fast.Relaxing(place, place, place, 2, failed)(1, 2)
    with pytest.raises(TypeError):
        type(fast.Relaxing(place, place, place, 2, failed)(1))()
