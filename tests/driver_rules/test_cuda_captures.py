"""What the CUDA driver answers during captures: the rules that the backend relies on, and their neighbours.

Runs against a GPU where there is one, and against the software driver elsewhere; both must agree, and where
they don't the software driver is wrong. Every answer is that of an H200 with driver 580 (CUDA 13.0).
"""

import re

import pytest

pytestmark = pytest.mark.needs("cuda")

MODES = ("global", "thread_local", "relaxed")

# One step while stream s captures, and holds one fill and the record of event `inside`. What it answers, in
# each mode: `ok`: the capture is still active and ends well; a code: it is invalidated, and ending it answers
# 901; a code with `=`: the step is refused, and the capture is as it was.
RULES = """
step                    thread  stream s      global  thread_local  relaxed

ctx_sync                other   any           900     900           900
ctx_sync                here    any           900     900           900
ctx_device              any     any           ok      ok            ok
retain                  any     any           ok      ok            ok
mem_info                any     any           ok      ok            ok
load                    any     any           ok      ok            ok

device s                any     any           900     900           900
id s                    any     any           900     900           900
flags s                 any     any           900     900           900
ctx s                   any     any           ok      ok            ok
priority s              any     any           ok      ok            ok
info s                  any     any           ok      ok            ok
sync s                  any     any           900     900           900
query s                 any     any           900     900           900

fill s                  any     any           ok      ok            ok
copy s                  any     any           ok      ok            ok
kernel s                any     any           ok      ok            ok
fill a                  any     any           ok      ok            ok
copy a                  any     any           ok      ok            ok
kernel a                any     any           ok      ok            ok
fill k                  any     any           ok      ok            ok
fill own                any     any           ok      ok            ok

callback s              any     any           900     900           900
callback a              any     any           ok      ok            ok

fill legacy             any     blocking      906     906           906
fill legacy             any     non-blocking  ok      ok            ok
fill null               any     blocking      906     906           906
fill null               any     non-blocking  ok      ok            ok
copy legacy             any     blocking      906     906           906
copy legacy             any     non-blocking  ok      ok            ok
kernel legacy           any     blocking      906     906           906
kernel legacy           any     non-blocking  ok      ok            ok
fill_now                any     blocking      906     906           906
fill_now                any     non-blocking  ok      ok            ok
read_now                other   blocking      906     906           906
read_now                other   non-blocking  ok      ok            ok
read_now                here    blocking      906     906           906
read_now                here    non-blocking  ok      ok            ok
write_now               any     blocking      906     906           906
write_now               any     non-blocking  ok      ok            ok
launch legacy           any     blocking      906     906           906
launch legacy           any     non-blocking  ok      ok            ok
record e legacy         any     blocking      906     906           906
record e legacy         any     non-blocking  ok      ok            ok
wait legacy outside     any     blocking      906     906           906
wait legacy outside     any     non-blocking  ok      ok            ok
sync legacy             any     blocking      906     906           906
sync legacy             here    non-blocking  900     900           ok
sync legacy             other   non-blocking  900     ok            ok
query legacy            any     blocking      906     906           906
query legacy            here    non-blocking  900     900           ok
query legacy            other   non-blocking  900     ok            ok
info legacy             any     blocking      906=    906=          906=
info legacy             any     non-blocking  ok      ok            ok
flags legacy            any     blocking      906     906           906
flags legacy            any     non-blocking  ok      ok            ok

sync a                  other   non-blocking  900     ok            ok
sync a                  here    non-blocking  900     900           ok
sync a                  other   blocking      900     ok            ok
sync a                  here    blocking      900     900           ok
query a                 other   any           900     ok            ok
query a                 here    any           900     900           ok
event_query outside     other   any           900     ok            ok
event_query outside     here    any           900     900           ok
event_query fresh       other   any           900     ok            ok
event_query fresh       here    any           900     900           ok
event_sync outside      other   any           900     ok            ok
event_sync outside      here    any           900     900           ok
event_query inside      here    any           907     907           907
event_query inside      other   any           907     907           907
event_sync inside       any     any           907     907           907

alloc                   other   non-blocking  900     ok            ok
alloc                   here    non-blocking  900     900           ok
alloc                   other   blocking      900     ok            ok
alloc                   here    blocking      900     900           ok
free                    other   any           900     ok            ok
free                    here    any           900     900           ok
alloc_host              other   any           900     ok            ok
alloc_host              here    any           900     900           ok
alloc_managed           other   any           900     ok            ok
alloc_managed           here    any           900     900           ok
pointer                 any     any           ok      ok            ok
pool                    any     any           ok      ok            ok
pool_trim               other   any           900     ok            ok
pool_trim               here    any           900     900           ok
alloc_on s              here    any           ok      ok            ok
alloc_on a              other   any           900     ok            ok
alloc_on a              here    any           900     900           ok

create                  here    any           ok      ok            ok
create                  other   any           ok      ok            ok
destroy b               here    any           ok      ok            ok
destroy b               other   any           ok      ok            ok
event_create            here    any           ok      ok            ok
event_create            other   any           ok      ok            ok
event_destroy inside    here    any           ok      ok            ok
event_destroy inside    other   any           ok      ok            ok
event_destroy outside   any     any           ok      ok            ok
record_with 0 e s       any     any           ok      ok            ok
record_with 2 e s       any     any           1=      1=            1=
record_with 1 e s       any     any           ok      ok            ok
record_with 1 inside s  any     any           ok      ok            ok
record_with 1 e a       any     any           401=    401=          401=
record_with 1 e legacy  any     blocking      906     906           906
record_with 1 e legacy  any     non-blocking  401=    401=          401=
wait_with 1 s outside   any     any           ok      ok            ok
wait_with 1 s fresh     any     any           ok      ok            ok
wait_with 1 s inside    any     any           ok      ok            ok
wait_with 1 a outside   any     any           401=    401=          401=
wait_with 2 s outside   any     any           1=      1=            1=
elapsed outside outside  any    any           400=    400=          400=
wait s outside          here    any           905     905           905
wait s outside          other   any           905     905           905
wait s fresh            any     any           ok      ok            ok
wait s inside           any     any           ok      ok            ok
wait a inside           any     any           ok      ok            ok
wait legacy inside      any     any           906     906           906
begin s                 here    any           401=    401=          401=
begin s                 other   any           401=    401=          401=
add_graph s             any     any           ok      ok            ok
add_record s e          any     any           ok      ok            ok
add_wait s outside      any     any           ok      ok            ok
add_wait s fresh        any     any           ok      ok            ok

instantiate             here    any           900     900           ok
instantiate             other   any           900     ok            ok
upload a                any     any           ok      ok            ok
upload s                any     any           900     900           900
launch a                here    non-blocking  ok      ok            ok
launch a                other   non-blocking  ok      ok            ok
launch a                any     blocking      ok      ok            ok
launch s                here    any           900     900           900
launch s                other   any           900     900           900
graph_destroy           here    any           ok      ok            ok
graph_destroy           other   any           ok      ok            ok
exec_destroy            other   any           900     ok            ok
exec_destroy            here    any           900     900           ok
nodes                   any     any           ok      ok            ok
update                  any     any           ok      ok            ok
clone                   any     any           ok      ok            ok
build                   any     any           ok      ok            ok
graph_memory            any     any           ok      ok            ok
trim                    any     any           ok      ok            ok
"""

