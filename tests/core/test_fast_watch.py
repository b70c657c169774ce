"""The watch over a capture by itself: what it asks, what it notes, and what it leaves to Python."""

import contextlib
import ctypes
import dis
import gc
import sys
import threading
import weakref

import pytest

from core.fast_bench import Background
from threads import in_thread

pytest_plugins = ["core.fast_fixtures"]

STATUS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
STREAM, ACTIVE = 1 << 40, 3
MONITORING = sys.version_info >= (3, 12)
only_monitoring = pytest.mark.needs("monitoring")
only_tracing = pytest.mark.needs("tracing")


class Driver:
    """Two functions in C that answer for a stream."""

    def __init__(self):
        self.state, self.code, self.dead = ACTIVE, 0, 0
        self.asked = []
        self.functions = STATUS(self.status), STATUS(self.alive)
        self.addresses = [ctypes.cast(each, ctypes.c_void_p).value for each in self.functions]

    def status(self, stream, place):
        self.asked.append("status")
        if self.state is not None:
            place[0] = self.state if stream == STREAM else 0
        return self.code

    def alive(self, stream, place):
        self.asked.append("alive")
        place[0] = ACTIVE
        return self.dead


class Scene:
    """A watch, with what it was made of."""

    def __init__(self, fast, driver=None, **other):
        self.last, self.kinds, self.python, self.going = {}, {}, [], True
        self.name = "names"

        def function(name):
            return lambda *args: self.python.append((name, *args))

        status, alive = (0, 0) if driver is None else driver.addresses
        given = {
            "ask": lambda: self.going,
            "status": status,
            "alive": alive,
            "stream": STREAM,
            "active": ACTIVE,
            "last": self.last,
            "kinds": self.kinds,
            "kind_of": lambda file: 1 if file.startswith("unwatched") else 2 if file == "passive" else 0,
            "waits": frozenset(["waits"]),
            "waits_in_c": frozenset(["sleep", "index"]),
            "pure": (len,),
            "after_call": None,
            "disable": "disable",
            "functions": tuple(map(function, ("line", "return", "c", "raise")[: 4 if MONITORING else 1])),
        }
        self.watch = fast.Watch(**given | other)


def code_of(file, name="f"):
    return compile(f"def {name}():\n    return 1\n", file, "exec").co_consts[0]


HERE = code_of("here")


def traced(scene, work):
    """Call a function with all its events; return what Python was left of them."""
    try:
        scene.watch.trace_calls()
        scene.watch.trace_lines()
        work()
    finally:
        sys.setprofile(None)
        sys.settrace(None)
    return [each for each in scene.python if each[1].f_code.co_filename == __file__]


@pytest.fixture
def driver():
    return Driver()


@pytest.fixture
def scene(fast, driver):
    return Scene(fast, driver)


# ---- as callbacks --------------------------------------------------------------------------------


