"""The rules by topic. Each rule is a method, and its docstring states the rule in a sentence."""

from __future__ import annotations

from .._failure import showing_values

with showing_values(__name__, f"{__name__.rpartition('.')[0]}._case"):
    from .backend import BackendRules, ProcessRules
    from .breaks import BreakRules
    from .capture import BeginRules, CaptureRules
    from .control import ControlRules
    from .events import EventRules, ExternalEventRules, ForkRules, WaitingRules
    from .failures import FailureRules
    from .inspection import DumpRules, LabelRules, NodeRules
    from .isolation import ForeignRules, IsolationRules
    from .lifetime import LeakRules, LifetimeRules
    from .members import MemberRules, SignatureRules
    from .memory import AmountRules, MemoryRules, PoolRules
    from .replay import ReplayRules
    from .state import StateRules
    from .streams import DeviceRules, HandleRules, StreamRules
    from .threads import InterruptRules, NestedCallRules, ThreadRules
    from .timing import GraphEventRules, TimingRules
    from .updates import NodeChangeRules, UpdateRules
    from .work import WorkFailureRules, WorkRules


class AllRules(
    SignatureRules,
    WorkRules,
    BackendRules,
    StreamRules,
    DeviceRules,
    EventRules,
    ExternalEventRules,
    TimingRules,
    GraphEventRules,
    WaitingRules,
    HandleRules,
    MemberRules,
    NodeRules,
    StateRules,
    CaptureRules,
    BeginRules,
    ForkRules,
    FailureRules,
    WorkFailureRules,
    ForeignRules,
    InterruptRules,
    NestedCallRules,
    IsolationRules,
    ThreadRules,
    LifetimeRules,
    LeakRules,
    ProcessRules,
    ReplayRules,
    BreakRules,
    ControlRules,
    UpdateRules,
    NodeChangeRules,
    PoolRules,
    MemoryRules,
    AmountRules,
    LabelRules,
    DumpRules,
):
    """The rules of all topics: first those of single methods, then those of what the library does with them.

    One fault breaks rules of both kinds, and the first say more about it.
    """


ALL: tuple[type, ...] = AllRules.__bases__
