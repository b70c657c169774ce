"""Do the graphs of all ranks fit together, before anybody replays them?"""

from __future__ import annotations

from typing import Any

from .._core import capture_table
from .._interpreter.integers import boolean
from ..api import Graph
from ..errors import GraphStateError, RanksDisagreeError
from .ranks_comparison import compare
from .ranks_groups import NoAnswer, check_seconds, exchange_over, members_of
from .ranks_report import RankRecord, RanksReport, from_text, named, to_text


def check_ranks(
    graph: Graph | BaseException | None,
    group: Any = None,
    *,
    timeout: float = 60.0,
    strict: bool = False,
) -> RanksReport:
    """Compare the graphs of all ranks before the first replay, and raise on every rank if they don't fit.

    What has to agree is the order of collectives in each group: their kinds, types, sizes and roots, as they
    were asked for in the capture (`Graph.collectives`). Each send needs its receive. Everything else, such as
    kernels and sizes, is a note in the report, since pipeline and expert ranks rightly differ.

    Every rank of the group has to call this, also one whose capture failed. Nothing runs on the device.

    Parameters
    ----------
    graph : Graph, BaseException or None
        This rank's graph. If there is none, the exception of its capture, or None.
    group
        A process group of torch.distributed, by default the one of all ranks; a communicator of mpi4py;
        ``(store, rank, size)`` with a store of torch.distributed; or a function that takes this rank's string
        and returns those of all ranks in their order. The function runs in a thread of its own.
    timeout : float
        How many seconds to wait for the other ranks.
    strict : bool
        Everything has to agree. Needs graphs made with ``keep_graph=True``.

    Returns
    -------
    RanksReport
        The same on every rank, but for `rank`.

    Raises
    ------
    RanksDisagreeError
        The graphs don't fit together, a rank has none, or a rank did not call in time.
    GraphStateError
        This thread is capturing.
    TypeError, ValueError
        An argument is of the wrong type or value.
    """
    if graph is not None and not isinstance(graph, Graph | BaseException):
        raise TypeError(f"check_ranks: the graph must be a Graph, an exception or None, not {graph!r}.")
    if capture_table.thread.unfinished:
        raise GraphStateError("check_ranks: this thread is capturing; call it after the capture has ended.")
    check_seconds(timeout, "check_ranks: timeout")
    strict = boolean(strict, "check_ranks: strict")
    exchange = exchange_over(group, "check_ranks")
    members = members_of(group)
    own = RankRecord.of(-1 if members is None else members.own, graph)
    try:
        answers = exchange(to_text(own), timeout)
    except NoAnswer as error:
        raise _error(RanksReport(-1, 0, (str(error),), (), (own,))) from None
    ranks = [*range(answers.size)] if members is None else members.ranks
    records = {ranks[place]: from_text(text, ranks[place]) for place, text in sorted(answers.texts.items())}
    found = compare(records, ranks, strict)
    silent = [
        f"{named([rank])} has not called check_ranks within {timeout:g} s"
        for place, rank in enumerate(ranks)
        if place not in answers.texts
    ]
    if not answers.confirmed:
        silent.append("not every rank has heard from all in time: one has called too late, or given up")
    report = RanksReport(
        ranks[answers.rank],
        answers.size,
        (*silent, *found.differences),
        tuple(found.notes),
        tuple(records.values()),
    )
    if report.differences:
        raise _error(report)
    return report


def _error(report: RanksReport) -> RanksDisagreeError:
    first, *more = report.differences
    others = f" (and {len(more)} more, in the report)" if more else ""
    return RanksDisagreeError(
        f"the ranks disagree: {first.removeprefix('check_ranks: ')}{others}; replay on none of them.",
        report=report,
    )