# The same, after the thread that takes the step has exchanged its mode for `relaxed`.
RELAXED_RULES = """
step                    thread  stream s      global  thread_local  relaxed

alloc                   here    any           ok      ok            ok
alloc                   other   any           ok      ok            ok
free                    any     any           ok      ok            ok
instantiate             any     any           ok      ok            ok
upload a                any     any           ok      ok            ok
exec_destroy            any     any           ok      ok            ok
update                  any     any           ok      ok            ok
trim                    any     any           ok      ok            ok
sync a                  any     any           ok      ok            ok
query a                 any     any           ok      ok            ok
event_query outside     any     any           ok      ok            ok
event_query inside      any     any           907     907           907
sync s                  any     any           900     900           900
upload s                any     any           900     900           900
launch s                any     any           900     900           900
ctx_sync                any     any           900     900           900
fill legacy             any     blocking      906     906           906
"""

# On a thread without a context, with no capture: what the step answers.
BARE_RULES = """
launch a = ok         status a = none       info a = ok
launch own = 201      create = 201          ctx_device = 201
ctx a = ok            priority a = ok       sync a = ok           query a = ok          id a = ok
fill a = ok           copy a = ok           kernel a = ok         begin a = ok          device a = ok
record outside a = ok                       wait a outside = ok   event_query outside = ok
event_create = 201    event_destroy outside = ok                  alloc = 201           free = ok
mem_info = 201        ctx_sync = 201        instantiate = 201     load = 201            retain = ok
exec_destroy = ok     graph_destroy = ok    destroy b = ok        upload a = ok         nodes = ok
begin own = 201       sync own = 201        status own = 201      fill legacy = 201     sync legacy = 201
exchange relaxed = ok   update = ok           clone = ok            build = ok            graph_memory = ok
trim = ok
"""

