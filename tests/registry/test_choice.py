"""The registry: which backend is meant, whose a stream is, and what the report says."""

import gc
import threading

import pytest

from accelerator_graph.errors import BackendUnavailableError, UnknownBackendError
from processes import python
from registry.fakes import LIMIT, built_in, fake, in_threads, no_environment_fixture, site_fixture  # noqa: F401
from threads import in_thread

pytestmark = pytest.mark.usefixtures("no_environment")


# ---- choice ----------------------------------------------------------------------------------------


@pytest.mark.promise("backend-of-the-environment")
def test_precedence(monkeypatch):
    backends = built_in(cpu=fake(), cuda=fake(), hip=fake())
    assert backends.chosen() is None
    assert backends.resolve().name == "cuda"
    monkeypatch.setenv("ACCELERATOR_GRAPH_BACKEND", "hip")
    assert (backends.chosen(), backends.resolve().name) == ("hip", "hip")
    with backends.use_backend("cpu"):
        assert (backends.chosen(), backends.resolve().name) == ("cpu", "cpu")
        assert backends.resolve("cuda").name == "cuda"
        with backends.use_backend("cuda"):
            assert backends.chosen() == "cuda"
        assert backends.chosen() == "cpu"
    monkeypatch.setenv("ACCELERATOR_GRAPH_BACKEND", " ")
    assert backends.chosen() is None


def test_use_backend_without_a_block_says_that_it_did_nothing():
    backends = built_in(cpu=fake(), cuda=fake())
    with pytest.warns(RuntimeWarning, match=r"^use_backend\('cpu'\) did nothing: .*`with use_backend"):
        backends.use_backend("cpu")
    assert backends.chosen() is None
    block = backends.use_backend("cpu")
    for _ in range(2):
        with block, backends.use_backend("cuda"), block:
            assert backends.chosen() == "cpu"
    del block
    gc.collect()  # nothing to say

    @backends.use_backend("cpu")
    def chosen(count):
        return [backends.chosen(), *(chosen(count - 1) if count else ())]

    assert chosen(2) == ["cpu"] * 3
    assert chosen.__name__ == "chosen"
    assert backends.chosen() is None


def test_use_backend_decorates_no_function_whose_body_runs_later():
    backends = built_in(cpu=fake())

    def generator():
        yield

    async def coroutine():
        pass

    async def both():
        yield

    for function in (generator, coroutine, both):
        with pytest.raises(
            TypeError, match=r"runs after the call; write `with use_backend\('cpu'\):` inside"
        ):
            backends.use_backend("cpu")(function)


def test_use_backend_refuses_at_the_call():
    backends = built_in(cpu=fake(), cuda=fake(usable=False, reason="no driver"))
    for name, error in (("cuda", BackendUnavailableError), ("nope", UnknownBackendError), (3, TypeError)):
        with pytest.raises(error):
            backends.use_backend(name)
    gc.collect()


def test_one_block_in_several_threads():
    backends = built_in(cpu=fake(), cuda=fake())
    block, both = backends.use_backend("cpu"), threading.Barrier(2)

    def use():
        with backends.use_backend("cuda"):
            both.wait(LIMIT)
            with block:
                both.wait(LIMIT)
                assert backends.chosen() == "cpu"
            both.wait(LIMIT)
            return backends.chosen()

    assert in_threads(use, use) == ["cuda", "cuda"]


def test_use_backend_ends_with_its_block_also_by_an_exception():
    backends = built_in(cpu=fake())
    with pytest.raises(KeyError), backends.use_backend("cpu"):
        raise KeyError
    assert backends.chosen() is None


def test_use_backend_ends_its_own_block_where_blocks_do_not_end_in_order():
    backends = built_in(cpu=fake(), cuda=fake())

    def generator():
        with backends.use_backend("cpu"):
            yield

    waiting = generator()
    next(waiting)
    with backends.use_backend("cuda"):
        waiting.close()
        assert backends.chosen() == "cuda"
    assert backends.chosen() is None


