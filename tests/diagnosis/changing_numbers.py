"""Numbers that Python changes from run to run, wherever a program keeps them: each is frozen in a graph."""

import itertools
import threading
from collections import deque
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from types import SimpleNamespace


class Phase(Enum):
    EVEN = 2
    ODD = 3


@dataclass
class Settings:
    scale: int = 1


class WithSlots:
    __slots__ = ("scale",)


of_the_module = 1


def next_number(form):
    """Return a function that returns another number in every call, and where it has it."""
    box, items, numbers, members = SimpleNamespace(n=1, mode="a", done=None), {"n": 1}, [1], {1}
    settings, waiting, calls, local = Settings(), deque([1]), itertools.count(1), threading.local()
    slotted, inner = WithSlots(), SimpleNamespace(pair=(1, 2), exact=Decimal(1), phase=Phase.ODD)
    slotted.scale = local.n = captured = 1

    class Class:
        n = 1

    def of_an_attribute():
        box.n += 1
        return box.n

    def of_an_item():
        items["n"] += 1
        return items["n"]

    def of_an_element():
        numbers[0] += 1
        return numbers[0]

    def of_a_closure():
        nonlocal captured
        captured += 1
        return captured

    def of_a_module():
        global of_the_module
        of_the_module += 1
        return of_the_module

    def of_a_class():
        Class.n += 1
        return Class.n

    def of_a_slot():
        slotted.scale += 1
        return slotted.scale

    def of_a_field():
        settings.scale += 1
        return settings.scale

    def of_a_default(state=[1]):  # noqa: B006
        state[0] += 1
        return state[0]

    def of_a_named_default(*, state={"n": 1}):  # noqa: B006
        state["n"] += 1
        return state["n"]

    def of_a_function():
        of_a_function.n = getattr(of_a_function, "n", 1) + 1
        return of_a_function.n

    def of_a_growing_list():
        numbers.append(1)
        return len(numbers)

    def of_a_growing_dict():
        items[len(items)] = 1
        return len(items)

    def of_a_growing_set():
        members.add(len(members) + 1)
        return len(members)

    def of_a_growing_queue():
        waiting.append(1)
        return len(waiting)

    def of_an_iterator():
        return next(calls)

    def of_a_thread():
        local.n += 1
        return local.n

    def of_a_tuple():
        inner.pair = (inner.pair[1], sum(inner.pair))
        return inner.pair[0]

    def of_a_decimal():
        inner.exact += 1
        return float(inner.exact)

    def of_an_enum():
        inner.phase = Phase.EVEN if inner.phase is Phase.ODD else Phase.ODD
        return inner.phase.value

    def of_a_text():
        box.mode += "a"
        return len(box.mode)

    def of_a_flag():
        box.done = not box.done
        return 1 + box.done

    return {name: x for name, x in locals().items() if name.startswith("of_a")}[f"of_{form}"]


NUMBERS = (
    *("an_attribute", "an_item", "an_element", "a_closure", "a_module", "a_class", "a_slot", "a_field"),
    *("a_default", "a_named_default", "a_function", "a_growing_list", "a_growing_dict", "a_growing_set"),
    *("a_growing_queue", "an_iterator", "a_thread", "a_tuple", "a_decimal", "an_enum", "a_text", "a_flag"),
)