@only_monitoring
class TestEvents:
    def test_notes_where_the_capture_still_went_on(self, scene, driver):
        me = threading.get_ident()
        assert scene.watch.line(HERE, 7) is None
        assert scene.last == {me: (HERE, 7, True)}
        assert scene.watch.c_returns(HERE, 4, abs, 1) is None
        assert scene.last == {me: (HERE, 4, False)}
        assert scene.watch.raises(HERE, 4, KeyError()) is None
        assert scene.watch.python_returns(HERE, 4, None) is None
        code, offset, is_line = scene.last[me]
        assert not is_line
        assert code is sys._getframe(1).f_code
        assert offset == sys._getframe(1).f_lasti
        assert driver.asked == ["alive", "status"] * 4
        assert scene.python == []

    def test_a_thread_has_a_moment_of_its_own(self, scene):
        scene.watch.line(HERE, 1)
        other = Background(lambda: scene.watch.line(HERE, 2))
        other.join()
        assert sorted(moment[1] for moment in scene.last.values()) == [1, 2]

    @pytest.mark.parametrize(
        "answer", [("state", 2), ("state", 0), ("state", None), ("code", 1), ("dead", 1)]
    )
    def test_any_other_answer_is_left_to_python(self, scene, driver, answer):
        setattr(driver, *answer)
        error = KeyError()
        scene.watch.line(HERE, 7)
        scene.watch.python_returns(HERE, 4, None)
        scene.watch.c_returns(HERE, 4, abs, 1)
        scene.watch.raises(HERE, 4, error)
        assert scene.python == [
            ("line", HERE, 7),
            ("return", HERE, 4, None),
            ("c", HERE, 4, abs, 1),
            ("raise", HERE, 4, error),
        ]
        assert scene.last == {}

    def test_asks_python_if_the_driver_has_no_function(self, fast):
        scene = Scene(fast)
        scene.watch.line(HERE, 1)
        scene.going = False
        scene.watch.line(HERE, 2)
        assert [each[1] for each in scene.last.values()] == [1]
        assert scene.python == [("line", HERE, 2)]

    def test_asks_the_driver_no_more_once_it_is_closed(self, scene, driver):
        scene.watch.close()
        scene.watch.line(HERE, 1)
        assert driver.asked == []
        assert scene.python == [("line", HERE, 1)]

    @pytest.mark.parametrize("file", ["unwatched.py", "passive"])
    def test_disables_what_is_not_watched(self, scene, driver, file):
        code = code_of(file)
        assert scene.watch.line(code, 1) == scene.watch.python_returns(code, 4, 1) == "disable"
        scene.watch.c_returns(code, 4, abs, 1)
        assert driver.asked == ([] if file == "passive" else ["alive", "status"])
        assert scene.kinds == {file: 2 if file == "passive" else 1}

    def test_disables_only_the_import_of_an_installed_file(self, fast, driver):
        scene = Scene(fast, driver, kind_of=lambda file: 3)
        assert scene.watch.line(compile("1", "installed.py", "exec"), 1) == "disable"
        assert scene.watch.line(code_of("installed.py"), 1) is None

    def test_leaves_waits_to_python(self, scene, driver):
        import time

        waits = code_of("here", "waits")
        scene.watch.python_returns(waits, 4, None)
        scene.watch.c_returns(HERE, 4, time.sleep, 0)
        scene.watch.c_returns(HERE, 4, list.index, [])
        assert scene.python == [
            ("return", waits, 4, None),
            ("c", HERE, 4, time.sleep, 0),
            ("c", HERE, 4, list.index, []),
        ]
        assert driver.asked == []

    def test_pure_functions_are_not_asked_about(self, scene, driver):
        scene.watch.c_returns(HERE, 4, len, [])
        assert driver.asked == []
        assert scene.last == {}

    def test_tells_of_calls_on_the_thread_that_captures(self, fast, driver):
        told = []
        scene = Scene(fast, driver, after_call=lambda *args: told.append(args))
        scene.watch.c_returns(HERE, 4, abs, -1)
        Background(lambda: scene.watch.c_returns(HERE, 4, abs, -2)).join()
        assert told == [(abs, -1)]

    def test_a_function_without_a_name_is_no_wait(self, fast, driver):
        class Function:
            error = AttributeError

            def __getattr__(self, name):
                raise self.error

        scene, function = Scene(fast, driver), Function()
        assert scene.watch.c_returns(HERE, 4, function, 1) is None
        assert len(scene.last) == 1
        Function.error = KeyboardInterrupt
        with pytest.raises(KeyboardInterrupt):
            scene.watch.c_returns(HERE, 4, function, 1)

    def test_an_exception_of_a_callable_passes(self, fast, driver):
        def fails(*args):
            raise LookupError

        for other in ({"kind_of": fails}, {"ask": fails, "status": 0}):
            with pytest.raises(LookupError):
                Scene(fast, driver, **other).watch.line(HERE, 1)
        with pytest.raises(LookupError):
            Scene(fast, driver, after_call=fails).watch.c_returns(HERE, 4, abs, 1)

    def test_refuses_other_arguments(self, scene):
        for method in (scene.watch.line, scene.watch.python_returns, scene.watch.c_returns):
            with pytest.raises(TypeError, match="an event has a code object"):
                method("code", 1)


