"""What the runtime answers while a queue captures, call by call, and what the plug-in relies on.

Asked of Intel's runtime for the CPU. Each row is a step of `scene`, which says what its queues and events
are, and the answer. `+kernel`: it was recorded as a node of that kind, in the graph of s or in the one named.
`runs`: it ran at once. `refused`: an error, with the code of ``sycl::errc`` or dpctl's exception. `nothing`:
none of these. Only its end and the deletion of its graph stop the capture of s: nothing breaks it. A step
that ends the process has a process of its own, and the signal is the answer.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SCENE = Path(__file__).with_name("scene.py")

RULES = """
synchronize s                               refused 8
query s                                     nothing
synchronize a                               nothing
query a                                     nothing
begin s                                     refused 8
begin a                                     a captures
end twice                                   s stops
memset s                                    +memset
memset s, no bytes                          +memset
memset a                                    runs
finalize                                    nothing
replay s                                    +graph
replay a                                    runs
delete executable                           nothing
delete the graph                            s stops
wait s inside                               +barrier
wait a inside                               +barrier a captures
wait b inside                               refused 8
wait s outside                              refused 8
wait s before                               refused 8
wait s other                                refused 8
wait s ended                                refused 8
wait a ended                                +ended:barrier a captures
wait a outside                              nothing
wait s latest of a, which joined            refused 8 +barrier a captures
wait s latest of a, which joined by name    +barrier +barrier a captures
latest event of s                           nothing
latest event of a                           nothing
latest node of s                            nothing
latest node of a                            SIGSEGV

dpctl wait s                                SIGABRT
dpctl wait a                                nothing
dpctl submit s                              +kernel
dpctl submit_async s                        +kernel
dpctl submit_async a                        runs
dpctl submit_async s after inside           +kernel
dpctl submit_async s after outside          refused SyclKernelSubmitError
dpctl submit_async a after inside           +kernel a captures
dpctl submit_barrier s                      +barrier
dpctl submit_barrier s after outside        refused SyclKernelSubmitError
dpctl submit_barrier a after inside         +barrier a captures
dpctl submit_barrier a after ended          +ended:barrier a captures
dpctl memcpy s                              +memcpy
dpctl memcpy_async s                        +memcpy
dpctl memcpy a                              runs
dpctl prefetch s                            +prefetch
dpctl mem_advise s                          +memadvise
dpctl keep_args_alive s                     +host
dpctl event wait inside                     nothing
dpctl event wait outside                    nothing
dpctl event status inside                   nothing
dpctl memory copy_to_host s                 +memcpy
dpctl memory copy_from_host s               +memcpy
dpctl memory memset s                       +memset
dpctl memory new s                          nothing
dpctl memory free s                         nothing
dpctl memory free, in use by a kernel       nothing
dpctl memory free, in use by a replay       SIGSEGV
dpctl program s                             nothing
"""

ROWS = dict(re.split(r" {2,}", line, maxsplit=1) for line in RULES.splitlines() if line)
FATAL = [step for step, answer in ROWS.items() if answer.startswith("SIG")]


def run(*steps: str) -> tuple[dict[str, str], str]:
    """Return the answers of a new process, and how it ended."""
    done = subprocess.run(
        [sys.executable, SCENE, *steps], capture_output=True, text=True, timeout=120, check=False
    )
    answers = dict(json.loads(line) for line in done.stdout.splitlines())
    signals = {-6: "SIGABRT", -11: "SIGSEGV"}
    end = signals.get(done.returncode, f"exit status {done.returncode}")
    return answers, end if done.returncode in signals else f"{end}: {done.stderr[-2000:]}"


@cache
def answers_of_the_rest() -> tuple[dict[str, str], str]:
    return run(*(step for step in ROWS if step not in FATAL))


@pytest.mark.parametrize("step", [step for step in ROWS if step not in FATAL])
def test_rule(step: str) -> None:
    answers, end = answers_of_the_rest()
    assert step in answers, f"the process ended before: {end}"
    assert answers[step] == ROWS[step]


@pytest.mark.parametrize("step", FATAL)
def test_rule_that_ends_the_process(step: str) -> None:
    answers, end = run(step)
    assert answers == {}
    assert end == ROWS[step]


def test_every_step_has_a_rule() -> None:
    from scene import STEPS

    assert list(ROWS) == list(STEPS)
