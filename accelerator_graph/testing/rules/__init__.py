"""The rules by topic. Each rule is a method, and its docstring states the rule in a sentence."""

from __future__ import annotations

from .backend import BackendRules
from .begin import BeginRules
from .bind import BindRules
from .capture import CaptureRules
from .dump import DumpRules
from .events import EventRules
from .failures import FailureRules
from .foreign import ForeignRules
from .fork import ForkRules
from .handles import HandleRules
from .interrupts import InterruptRules
from .isolation import IsolationRules
from .lifetime import LifetimeRules
from .members import MemberRules
from .memory import MemoryRules
from .nodes import NodeRules
from .pools import PoolRules
from .process import ProcessRules
from .replay import ReplayRules
from .state import StateRules
from .streams import StreamRules
from .threads import ThreadRules
from .work import WorkRules

ALL = (
    WorkRules,
    BackendRules,
    StreamRules,
    EventRules,
    HandleRules,
    StateRules,
    CaptureRules,
    MemberRules,
    BeginRules,
    ForkRules,
    FailureRules,
    ForeignRules,
    InterruptRules,
    IsolationRules,
    ThreadRules,
    LifetimeRules,
    ProcessRules,
    ReplayRules,
    BindRules,
    PoolRules,
    MemoryRules,
    NodeRules,
    DumpRules,
)
