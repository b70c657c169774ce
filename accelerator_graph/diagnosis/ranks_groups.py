"""How the ranks of a group send each other a text, with a time limit, and without the device."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from numbers import Real
from queue import Empty, SimpleQueue
from typing import Any, Literal, NamedTuple
from uuid import uuid4

from .._interpreter import integer
from ..errors import AcceleratorGraphError
from ..inspection.text import numbers

_TAGS = {"check_ranks": 24_942, "watchdog": 24_943}
"""The tags of MPI messages: below the 32,767 that every MPI has."""
_CONFIRMATION = 10.0
"""How many seconds at most a rank that has heard from all waits to know that they have, too."""
_MANY = 8
"""In a group of more ranks than these, those that are left out are named if they are fewer."""

_rounds: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)


class Answers(NamedTuple):
    """The texts that the ranks of a group have sent."""

    own: int
    """This rank, counted in the whole program."""
    texts: dict[int, str | None]
    """By rank, in the group's order; None of a rank from which nothing came in time."""
    confirmed: bool = True
    """The other ranks have heard from all, too. They have not if this one was so late that they gave up."""


class NoAnswer(AcceleratorGraphError):
    """Raised when the ranks have not answered, and nobody can say which of them."""


class Peers:
    """The ranks of a group, which send each other texts for one caller.

    Exchanges of one caller over one group belong together: the first one of each rank, the second one, ...
    """

    own: int | None = None
    """This rank, counted in the whole program; None if only an exchange finds it out."""
    _ranks: Sequence[int] = ()
    """The ranks of the group, by their places in it."""

    def exchange(self, text: str, timeout: float) -> Answers:
        """Send a text to all ranks, and then word that all texts have come; return the texts.

        Wait so many seconds at most, and as long for the word of the others.
        """
        said = self._gathered("said", text, timeout)
        assert self.own is not None
        answers = Answers(self.own, {rank: said.get(place) for place, rank in enumerate(self._ranks)})
        if len(said) < len(self._ranks):
            return answers
        try:
            heard = self._gathered("read", "", min(timeout, _CONFIRMATION))
        except NoAnswer:  # the rank that hosts the store has ended, after it had the confirmation of all
            return answers
        return answers._replace(confirmed=len(heard) == len(self._ranks))

    def _gathered(self, phase: Literal["said", "read"], text: str, timeout: float) -> dict[int, str]:
        """Send something to all, and return what has come of them, by their places in the group."""
        raise NotImplementedError


