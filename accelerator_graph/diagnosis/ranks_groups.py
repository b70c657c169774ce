"""How the ranks of a group send each other a text, with a time limit, and without the device."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from numbers import Real
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

from .._interpreter.outside import integer
from ..errors import AcceleratorGraphError

_TAGS = {"check_ranks": 24_942, "watchdog": 24_943}
"""The tags of MPI messages: below the 32,767 that every MPI has."""
_CONFIRMATION = 10.0
"""How many seconds a rank that has heard from all waits to know that they have, too."""

_rounds: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)


class Answers(NamedTuple):
    """What the ranks of a group have sent."""

    rank: int
    """This rank, in the group."""
    size: int
    texts: dict[int, str]
    """By rank; without those from whom nothing came in time."""
    confirmed: bool = True
    """The other ranks have heard from all, too. They have not if this one was so late that they gave up."""


Exchange: TypeAlias = Callable[[str, float], Answers]
"""Sends a text to all ranks of a group, and returns theirs; waits so many seconds at most."""


class Members(NamedTuple):
    """The ranks of a process group of torch.distributed, counted in the whole program."""

    own: int
    ranks: list[int]


def has_default() -> bool:
    """Return True if there is a group of all ranks that need not be named."""
    return _distributed() is not None


def members_of(group: object) -> Members | None:
    """Return the members of a process group; None if the group is something else, and has all ranks."""
    distributed = _distributed()
    if distributed is None or not (group is None or isinstance(group, distributed.ProcessGroup)):
        return None
    world = distributed.group.WORLD if group is None else group
    return Members(distributed.get_rank(), [*distributed.get_process_group_ranks(world)])


def _distributed() -> Any:
    """Return torch.distributed if the program has initialised it, else None."""
    found: Any = sys.modules.get("torch.distributed")
    return found if found is not None and found.is_available() and found.is_initialized() else None


def own_rank(group: object) -> int:
    """Return this rank as the group tells it without an exchange; 0 if it does not."""
    if isinstance(group, tuple):
        return int(group[1])
    ask = getattr(group, "Get_rank", None)
    return 0 if ask is None else int(ask())


def check_seconds(value: object, subject: str) -> None:
    """Raise TypeError or ValueError if a value is not a time to wait."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{subject} must be a number, not {value!r}.")
    if not 0 < float(value) <= threading.TIMEOUT_MAX:
        raise ValueError(
            f"{subject} must be more than 0 and at most {threading.TIMEOUT_MAX:g}, not {value!r}."
        )


def exchange_over(group: object, caller: str) -> Exchange:
    """Return the way to exchange texts over a group; `caller` begins the messages of errors.

    Exchanges of one caller over one group belong together: the first one of each rank, the second one, ...

    Raises
    ------
    TypeError, ValueError
        The object is not a group, or this process is not in it.
    """
    distributed = _distributed()
    if group is None and distributed is None:
        raise ValueError(
            f"{caller}: torch.distributed has not been initialised, so there is no default group; pass a "
            "communicator of mpi4py, (store, rank, size), or a function that gathers from all ranks."
        )
    if group is None or (distributed is not None and isinstance(group, distributed.ProcessGroup)):
        return _over_process_group(distributed, group, caller)
    if isinstance(group, tuple) and len(group) == 3 and hasattr(group[0], "check"):
        store, rank, size = (
            group[0],
            integer(group[1], f"{caller}: rank"),
            integer(group[2], f"{caller}: size"),
        )
        if not 0 <= rank < size:
            raise ValueError(f"{caller}: rank must be at least 0 and less than size={size}, not {rank}.")
        return _over_store(store, rank, size, caller)
    if type(group).__module__.partition(".")[0] == "mpi4py":
        return _over_mpi(group, caller)
    if callable(group):
        return _over_function(group, caller)
    raise TypeError(
        f"{caller}: the group must be a process group of torch.distributed, a communicator of mpi4py, "
        f"(store, rank, size) or a function, not {group!r}."
    )


def _over_process_group(distributed: Any, group: Any, caller: str) -> Exchange:
    group = distributed.group.WORLD if group is None else group
    rank, size = distributed.get_rank(group), distributed.get_world_size(group)
    if rank < 0:
        raise ValueError(f"{caller}: this process is not in the group; call it on the group's ranks only.")
    store = distributed.distributed_c10d._get_default_store()
    return _over_store(store, rank, size, f"{caller}/{group.group_name}")


