"""The rules by topic. Each rule is a method, and its docstring states the rule in a sentence."""

from __future__ import annotations

from .._assertions import showing_values

with showing_values(__name__, f"{__name__.rpartition('.')[0]}._case"):
    from .backend import BackendRules
    from .begin import BeginRules
    from .capture import CaptureRules
    from .events import EventRules, WaitingRules
    from .failures import FailureRules
    from .foreign import ForeignRules
    from .fork import ForkRules
    from .graph_events import GraphEventRules
    from .handles import HandleRules
    from .inspection import DumpRules, NodeRules
    from .interrupts import InterruptRules
    from .isolation import IsolationRules
    from .labels import LabelRules
    from .lifetime import LeakRules, LifetimeRules
    from .members import MemberRules, SignatureRules
    from .memory import AmountRules, MemoryRules
    from .node_changes import NodeChangeRules
    from .pools import PoolRules
    from .process import ProcessRules
    from .replay import ReplayRules
    from .state import StateRules
    from .streams import DeviceRules, StreamRules
    from .threads import ThreadRules
    from .timing import TimingRules
    from .updates import UpdateRules
    from .work import WorkFailureRules, WorkRules


class AllRules(
    SignatureRules,
    WorkRules,
    BackendRules,
    StreamRules,
    DeviceRules,
    EventRules,
    TimingRules,
    GraphEventRules,
    WaitingRules,
    HandleRules,
    StateRules,
    CaptureRules,
    MemberRules,
    BeginRules,
    ForkRules,
    FailureRules,
    WorkFailureRules,
    ForeignRules,
    InterruptRules,
    IsolationRules,
    ThreadRules,
    LifetimeRules,
    LeakRules,
    ProcessRules,
    ReplayRules,
    UpdateRules,
    NodeChangeRules,
    PoolRules,
    MemoryRules,
    AmountRules,
    NodeRules,
    LabelRules,
    DumpRules,
):
    """The rules of all topics."""


ALL: tuple[type, ...] = AllRules.__bases__