# ---- as a trace and profile function ---------------------------------------------------------------


@only_tracing
class TestTracing:
    @pytest.fixture(autouse=True)
    def untraced(self):
        before = sys.gettrace(), sys.getprofile()
        yield
        sys.settrace(before[0])
        sys.setprofile(before[1])

    def test_notes_lines_and_calls(self, scene):
        me = threading.get_ident()

        def traced():
            scene.watch.trace_lines()
            scene.last.clear()
            at = sys._getframe().f_lineno
            moment = scene.last[me]
            sys.settrace(None)
            return at, moment

        at, moment = traced()
        assert moment == (traced.__code__, at + 1, True)
        scene.watch.trace_calls()
        abs(-1)
        sys.setprofile(None)
        code, _, is_line = scene.last[me]
        assert code is sys._getframe().f_code
        assert not is_line
        assert scene.python == []

    def test_is_found_and_can_be_called(self, scene):
        scene.watch.trace_lines()
        found = sys.gettrace()
        sys.settrace(None)
        assert found is scene.watch
        found(sys._getframe(), "line", None)
        assert scene.python == [("line", sys._getframe(), "line", None)]

    @pytest.mark.parametrize("alone", [True, False])
    def test_leaves_to_python_what_it_can_not_do(self, scene, driver, alone):
        driver.state, scene.watch.alone = (2, True) if alone else (ACTIVE, False)
        scene.watch.trace_lines()
        scene.watch.trace_calls()
        abs(-1)
        sys.setprofile(None)
        sys.settrace(None)
        assert {event for _, _, event, _ in scene.python} >= {"line", "c_return"}
        assert (driver.asked != []) is alone
        assert scene.last == {}

    def test_asks_the_driver_no_more_once_it_is_closed(self, scene, driver):
        scene.watch.close()
        scene.watch.trace_lines()
        scene.watch.trace_calls()
        abs(-1)
        sys.setprofile(None)
        sys.settrace(None)
        assert driver.asked == []
        assert {event for _, _, event, _ in scene.python} >= {"line", "c_return"}

    @pytest.mark.parametrize(("file", "asked"), [("watched.py", 6), ("unwatched.py", 2), ("passive", 0)])
    def test_asks_at_what_is_watched(self, scene, driver, file, asked):
        """At two lines and a call of C; where lines are not watched, at the call."""
        source = "def f(asked):\n    a = len(asked)\n    abs(-1)\n    return len(asked) - a\n"
        names = {}
        exec(compile(source, file, "exec"), names)
        scene.watch.trace_lines()
        scene.watch.trace_calls()
        found = names["f"](driver.asked)
        sys.setprofile(None)
        sys.settrace(None)
        assert found == asked

    @pytest.mark.parametrize(
        ("file", "seen"), [("unwatched.py", ["c_return", "c_exception"]), ("passive", [])]
    )
    def test_sees_calls_into_c_where_lines_are_not_watched(self, scene, driver, file, seen):
        driver.state, names = 2, {}
        source = "def f():\n    abs(-1)\n    try:\n        abs('')\n    except TypeError:\n        pass\n"
        exec(compile(source, file, "exec"), names)
        scene.watch.trace_lines()
        scene.watch.trace_calls()
        names["f"]()
        sys.setprofile(None)
        sys.settrace(None)
        found = [(event, arg) for _, frame, event, arg in scene.python if frame.f_code.co_filename == file]
        assert found == [(event, abs) for event in seen]

    def test_notes_the_moments_of_each_thread(self, scene):
        def traced():
            scene.watch.trace_lines()
            me = threading.get_ident()
            sys.settrace(None)
            return me

        idents = {in_thread(traced), traced()}
        assert set(scene.last) == idents
        assert len(idents) == 2

    def test_an_exception_is_not_a_moment(self, fast, driver):
        seen = []
        scene = Scene(fast, driver, functions=(lambda *args: seen.append(dict(scene.last)),))

        def waits():
            raise LookupError

        def traced():
            scene.watch.trace_lines()
            with contextlib.suppress(LookupError):
                waits()
            sys.settrace(None)

        traced()
        line = waits.__code__.co_firstlineno + 1
        assert seen[0] == {threading.get_ident(): (waits.__code__, line, True)}

    def test_leaves_waits_to_python(self, scene):
        import time

        def waits():
            pass

        scene.watch.trace_lines()
        scene.watch.trace_calls()
        waits()
        time.sleep(0)
        sys.setprofile(None)
        sys.settrace(None)
        seen = [(event, arg or frame.f_code) for _, frame, event, arg in scene.python]
        assert seen == [("return", waits.__code__), ("c_return", time.sleep)]

    def test_asks_python_if_the_driver_has_no_function(self, fast):
        scene = Scene(fast)
        asked = traced(scene, lambda: None)
        assert (asked, len(scene.last)) == ([], 1)
        scene.last.clear()
        scene.going = False
        seen = [row[2:] for row in traced(scene, lambda: 5)]
        assert seen.index(("return", 5)) > seen.index(("line", None))
        assert scene.last == {}

    def test_asks_of_a_driver_that_can_not_tell_whether_a_stream_is_alive(self, fast, driver):
        scene = Scene(fast, driver, alive=0)
        assert traced(scene, lambda: None) == []
        assert set(driver.asked) == {"status"}

    @pytest.mark.parametrize(
        ("answer", "asked"),
        [
            (("state", 2), ["alive", "status"]),
            (("state", 0), ["alive", "status"]),
            (("state", None), ["alive", "status"]),
            (("code", 1), ["alive", "status"]),
            (("dead", 1), ["alive"]),
        ],
    )
    def test_any_other_answer_is_left_to_python(self, scene, driver, answer, asked):
        setattr(driver, *answer)

        def work():
            abs(-1)
            abs("")

        with pytest.raises(TypeError):
            traced(scene, work)
        seen = [(event, arg) for _, frame, event, arg in scene.python if frame.f_code is work.__code__]
        (event, (kind, *_)) = seen.pop(4)
        assert (event, kind) == ("exception", TypeError)
        assert seen == [
            *(("line", None), ("c_return", abs), ("line", None), ("c_exception", abs), ("return", None)),
        ]
        assert driver.asked == asked * (len(driver.asked) // len(asked))
        assert scene.last == {}

    def test_the_moment_after_a_return_is_in_the_caller(self, scene):
        me, offsets, moments = threading.get_ident(), [], []

        def called():
            offsets.append(sys._getframe(1).f_lasti)

        def caller():
            moments.append(called() or scene.last[me])

        traced(scene, caller)
        assert moments == [(caller.__code__, offsets[0], False)]

    def test_the_moment_after_a_call_into_c_is_behind_it(self, scene):
        def work():
            abs(-1)
            abs(-2)

        me = threading.get_ident()
        scene.watch.trace_calls()
        work()
        moment = scene.last[me]
        sys.setprofile(None)
        calls = [each.offset for each in dis.get_instructions(work) if each.opname == "CALL"]
        assert moment == (work.__code__, calls[1], False)

    def test_each_thread_has_a_moment_of_its_own(self, scene):
        def first():
            scene.watch.trace_lines()
            before = 1
            sys.settrace(None)
            return before

        def second():
            scene.watch.trace_lines()
            sys.settrace(None)
            return threading.get_ident()

        other = in_thread(second)
        first()
        line = first.__code__.co_firstlineno
        assert scene.last == {
            threading.get_ident(): (first.__code__, line + 3, True),
            other: (second.__code__, second.__code__.co_firstlineno + 2, True),
        }

    def test_each_of_several_pure_functions_is_not_asked_about(self, fast, driver):
        def work():
            len("")
            ord("a")
            abs(-1)
            chr(97)

        scene = Scene(fast, driver, pure=(len, ord, chr))
        scene.watch.trace_calls()
        work()
        sys.setprofile(None)
        assert driver.asked == ["alive", "status"]

    def test_calls_are_left_to_python_where_it_is_told_of_each(self, fast, driver):
        """Lines and returns are not."""
        scene = Scene(fast, driver, after_call=lambda *_: None)

        def work():
            abs(-1)
            with contextlib.suppress(TypeError):
                ord(-2)

        seen = traced(scene, work)
        assert [(event, arg) for _, frame, event, arg in seen if frame.f_code is work.__code__] == [
            ("c_return", abs),
            ("c_exception", ord),
        ]
        assert {event for _, _, event, _ in seen} == {"c_return", "c_exception"}

    def test_waits_are_known_by_their_names_of_every_kind(self, scene):
        import time

        def names():
            """Neither a wait of C, nor one of Python."""

        def work():
            time.sleep(0)
            [1].index(1)
            list.index([1], 1)
            [1].count(1)
            names()

        seen = [arg for _, _, event, arg in traced(scene, work)]
        assert [each.__name__ for each in seen] == ["sleep", "index", "index"]

    @pytest.mark.parametrize(
        ("kind", "watched"), [(0, {"<module>", "f"}), (1, set()), (2, set()), (3, {"f"})]
    )
    def test_only_the_import_of_an_installed_file_is_not_watched(self, fast, driver, kind, watched):
        asked = []
        scene = Scene(fast, driver, kind_of=lambda file: asked.append(file) or (kind if file == "it" else 1))
        driver.state = 2  # so Python sees what is watched
        names = {}
        module = compile("def f():\n    pass\n", "it", "exec")

        def work():
            exec(module, names)
            names["f"]()

        scene.watch.trace_lines()
        work()
        sys.settrace(None)
        assert {frame.f_code.co_name for _, frame, *_ in scene.python} == watched
        assert asked.count("it") == 1
        assert scene.kinds["it"] == kind

    @pytest.mark.parametrize("part", ["kind_of", "ask", "functions"])
    def test_an_exception_of_a_callable_passes(self, fast, part):
        left = [1]

        def fails(*args):
            if left:
                left.pop()
                raise LookupError
            return 0

        others = {"kind_of": fails} if part == "kind_of" else {"ask": fails} if part == "ask" else {}
        if part == "functions":
            others = {"functions": (fails,), "ask": lambda: False}
        scene = Scene(fast, **others)
        with pytest.raises(LookupError):
            traced(scene, lambda: None)
        assert left == []


# ---- as an object --------------------------------------------------------------------------------


def test_refuses_another_number_of_functions(fast):
    with pytest.raises(ValueError, match="functions must be"):
        Scene(fast, functions=(print,) * 3)


@pytest.mark.parametrize("part", ["ask", "last", "kinds", "kind_of", "pure", "after_call", "functions"])
def test_a_cycle_through_it_is_collected(fast, part):
    class Owner:
        def __init__(self):
            held = lambda *_: self  # noqa: E731
            wrapped = {"last": {1: held}, "kinds": {1: held}, "pure": (len, held)}
            wrapped["functions"] = (held,) * (4 if MONITORING else 1)
            self.scene = Scene(fast, **{part: wrapped.get(part, held)})

    gone = weakref.ref(Owner())
    gc.collect()
    assert gone() is None


def test_it_keeps_what_it_is_made_of_and_lets_it_go(fast):
    given = {
        "ask": lambda: True,
        "last": {},
        "kinds": {},
        "kind_of": lambda file: 0,
        "waits": frozenset(["one"]),
        "waits_in_c": frozenset(["two"]),
        "pure": (len, abs, ord),
        "after_call": lambda *_: None,
        "disable": object(),
        "functions": tuple(object() for _ in range(4 if MONITORING else 1)),
    }

    def made():
        return fast.Watch(**given, status=0, alive=0, stream=STREAM, active=ACTIVE)

    before = {name: sys.getrefcount(each) for name, each in given.items()}
    watches = [made() for _ in range(5)]
    assert {name: sys.getrefcount(each) for name, each in given.items()} == {
        name: count + 5 for name, count in before.items()
    }
    watches.clear()
    assert {name: sys.getrefcount(each) for name, each in given.items()} == before