def peers_of(group: object, caller: str) -> Peers | None:
    """Return the ranks of what a caller was given; `caller` begins the messages of errors.

    None if it was given nothing, and the program has no default group.

    Raises
    ------
    TypeError, ValueError
        The object is not a group, or this process is not in it.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and not (distributed.is_available() and distributed.is_initialized()):
        distributed = None
    if group is None and distributed is None:
        return None
    if group is None or (distributed is not None and isinstance(group, distributed.ProcessGroup)):
        process_group = distributed.group.WORLD if group is None else group
        place = distributed.get_rank(process_group)
        if place < 0:
            raise ValueError(
                f"{caller}: this process is not in the group; call it on the group's ranks only."
            )
        store = distributed.distributed_c10d._get_default_store()
        ranks = distributed.get_process_group_ranks(process_group)
        return _OverStore(store, place, ranks, f"{caller}/{process_group.group_name}")
    if isinstance(group, tuple) and len(group) == 3 and hasattr(group[0], "check"):
        rank, size = integer(group[1], f"{caller}: rank"), integer(group[2], f"{caller}: size")
        if not 0 <= rank < size:
            raise ValueError(f"{caller}: rank must be at least 0 and less than size={size}, not {rank}.")
        return _OverStore(group[0], rank, range(size), caller)
    if type(group).__module__.partition(".")[0] == "mpi4py":
        world: Any = group
        store, name = _Messages(world, _TAGS[caller]), f"{caller}/{world.Get_name()}"
        return _OverStore(store, world.Get_rank(), range(world.Get_size()), name)
    if callable(group):
        return _OverFunction(group, caller)
    raise TypeError(
        f"{caller}: the group must be a process group of torch.distributed, a communicator of mpi4py, "
        f"(store, rank, size) or a function, not {group!r}."
    )


class _OverStore(Peers):
    """Every rank writes a key of a store, and reads those of all."""

    def __init__(self, store: Any, place: int, ranks: Sequence[int], name: str) -> None:
        self.own, self._ranks = ranks[place], ranks
        self._store, self._place = store, place
        self._prefix = f"accelerator_graph/{name}/{next(_rounds[name])}"

    def _gathered(self, phase: Literal["said", "read"], text: str, timeout: float) -> dict[int, str]:
        deadline, pause = time.monotonic() + timeout, 0.001
        keys = {place: f"{self._prefix}/{phase}/{place}" for place in range(len(self._ranks))}
        found: dict[int, str] = {}
        try:
            self._store.set(keys[self._place], text)
            while True:
                for place in keys.keys() - found.keys():
                    if self._store.check([keys[place]]):
                        found[place] = self._store.get(keys[place]).decode()
                left = deadline - time.monotonic()
                if len(found) == len(keys) or left <= 0:
                    return found
                time.sleep(min(pause, left))
                pause = min(pause * 2, 0.1)
        except (RuntimeError, OSError) as error:
            said = str(error).partition("\n")[0]
            raise NoAnswer(f"the group does not answer, since a rank may have ended ({said})") from error


class _Messages:
    """A store made of MPI's messages: each rank has what the others have sent to it.

    A collective of MPI would have no time limit.
    """

    def __init__(self, communicator: Any, tag: int) -> None:
        self._communicator, self._tag = communicator, tag

    def set(self, key: str, text: str) -> None:
        """Have all ranks know a text by its key."""
        _unsent[:] = [each for each in _unsent if not each.test()[0]]
        _inbox[key] = text.encode()
        for other in {*range(self._communicator.Get_size())} - {self._communicator.Get_rank()}:
            _unsent.append(self._communicator.isend((key, _inbox[key]), dest=other, tag=self._tag))

    def check(self, keys: Sequence[str]) -> bool:
        """Return True if all these texts have come."""
        while self._communicator.iprobe(tag=self._tag):
            key, data = self._communicator.recv(tag=self._tag)
            _inbox[key] = data
        return _inbox.keys() >= {*keys}

    def get(self, key: str) -> bytes:
        """Return a text that has come, once."""
        return _inbox.pop(key)


_inbox: dict[str, bytes] = {}
"""What MPI has delivered."""
_unsent: list[Any] = []
"""Messages that MPI may still send."""


class _OverFunction(Peers):
    """A function gathers the texts. It runs in a thread of its own, since nobody knows whether it ends."""

    def __init__(self, gather: Callable[[str], Sequence[str]], caller: str) -> None:
        self._gather, self._caller = gather, caller

    def _gathered(self, phase: Literal["said", "read"], text: str, timeout: float) -> dict[int, str]:
        own = f"{uuid4().hex} {text}"  # so that this rank finds itself among the others
        answer: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

        def call() -> None:
            try:
                answer.put((self._gather(own), None))
            except BaseException as error:
                answer.put((None, error))

        threading.Thread(target=call, name="accelerator_graph ranks", daemon=True).start()
        try:
            found, error = answer.get(timeout=timeout)
        except Empty:
            if phase == "read":
                return {}
            raise NoAnswer(f"the function that gathers has not returned within {timeout:g} s") from None
        if error is not None:
            raise error
        texts = [*found] if isinstance(found, Iterable) else []
        if own not in texts or not all(isinstance(each, str) for each in texts):
            raise TypeError(
                f"{self._caller}: the function must return the strings of all ranks in order, not {found!r}."
            )
        self.own, self._ranks = texts.index(own), range(len(texts))
        return {place: each.partition(" ")[2] for place, each in enumerate(texts)}


def check_seconds(value: object, subject: str) -> None:
    """Raise TypeError or ValueError if a value is not a time to wait."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{subject} must be a number, not {value!r}.")
    if not 0 < float(value) <= threading.TIMEOUT_MAX:
        raise ValueError(
            f"{subject} must be more than 0 and at most {threading.TIMEOUT_MAX:g}, not {value!r}."
        )


def named(ranks: Collection[int], among: Collection[int] = ()) -> str:
    """Return ranks in words; of many `among` which they are, those that are left out may be fewer."""
    others = {*among} - {*ranks}
    if len(among) > _MANY and others and 2 * len(others) < len(ranks):
        return f"all ranks but {numbers(sorted(others))}"
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {numbers(sorted(ranks))}"