def test_use_backend_is_loud_on_entry_and_opens_nothing():
    cpu = fake()
    backends = built_in(cpu=cpu, cuda=fake(usable=False, reason="no driver"))
    for name, error in (("cuda", BackendUnavailableError), ("nope", UnknownBackendError)):
        with pytest.raises(error), backends.use_backend(name):
            pytest.fail("entered")
    assert backends.chosen() is None
    with backends.use_backend("cpu"):
        assert cpu.log == ["probe"]


def test_use_backend_is_for_its_thread():
    backends = built_in(cpu=fake())
    with backends.use_backend("cpu"):
        assert in_thread(backends.chosen) is None


@pytest.mark.promise("backend-of-the-environment")
def test_the_environment_is_named_in_its_errors(monkeypatch):
    backends = built_in(cpu=fake(), cuda=fake())
    monkeypatch.setenv("ACCELERATOR_GRAPH_BACKEND", "CUDA!")
    with pytest.raises(ValueError, match=r"^ACCELERATOR_GRAPH_BACKEND is 'CUDA!'"):
        backends.resolve()
    monkeypatch.setenv("ACCELERATOR_GRAPH_BACKEND", "cudaa")
    with pytest.raises(
        UnknownBackendError, match=r"^ACCELERATOR_GRAPH_BACKEND is set, but there is no .*'cudaa'"
    ):
        backends.resolve(cpu_fallback=True)


@pytest.mark.promise("named-backend-or-error")
def test_whoever_names_a_backend_gets_no_other(monkeypatch):
    backends = built_in(cpu=fake(), cuda=fake(usable=False, reason="no driver"), hip=fake())
    with pytest.raises(BackendUnavailableError, match="no driver"):
        backends.resolve("cuda", cpu_fallback=True)
    monkeypatch.setenv("ACCELERATOR_GRAPH_BACKEND", "cuda")
    with pytest.raises(BackendUnavailableError, match="no driver"):
        backends.resolve(cpu_fallback=True)


def test_automatic_choice_loads_no_third_party_while_a_built_in_accelerator_is_usable():
    backends = built_in(cpu=fake(), cuda=fake(open_error=BackendUnavailableError("too old")), hip=fake())
    backends.register("mine", "not_there:Plugin")
    assert backends.resolve().name == "hip"
    assert {row.name: row.reason for row in backends.report()}["cuda"] == "too old"


@pytest.mark.promise("plug-in-as-accelerator", "reasons-of-all-backends")
def test_automatic_choice_among_third_parties(site):
    site.module("broken", "raise RuntimeError('dead on arrival')")
    site.distribution("broken", "1", a_broken="broken:Plugin")
    backends = built_in(
        cpu=fake(), cuda=fake(usable=False, reason="no driver"), hip=fake(usable=False, reason="no runtime")
    )
    backends.register("b_low", fake())
    backends.register("z_high", fake(priority=5))
    backends.register("y_high", fake(priority=5, open_error=RuntimeError("boom")))
    backends.register("c_highest", fake(priority=9, usable=False, reason="not here"))
    assert backends.resolve().name == "z_high"
    backends.unregister("z_high")
    assert backends.resolve().name == "b_low"
    backends.unregister("b_low")
    with pytest.raises(BackendUnavailableError) as info:
        backends.resolve()
    reasons = info.value.reasons
    assert set(reasons) == {"cuda", "hip", "a_broken", "c_highest", "y_high"}
    assert reasons["cuda"] == "no driver"
    assert reasons["hip"] == "no runtime"
    assert "dead on arrival" in reasons["a_broken"]
    assert reasons["c_highest"] == "not here"
    assert reasons["y_high"] == "its open() raised RuntimeError: boom"
    for name, reason in reasons.items():
        assert f"{name}: {reason}" in str(info.value)
    assert backends.resolve(cpu_fallback=True).name == "cpu"