# Steps one after another; what one answers, if not `ok`, follows it. In every mode, if not said otherwise.
FORK = "begin s; fill s; record e s; wait a e"
SCRIPTS = """
ending without a capture
    end s = 401; status s = none
ending twice
    begin s; end s; end s = 401
beginning twice
    begin s; fill s; begin s = 401; status s = active; end s
beginning again after the end
    begin s; fill s; end s; begin s; end s; fill s; sync s
beginning on the legacy stream
    begin legacy = 900; begin null = 900; fill legacy; sync legacy
the per-thread stream
    begin own; fill own; status own = active; end own; status own = none
waiting for the per-thread stream
    begin own; sync own = 900; end own = 901; sync own
the per-thread streams are blocking
    begin own; fill legacy = 906; status own = invalidated
every thread has its own
    begin own; other: status own = none; other: begin own; other: end own; end own
breaking it twice
    begin s; sync s = 900; sync s = 900; query s = 900; status s = invalidated; end s = 901
the stream after a broken capture
    begin s; sync s = 900; end s = 901; status s = none; fill s; sync s; begin s; fill s; end s
enqueueing into a broken capture
    begin s; fill s; sync s = 900; fill s = 901; end s = 901
copying into a broken capture
    begin s; sync s = 900; copy s = 901; kernel s = 901; alloc_on s = 901
events of a broken capture
    begin s; record e s; sync s = 900; record f s = 901; wait s e = 901; wait a e = 1; status a = none;
    event_query e = 1
beginning in a broken capture
    begin s; sync s = 900; begin s = 401; status s = invalidated
launching into a broken capture
    begin s; sync s = 900; launch s = 900; upload s = 900; end s = 901
asking in a broken capture
    begin s; sync s = 900; device s = 900; flags s = 900; info s; priority s = 901

# forks and joins
fork and join
    fork; status a = active; fill a; record f a; wait s f; fill s; end s; status a = none
a join without work after it
    fork; fill a; record f a; wait s f; end s
no join
    fork; fill a; end s = 904; status s = none; status a = none; fill a; sync a; fill s; sync s
no join, but no work
    fork; end s; status a = none; fill a; sync a
work after the join
    fork; fill a; record f a; wait s f; fill a; end s = 904
a join by way of another stream
    fork; fill a; record f a; wait b f; record g b; wait s g; end s
a join of a third stream only
    fork; wait b e; fill a; fill b; record f b; wait s f; end s = 904
a join into a join
    fork; fill a; record f a; wait b f; fill b; record g b; wait s g; end s
the empty fork of a fork
    fork; fill a; record f a; wait b f; wait s f; end s; status b = none
a fork from an empty capture
    begin s; record e s; wait a e; status a = active; fill a; record f a; wait s f; end s
a blocking stream joins
    fork; wait k e; status k = active; fill legacy = 906; status s = invalidated
waiting for a forked stream
    fork; sync a = 900; status s = invalidated; status a = invalidated; end s = 901; status a = none
ending the fork
    fork; end a = 903; status s = invalidated; end s = 901; status a = none
beginning on the fork
    fork; begin a = 401; status s = active; end s
unjoined and broken
    fork; fill a; sync s = 900; end s = 901; status a = none
an event recorded twice
    fork; fill a; record e a; wait s e; end s
an event recorded outside after all
    fork; fill a; record f a; record f b; wait s f = 905; end s = 901
an event that is destroyed
    fork; event_destroy e; fill a; record f a; wait s f; event_destroy f; end s

# external events
an external event joins nothing
    begin s; fill s; record_with 1 e s; wait a e; status a = none; wait s e; fill s; end s
an external event of another capture
    begin s; begin a; record_with 1 e s; wait_with 1 a e; fill a; record_with 1 f a; wait_with 1 s f;
    status s = active; status a = active; end a; end s
an external event of a capture that has ended
    begin s; record_with 1 e s; end s; event_query e; event_sync e; wait a e; sync a
asking for an external event of a capture [relaxed]
    begin s; record_with 1 e s; event_query e; event_sync e; status s = active; end s
nodes that are added to two captures
    begin s; begin a; fill s; add_record s e; add_wait a e; fill a; add_record a f; add_wait s f; add_graph s;
    status s = active; status a = active; end a; end s; query b
external events in a broken capture
    begin s; sync s = 900; record_with 1 e s = 901; wait_with 1 s outside = 901; end s = 901

# events of other captures
events of another capture
    begin s; begin a; fill a; record e a; wait s e = 902; status s = invalidated; status a = invalidated;
    end s = 901; end a = 901
events of a capture that has ended
    begin a; fill a; record e a; end a; wait s e = 1; begin s; wait s e = 1; status s = invalidated;
    end s = 901
asking for an event of an ended capture
    begin a; fill a; record e a; end a; event_query e = 1; event_sync e = 1
an event is recorded anew
    begin a; fill a; record e a; end a; record e a; event_sync e; event_query e; wait s e

# threads
a thread that has ended [global thread_local]
    gone: begin s; status s = active; end s = 908; status s = none
a thread that has ended, relaxed [relaxed]
    gone: begin s; fill s; end s; status s = none
ended by another thread [global thread_local]
    begin s; fill s; other: end s = 908; status s = none; end s = 401
ended by another thread, relaxed [relaxed]
    begin s; fill s; other: end s; status s = none; end s = 401
a broken one ended by another thread
    begin s; sync s = 900; other: end s = 901; status s = none
an unjoined one ended by another thread [global thread_local]
    fork; fill a; other: end s = 904; status a = none
enqueued by another thread
    begin s; other: fill s; fill s; end s
two captures, global [global]
    begin s; other: begin a; alloc = 900; status s = invalidated; status a = invalidated
two captures, thread_local [thread_local]
    begin s; other: begin a; alloc = 900; status s = invalidated; status a = active; other: end a
two captures, relaxed [relaxed]
    begin s; other: begin a; alloc; status s = active; other: end a; end s
two captures of one thread [global thread_local]
    begin s; begin a thread_local; alloc = 900; status a = invalidated; status s = invalidated
another thread's mode
    begin s; other: exchange thread_local; other: alloc; status s = active; end s
the own mode doesn't loosen the capture's [global thread_local]
    begin s; exchange thread_local; alloc = 900; end s = 901
a capture begun in relaxed mode [global thread_local]
    exchange relaxed; begin s; alloc; exchange global; alloc = 900; end s = 901
nothing is forbidden after the end [global thread_local]
    begin s; end s; alloc; sync a; begin s; sync s = 900; alloc = 900; end s = 901; alloc

# other dependencies
forgetting what was captured
    begin s; forget s; fill s; forget s; fill s; end s
forgetting it without a capture
    forget s = 401; begin s; sync s = 900; forget s = 901; end s = 901

# streams and graphs that go away
destroying the capturing stream
    begin a; fill a; destroy a; alloc; sync b; ctx_sync
destroying the forked stream
    fork; fill a; destroy a; status s = active; end s = 904
destroying the empty forked stream
    fork; destroy a; status s = active; end s
destroying an executable that runs
    launch a; launch b; exec_destroy; graph_destroy; sync a; sync b
updating an executable that runs
    launch a; update; launch a; launch b; update; sync a; sync b
updating with a clone of a graph that is gone
    clone; graph_destroy; update clone; launch a; sync a
updating an executable while it is launched into a broken capture
    begin s; sync s = 900; launch s = 900; end s = 901; update; launch a; sync a
memory in a capture
    begin s; alloc_on s; free_on s; end s
memory of a capture is no other's [global thread_local]
    begin s; alloc_on s; free_on a = 900; status s = invalidated; end s = 901
memory of a capture is no other's, relaxed [relaxed]
    begin s; alloc_on s; free_on a = 1; status s = active; end s
"""


