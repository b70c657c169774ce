"""Calls of graphed functions in the middle of others: from signal handlers, finalisers, other threads."""

import sys
import threading
from math import inf

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._core import stream_stack
from faults.moments import Interrupter
from graphed.functions import LIMIT, launch
from lanes import sample
from threads import in_threads

PACKAGE = ag.__name__


def tripling(**options):
    @ag.graphed(**options)
    def triple(x, y):
        out = np.empty_like(x)
        launch(np.add, x, y, out)
        return out

    return triple


def interrupted(call, handler, at):
    """Make a call that a handler interrupts before the library's line with this number.

    Return what the call returns, and whether there was such a line. A call of the driver is one step.
    """
    lines = [0]

    def trace(frame, event, arg):
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(PACKAGE) or name.startswith(f"{PACKAGE}.backends"):
            return None
        if event == "line":
            if lines[0] == at:
                sys.settrace(None)
                handler()
            lines[0] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = call()
    finally:
        sys.settrace(before)
    return result, lines[0] > at


@pytest.mark.promise("calls-from-handlers")
@pytest.mark.parametrize("calls_before", [0, 1], ids=["capture", "replay"])
@pytest.mark.parametrize("inner_is", ["itself", "new", "captured"])
def test_a_call_from_a_handler_in_the_middle_of_another(calls_before, inner_is):
    captured = tripling(warmup=0)

    def once(stream, at):
        outer = tripling(warmup=0)
        inner = {"itself": outer, "new": tripling(warmup=0), "captured": captured}[inner_is]
        results = []

        def handler():
            where = ag.current_stream()
            results.append((where, inner(np.full(2, 20.0), np.full(2, 3.0)), 23.0))

        for _ in range(calls_before):
            outer(np.ones(2), np.ones(2))
        if inner_is == "captured":
            inner(np.ones(2), np.ones(2))
        y, there = interrupted(lambda: outer(np.full(2, 1.0), np.full(2, 4.0)), handler, at)
        results.append((stream, y, 5.0))
        results.append((stream, outer(np.full(2, 7.0), np.full(2, 2.0)), 9.0))
        for where, _, _ in results:
            where.synchronize()
        for _, result, right in results:
            assert result.tolist() == [right] * 2, at
        assert outer.cache_info().captures == 1
        return there

    def work():
        with ag.Stream(backend="cpu") as stream:
            once(
                stream, inf
            )  # what a thread needs is there: signals reach the main thread, where it always is
            for at in sample("lines"):
                if not once(stream, at):
                    break
            assert at > 30

    in_threads(work)


def test_clear_in_the_middle_of_a_call_is_refused():
    def work():
        with ag.Stream(backend="cpu") as stream:
            double = tripling(warmup=0)
            double(np.ones(2), np.ones(2))
            at, refused = 0, 0
            while True:
                errors = []

                def handler(errors=errors):
                    try:
                        double.cache_clear()
                    except ag.GraphStateError as error:
                        errors.append(error)

                y, there = interrupted(lambda: double(np.ones(2), np.ones(2)), handler, at)
                stream.synchronize()
                assert y.tolist() == [2.0, 2.0]
                refused += len(errors)
                at += 1
                if not there:
                    break
            assert refused > 5

    in_threads(work)


@pytest.mark.promise("one-graphed-capture-at-a-time")
def test_a_call_while_another_thread_captures_another_function():
    inside, go_on = threading.Event(), threading.Event()
    results = []

    @ag.graphed(warmup=0)
    def slow(x):
        out = np.empty_like(x)
        launch(np.add, x, 1, out)
        inside.set()
        assert go_on.wait(LIMIT)
        return out

    def capture():
        with ag.Stream(backend="cpu") as stream:
            results.append(slow(np.ones(2)))
            stream.synchronize()

    def work():
        double = tripling(warmup=0)
        with ag.Stream(backend="cpu") as stream:
            thread = threading.Thread(target=capture, daemon=True)
            thread.start()
            assert inside.wait(LIMIT)
            try:
                for _ in range(2):
                    y = double(np.ones(2), np.ones(2))
                    stream.synchronize()
                    assert y.tolist() == [2.0, 2.0]
                assert double.cache_info() == ag.CacheInfo(0, 2, 0, 0, 0, 16)
            finally:
                go_on.set()
            thread.join(LIMIT)
            double(np.ones(2), np.ones(2))
            assert double.cache_info() == ag.CacheInfo(1, 2, 1, 0, 1, 16)
        assert [y.tolist() for y in results] == [[2.0, 2.0]]

    in_threads(work)


@pytest.mark.promise("interrupt-leaves-no-trace")
@pytest.mark.parametrize("calls_before", [0, 1], ids=["capture", "replay"])
def test_an_interrupt_at_any_moment_of_a_call_leaves_a_function_that_works(calls_before):
    def once(stream, at):
        triple = tripling(warmup=0)
        for _ in range(calls_before):
            triple(np.ones(2), np.ones(2))
        interrupter, before = Interrupter(at), sys.gettrace()
        try:
            sys.settrace(interrupter)
            triple(np.full(2, 1.0), np.full(2, 4.0))
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        where = interrupter.where
        assert not stream._is_capturing(), where
        assert ag.current_stream() is stream, where
        for i in range(2):
            y = triple(np.full(2, 7.0), np.full(2, float(i)))
            stream.synchronize()
            assert y.tolist() == [7.0 + i] * 2, where
        info = triple.cache_info()
        assert (info.eager, info.graphs) == (0, 1), where
        triple.cache_clear()
        return where

    def work():
        with ag.Stream(backend="cpu") as stream:
            for at in sample("lines"):
                if not once(stream, at):
                    break
            assert at > 20

    in_threads(work)


class Interrupt(BaseException):
    pass


@pytest.mark.parametrize("where", ["work", "leave", "after"])
def test_an_interrupt_leaves_no_stream_entered(where):
    target, entered = ag.Stream(backend="cpu"), []

    def work():
        entered.append(ag.current_stream())
        if where == "work":
            raise Interrupt

    def trace(frame, event, arg):
        name = frame.f_code.co_name
        if event == "call" and where == "leave" and name == "leave":
            sys.settrace(None)
            raise Interrupt
        if event == "return" and where == "after" and name == "leave":
            sys.settrace(None)
            raise Interrupt
        return trace

    def run():
        tracing = sys.gettrace()
        try:
            sys.settrace(trace)
            stream_stack.within(target, work)
        finally:
            sys.settrace(tracing)

    before = list(stream_stack.thread.entries)
    with pytest.raises(Interrupt):
        run()
    assert entered == [target]
    assert stream_stack.thread.entries == before
