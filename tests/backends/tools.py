"""What the tests of the CUDA and of the HIP backend share: threads, interrupts, a forked graph's nodes."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

BACKENDS = str(Path(__file__).resolve().parents[2] / "accelerator_graph" / "backends")
TIMEOUT = 60


def in_thread(work):
    """Run `work` in a thread of its own, which has no context, and return what it returns."""
    box = []

    def run():
        try:
            box.append((work(), None))
        except BaseException as error:
            box.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    assert not thread.is_alive(), "the thread hangs"
    result, error = box[0]
    if error is not None:
        raise error
    return result


def in_threads_of_one_ident(first, second):
    """Run `first` in a thread, then `second` with its answer in another one that was given the same ident."""
    answer, ident = in_thread(lambda: (first(), threading.get_ident()))

    def again():
        if threading.get_ident() != ident:
            return False
        second(answer)
        return True

    assert any(in_thread(again) for _ in range(1000)), "no thread was given the ident"


class Interrupter:
    """Raises KeyboardInterrupt at the n-th place where the interpreter looks for signals.

    It does so when a Python function begins or goes on, and when a C function has returned. The functions
    of the fake driver or runtime, `answered` in that file, stand for C functions; nothing comes between
    them and a C function that calls them.
    """

    def __init__(self, at, fake):
        self.left = at
        self.fake = fake
        self.in_c = False

    def __call__(self, frame, event, arg):
        file = frame.f_code.co_filename
        there = False
        if file == self.fake:
            there = event == "return" and frame.f_code.co_name == "answered" and not self.in_c
        elif file.startswith(BACKENDS) or file.endswith("contextlib.py"):
            there = event in ("call", "c_return")
            self.in_c = event == "c_call"
        if there:
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt


def interrupted(work, at, fake):
    """Run `work`, interrupted at some place. Whether it was."""
    sys.setprofile(Interrupter(at, fake))
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def check_forked(backend, graph):
    """Find a copy, two fills after it and a fill that joins them."""
    nodes, edges = backend.nodes(graph)
    assert [node.id for node in nodes] == [0, 1, 2, 3]
    assert backend.node_count(graph) == 4
    assert {node.name for node in nodes} == {""}
    (first,) = {node.id for node in nodes} - {edge.target for edge in edges}
    (last,) = {node.id for node in nodes} - {edge.source for edge in edges}
    middle = {node.id for node in nodes} - {first, last}
    assert {node.id: node.kind for node in nodes} == {
        first: "memcpy",
        **dict.fromkeys([*middle, last], "memset"),
    }
    assert sorted(edges) == sorted([*((first, m) for m in middle), *((m, last) for m in middle)])