def _over_store(store: Any, rank: int, size: int, name: str) -> Exchange:
    """Every rank writes one key and reads those of all."""
    prefix = f"accelerator_graph/{name}/{next(_rounds[name])}"

    def gather(phase: str, text: str, timeout: float) -> Answers:
        store.set(f"{prefix}/{phase}/{rank}", text)
        texts: dict[int, str] = {}

        def complete() -> bool:
            for other in range(size):
                if other not in texts and store.check([f"{prefix}/{phase}/{other}"]):
                    texts[other] = store.get(f"{prefix}/{phase}/{other}").decode()
            return len(texts) == size

        _wait(complete, timeout)
        return Answers(rank, size, texts)

    def exchange(text: str, timeout: float) -> Answers:
        answers = gather("said", text, timeout)
        if len(answers.texts) < size:
            return answers
        try:
            return answers._replace(confirmed=len(gather("read", "", _CONFIRMATION).texts) == size)
        except RuntimeError:  # the rank that hosts the store has ended: it had the confirmation of all
            return answers

    return exchange


def _over_mpi(communicator: Any, caller: str) -> Exchange:
    """Every rank sends messages to each other rank. A collective of MPI has no time limit."""
    rank, size, tag = communicator.Get_rank(), communicator.Get_size(), _TAGS[caller]
    name = f"{caller}/{communicator.Get_name()}"
    number, inbox = next(_rounds[name]), _inboxes[name]

    def gather(phase: str, text: str, timeout: float) -> Answers:
        others = [each for each in range(size) if each != rank]
        sent = [communicator.isend((number, phase, text), dest=other, tag=tag) for other in others]

        def complete() -> bool:
            for other in others:
                while communicator.iprobe(source=other, tag=tag):
                    of, its_phase, said = communicator.recv(source=other, tag=tag)
                    inbox[other, of, its_phase] = said
            done = all((other, number, phase) in inbox for other in others)
            return done and all(request.test()[0] for request in sent)

        if not _wait(complete, timeout):
            _unsent.append(sent)
        texts = {each: inbox.get((each, number, phase)) for each in others}
        return Answers(rank, size, {rank: text, **{i: said for i, said in texts.items() if said is not None}})

    def exchange(text: str, timeout: float) -> Answers:
        answers = gather("said", text, timeout)
        if len(answers.texts) < size:
            return answers
        return answers._replace(confirmed=len(gather("read", "", _CONFIRMATION).texts) == size)

    return exchange


_inboxes: defaultdict[str, dict[tuple[int, int, str], str]] = defaultdict(dict)
"""What MPI has delivered: by the rank that sent it, the number of its exchange, and the phase."""
_unsent: list[object] = []
"""Messages that MPI may still send."""


def _over_function(gather: Callable[[str], Sequence[str]], caller: str) -> Exchange:
    """The function runs in a thread of its own, since nobody knows whether it ends."""

    def exchange(text: str, timeout: float) -> Answers:
        own = f"{uuid4().hex} {text}"  # so that this rank finds itself among the others
        found: list[Sequence[str]] = []
        raised: list[BaseException] = []
        heard: SimpleQueue[bool] = SimpleQueue()
        gave_up = False

        def call() -> None:
            try:
                found.append(gather(own))
                heard.put(True)
                if not gave_up:
                    found.append(gather(own))  # only then does every rank know that all have agreed
            except BaseException as error:
                raised.append(error)
                heard.put(True)

        thread = threading.Thread(target=call, name="accelerator_graph ranks", daemon=True)
        thread.start()
        with suppress(Empty):
            heard.get(timeout=timeout)
            thread.join(_CONFIRMATION)
        gave_up = True
        if raised:
            raise raised[0]
        if not found:
            raise NoAnswer(f"{caller}: the function that gathers has not returned within {timeout:g} s")
        texts = [*found[0]] if isinstance(found[0], Iterable) else []
        if own not in texts or not all(isinstance(each, str) for each in texts):
            raise TypeError(
                f"{caller}: the function must return the strings of all ranks in order, not {found[0]!r}."
            )
        said = {rank: each.partition(" ")[2] for rank, each in enumerate(texts)}
        return Answers(texts.index(own), len(texts), said, len(found) == 2)

    return exchange


def named(ranks: Collection[int]) -> str:
    """Return ranks in words."""
    numbers = sorted(ranks)
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > 2 and numbers == [*range(numbers[0], numbers[-1] + 1)]:
        return f"ranks {numbers[0]} to {numbers[-1]}"
    shown = [str(each) for each in numbers]
    return f"ranks {', '.join(shown[:-1])} and {shown[-1]}"


class NoAnswer(AcceleratorGraphError):
    """Raised when the ranks have not answered in time, and nobody can say which of them."""


def _wait(done: Callable[[], bool], timeout: float) -> bool:
    """Ask again and again until the answer is True or the time is over; return the last answer."""
    deadline, pause = time.monotonic() + timeout, 0.001
    while not done():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(pause * 2, 0.1)
    return True
