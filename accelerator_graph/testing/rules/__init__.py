"""The rules by topic. Each rule is a method, and its docstring states the rule in a sentence."""

from __future__ import annotations

from .._assertions import showing_values

with showing_values(__name__, f"{__name__.rpartition('.')[0]}._case"):
    from .amounts import AmountRules
    from .backend import BackendRules
    from .begin import BeginRules
    from .capture import CaptureRules
    from .devices import DeviceRules
    from .events import EventRules
    from .failures import FailureRules
    from .foreign import ForeignRules
    from .fork import ForkRules
    from .graph_events import GraphEventRules
    from .handles import HandleRules
    from .inspection import DumpRules, NodeRules
    from .interrupts import InterruptRules
    from .isolation import IsolationRules
    from .labels import LabelRules
    from .leaks import LeakRules
    from .lifetime import LifetimeRules
    from .members import MemberRules
    from .memory import MemoryRules
    from .node_changes import NodeChangeRules
    from .pools import PoolRules
    from .process import ProcessRules
    from .replay import ReplayRules
    from .signatures import SignatureRules
    from .state import StateRules
    from .streams import StreamRules
    from .threads import ThreadRules
    from .timing import TimingRules
    from .updates import UpdateRules
    from .waiting import WaitingRules
    from .work import WorkRules
    from .work_failures import WorkFailureRules


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