def table(text, relaxed):
    """The rows of a table: the step, the mode, whether stream s is blocking, and what is expected."""
    for line in text.strip().splitlines()[1:]:
        if not line.strip():
            continue
        step, thread, stream, *cells = re.split(r"\s{2,}", line.strip())
        for where in ("", "other:") if thread == "any" else ("other:",) if thread == "other" else ("",):
            for blocking in (False, True) if stream == "any" else (stream == "blocking",):
                for mode, cell in zip(MODES, cells, strict=True):
                    name = f"{where}{step}-{mode}-{'blocking' if blocking else 'non-blocking'}"
                    first = f"{where}exchange relaxed" if relaxed else ""
                    case = first, f"{where}{step}", mode, blocking, cell
                    yield pytest.param(*case, id=f"{name}{'-relaxed' * relaxed}")


def expected(cell):
    """What step, status and end answer."""
    if cell == "ok":
        return 0, "active", 0
    code = int(cell.rstrip("="))
    return (code, "active", 0) if cell.endswith("=") else (code, "invalidated", 901)


@pytest.mark.parametrize(
    ("first", "step", "mode", "blocking", "cell"), [*table(RULES, False), *table(RELAXED_RULES, True)]
)
def test_a_step_during_a_capture(first, step, mode, blocking, cell):
    from driver_rules.cuda_scene import scene

    with scene(mode, blocking) as do:
        for each in ("begin s", "fill s", "record inside s", *filter(None, [first])):
            assert do(each) == 0
        assert (do(step), do("status s"), do("end s")) == expected(cell)