@pytest.mark.promise("plug-in-as-accelerator", "no-priority-no-choice")
def test_a_backend_without_a_priority_has_to_be_named(monkeypatch):
    backends = built_in(cpu=fake(), cuda=fake(usable=False, reason="no driver"))
    quiet = fake(priority=None, stream_modules=frozenset({"quiet"}))
    backends.register("quiet", quiet)
    assert backends.resolve(cpu_fallback=True).name == "cpu"
    assert not backends.usable()
    assert backends.usable("quiet")
    with pytest.raises(BackendUnavailableError, match="quiet: it is used only if you name it") as info:
        backends.resolve()
    assert set(info.value.reasons) == {"cuda", "quiet"}
    assert quiet.log == ["probe"]
    assert {row.name: (row.usable, row.only_named) for row in backends.report()} == {
        "cpu": (True, False),
        "cuda": (False, False),
        "quiet": (True, True),
    }
    assert backends.claim(stream_of("quiet"))[0].name == "quiet"  # its own stream names it
    assert backends.resolve("quiet").name == "quiet"
    with backends.use_backend("quiet"):
        assert backends.resolve(cpu_fallback=True).name == "quiet"
    monkeypatch.setenv("ACCELERATOR_GRAPH_BACKEND", "quiet")
    assert backends.resolve(cpu_fallback=True).name == "quiet"
    monkeypatch.delenv("ACCELERATOR_GRAPH_BACKEND")
    backends.register("loud", fake(priority=-9))
    assert backends.resolve().name == "loud"


def test_automatic_choice_is_made_once_until_something_changes():
    cuda = fake(usable=False)
    backends = built_in(cpu=fake(), cuda=cuda)
    assert [backends.resolve(cpu_fallback=True).name for _ in range(3)] == ["cpu"] * 3
    assert cuda.log == ["probe"]
    cuda.usable = True
    assert backends.resolve(cpu_fallback=True).name == "cpu"
    backends.refresh()
    assert backends.resolve(cpu_fallback=True).name == "cuda"
    cuda.usable = False
    assert backends.resolve(cpu_fallback=True).name == "cuda"


def test_a_choice_made_while_the_tables_changed_is_not_kept():
    backends = built_in(cpu=fake(), cuda=fake(usable=False))
    late = fake()

    class Early(fake()):
        def open(self):
            backends.register("late", late)

        priority = -1

    backends.register("early", Early)
    assert backends.resolve().name == "early"
    assert backends.resolve().name == "late"


def test_usable_probes_and_opens_nothing(site):
    site.module("broken", "raise RuntimeError('dead on arrival')")
    cpu, cuda = fake(), fake(usable=False)
    backends = built_in(cpu=cpu, cuda=cuda)
    assert not backends.usable()
    assert backends.usable("cpu")
    assert not backends.usable("cuda")
    backends.register("broken", "broken:Plugin")
    assert not backends.usable("broken")
    assert not backends.usable()
    backends.register("mine", fake())
    assert backends.usable()
    with pytest.raises(UnknownBackendError):
        backends.usable("nope")
    assert cpu.log == ["probe"]
    assert "open mine" not in backends.load("mine").log


# ---- streams ---------------------------------------------------------------------------------------


def stream_of(module, **attributes):
    return type("Stream", (), {"__module__": module, **attributes})()


def of(*packages, **attributes):
    """A backend whose runtime's stream objects come from these packages."""
    return fake(stream_modules=frozenset(packages), **attributes)


def test_claim_asks_by_the_package_that_defines_the_type():
    backends = built_in(cpu=of("accelerator_graph"), cuda=of("cuda"), hip=of("hip", "rocm"))
    for module, name in (
        ("cuda.bindings.driver", "cuda"),
        ("hip.hip", "hip"),
        ("rocm", "hip"),
        ("accelerator_graph", "cpu"),
    ):
        stream = stream_of(module)
        backend, claimed = backends.claim(stream)
        assert (backend.name, claimed) == (name, stream)
    derived = type("Mine", (type(stream_of("cuda.core")),), {"__module__": "__main__"})()
    assert backends.claim(derived)[0].name == "cuda"
    for stranger in (5, "cuda", None, object(), stream_of("cudax.y"), stream_of("cuda", mine=False)):
        assert backends.claim(stranger) is None