def steps(script):
    """The steps of a script, and what each answers."""
    for part in script.replace("fork;", f"{FORK};").split(";"):
        step, _, answer = part.partition("=")
        answer = answer.strip() or "ok"
        yield step.strip(), 0 if answer == "ok" else int(answer) if answer.isdecimal() else answer


def scripts():
    for title, modes, script in re.findall(
        r"^(\w[^[\n]*?)(?: \[([^]]*)\])?\n((?: +.*\n)+)", SCRIPTS, re.MULTILINE
    ):
        for mode in modes.split() or MODES:
            yield pytest.param(" ".join(script.split()), mode, id=f"{title.replace(' ', '_')}-{mode}")


@pytest.mark.parametrize(("script", "mode"), [*scripts()])
def test_steps_one_after_another(script, mode):
    from driver_rules.cuda_scene import scene

    wanted = list(steps(script))
    with scene(mode, apart="destroy a" in script) as do:
        assert [(step, do(step)) for step, _ in wanted] == wanted


def bare():
    for line in BARE_RULES.strip().splitlines():
        for step, answer in re.findall(r"(\w+(?: \w+)*) = (\w+)", line):
            yield pytest.param(step, answer, id=step)


@pytest.mark.parametrize(("step", "answer"), [*bare()])
def test_a_step_on_a_thread_without_a_context(step, answer):
    from driver_rules.cuda_scene import scene

    with scene("thread_local") as do:
        assert do(f"bare:{step}") == (0 if answer == "ok" else int(answer) if answer.isdecimal() else answer)