def test_claim_loads_third_parties_only_for_a_type_that_no_built_in_claims():
    backends = built_in(cpu=fake(), cuda=of("cuda"))
    backends.register("absent", "not_there:Plugin")
    other = of("otherrt")
    backends.register("other", other)
    backends.claim(5)
    backends.claim(stream_of("cuda"))
    assert other.log == []
    assert backends.claim(stream_of("otherrt.streams"))[0].name == "other"
    assert backends.claim(stream_of("nobodys")) is None


def test_claim_asks_the_chosen_backend_first():
    backends = built_in(cpu=of("accelerator_graph"), cuda=of("cuda"))
    backends.register("rival", of("cuda"))
    assert backends.claim(stream_of("cuda"))[0].name == "cuda"
    with backends.use_backend("rival"):
        assert backends.claim(stream_of("cuda"))[0].name == "rival"
        assert backends.claim(stream_of("accelerator_graph"))[0].name == "cpu"


def test_claim_passes_over_what_cannot_run():
    backends = built_in(cpu=fake(), cuda=of("cuda", usable=False))
    backends.register("second", of("cuda"))
    assert backends.claim(stream_of("cuda"))[0].name == "second"


def test_claim_says_why_the_backend_of_a_stream_cannot_run():
    backends = built_in(
        cpu=fake(),
        cuda=of("cuda", usable=False, reason="no driver"),
        hip=of("hip", open_error=RuntimeError("boom")),
    )
    for name, reason in (("cuda", "no driver"), ("hip", r"its open\(\) raised RuntimeError: boom")):
        with pytest.raises(BackendUnavailableError, match=f"^backend '{name}' is not available: {reason}"):
            backends.claim(stream_of(name))


def test_claim_notes_which_plug_ins_could_not_be_asked():
    backends = built_in(cpu=fake())
    backends.register("absent", "not_there:Plugin")
    reasons = {}
    assert backends.claim(stream_of("elsewhere"), reasons) is None
    assert "No module named 'not_there'" in reasons["absent"]


# ---- report ----------------------------------------------------------------------------------------


def test_report_has_every_backend_and_raises_nothing(site):
    site.module("broken", "raise RuntimeError('dead on arrival')")
    site.backend("plug")
    site.distribution(
        "plug-dist", "1.2", plug="plug:Plugin", broken="broken:Plugin", cuda="plug:Plugin", Bad="plug:Plugin"
    )
    site.distribution("other-dist", "3", twin="plug:A")
    site.distribution("third-dist", "3", twin="plug:B")
    backends = built_in(cpu=fake(), cuda=fake(usable=False, reason="no driver"))
    backends.register("mine", fake())
    backends.get("mine")
    rows = backends.report()
    assert [(row.name, row.origin, row.loaded, row.opened, row.usable) for row in rows] == [
        ("broken", "plug-dist 1.2", False, False, False),
        ("cpu", "built-in", True, False, True),
        ("cuda", "built-in", True, False, False),
        ("mine", "registered", True, True, True),
        ("plug", "plug-dist 1.2", True, False, True),
        ("twin", "other-dist 3 and third-dist 3", False, False, False),
        ("Bad", "plug-dist 1.2", False, False, False),
        ("cuda", "plug-dist 1.2", False, False, False),
    ]
    reasons = [row.reason for row in rows]
    assert "dead on arrival" in reasons[0]
    assert reasons[2] == "no driver"
    assert "ambiguous" in reasons[5]
    assert "does not match" in reasons[6]
    assert "reserved" in reasons[7]
    assert (rows[1].versions, rows[1].devices) == ({"fake": "1"}, 2)


def test_the_built_in_backends_say_whose_streams_they_know_and_load_no_vendor():
    code = """
    import sys
    from accelerator_graph.backends import registry
    for name, packages in (("cpu", {"accelerator_graph"}), ("cuda", {"cuda"}), ("hip", {"hip", "rocm"})):
        assert registry.load(name).stream_modules == packages
    assert registry.claim(type("Stream", (), {"__module__": "elsewhere"})()) is None
    print(*{name.partition(".")[0] for name in sys.modules} & {"cuda", "hip", "rocm"})
    """
    assert python(code).strip() == ""
