"""The registry: names, loading, registering and opening."""

import os
import sys
import zipfile
from importlib.metadata import EntryPoint, EntryPoints, PathDistribution
from types import SimpleNamespace

import pytest

from accelerator_graph import _plugins as entry_points
from accelerator_graph._plugins import Candidate
from accelerator_graph.backends import registry
from accelerator_graph.backends.base import BACKEND_API_VERSIONS, Backend
from accelerator_graph.errors import (
    BackendContractError,
    BackendLoadError,
    BackendUnavailableError,
    UnknownBackendError,
)
from core.test_interrupts import Interrupter
from registry.fakes import built_in, fake, no_environment_fixture, site_fixture  # noqa: F401
from threads import in_thread

pytestmark = pytest.mark.usefixtures("no_environment")


# ---- entry points, as literals ---------------------------------------------------------------------


def entry(name, value):
    return EntryPoint(name, value, "accelerator_graph.backends")


def test_entry_points_are_grouped_by_name_whatever_their_order():
    found = [entry("b", "m:B"), entry("a", "m:A [extra]"), entry("b", "n:B"), entry("b", "m : B")]
    scan = entry_points.sort_out(found, frozenset())
    assert scan.offers == entry_points.sort_out(found[::-1], frozenset()).offers
    assert {name: [offer.target for offer in offers] for name, offers in scan.offers.items()} == {
        "a": ["m:A"],
        "b": ["m:B", "n:B"],
    }
    assert scan.ignored == []


@pytest.mark.promise("switches")
@pytest.mark.parametrize(("value", "off"), [("", False), ("0", False), ("1", True), ("yes", True)])
def test_the_switch_for_plugins(monkeypatch, value, off):
    monkeypatch.setenv("ACCELERATOR_GRAPH_DISABLE_PLUGINS", value)
    assert entry_points.switched_off() is off


def test_the_offer_that_stays_does_not_depend_on_the_order_of_the_file_system():
    found = [
        entry("b", "m:B")._for(SimpleNamespace(name=name, version="1"))
        for name in ("second", "first", "third")
    ]
    for order in (found, found[::-1]):
        [offer] = entry_points.sort_out(order, frozenset()).offers["b"]
        assert offer.origin == "first 1"


def test_of_offers_with_the_same_path_the_first_stays():
    offered = [
        Candidate("b", "m:B", "first 1"),
        Candidate("b", "n:B", "second 1"),
        Candidate("b", "m:B", "third 1"),
        Candidate("b", "n:B", "fourth 1"),
    ]
    assert [each.origin for each in entry_points.distinct(offered)] == ["first 1", "second 1"]
    assert entry_points.distinct([]) == []


@pytest.mark.parametrize("name", ["Bad", "1st", "_a", "a-b", "a b", "", "ä"])
def test_bad_names_of_entry_points_are_ignored_with_a_reason(name):
    scan = entry_points.sort_out([entry(name, "m:A"), entry("good_1", "m:A")], frozenset())
    assert list(scan.offers) == ["good_1"]
    assert [(found.name, "does not match" in found.reason) for found in scan.ignored] == [(name, True)]


def test_entry_points_with_reserved_names_are_ignored_with_a_reason():
    scan = entry_points.sort_out([entry("cuda", "m:A")], {"cuda"})
    assert scan.offers == {}
    assert "reserved" in scan.ignored[0].reason
    assert scan.ignored[0].origin == "a distribution without metadata"


def test_each_ignored_entry_point_has_its_own_reason_in_the_order_of_the_names():
    made = [
        entry(name, "m:A")._for(SimpleNamespace(name=f"dist-{name}", version=version))
        for name, version in (("hip", "1"), ("good", "2"), ("Bad", "3"), ("cuda", "4"), ("0", "5"))
    ]
    scan = entry_points.sort_out(made, {"cuda", "hip"})
    assert [(each.name, each.origin, each.reason) for each in scan.ignored] == [
        ("0", "dist-0 5", "the name '0' does not match [a-z][a-z0-9_]*"),
        ("Bad", "dist-Bad 3", "the name 'Bad' does not match [a-z][a-z0-9_]*"),
        ("cuda", "dist-cuda 4", "the name 'cuda' is reserved for the built-in one"),
        ("hip", "dist-hip 1", "the name 'hip' is reserved for the built-in one"),
    ]
    assert scan.offers == {"good": [Candidate("good", "m:A", "dist-good 2")]}


@pytest.mark.parametrize(
    ("name", "as_backend", "as_import"),
    [
        ("numpy", True, True),
        ("a_1", True, True),
        ("numpy.linalg", False, True),
        ("Numpy", False, True),
        ("_a", False, True),
        ("numpy.", False, False),
        (".numpy", False, False),
        ("num py.a", False, False),
        ("a.1", False, False),
    ],
)
def test_names_are_allowed_by_the_rule_of_their_group(name, as_backend, as_import):
    found = [entry(name, "m:A")]
    assert bool(entry_points.sort_out(found, frozenset()).offers) is as_backend
    scan = entry_points.sort_out(found, frozenset(), entry_points.IMPORT_NAMES)
    assert (list(scan.offers), len(scan.ignored)) == (([name], 0) if as_import else ([], 1))
    assert as_import or "does not have the form of a module name" in scan.ignored[0].reason


@pytest.mark.parametrize(
    ("target", "valid"),
    [
        ("m:A", True),
        ("m.n:A.B", True),
        ("m", False),
        ("m:", False),
        (":A", False),
        ("m:A:B", False),
        ("m.:A", False),
        ("m:A.", False),
        ("m:1", False),
        ("1:A", False),
    ],
)
def test_the_form_of_a_target(target, valid):
    assert entry_points.is_target(target) is valid


class Outer:
    class Inner:
        pass


@pytest.mark.parametrize(
    ("target", "origin", "path", "provider"),
    [
        ("m.n:A", "some-dist 1.0", "m.n:A", "some-dist"),
        ("m.n:A", "some dist 2", "m.n:A", "some dist"),
        ("m.n:A", "registered", "m.n:A", "m"),
        ("m:A", "a distribution without metadata", "m:A", "m"),
        ("m:A", "some-dist ", "m:A", "m"),
        (Outer.Inner, "built-in", "registry.test_registry:Outer.Inner", "registry"),
        (Outer, "some-dist 1.0", "registry.test_registry:Outer", "some-dist"),
    ],
)
def test_where_a_candidate_comes_from(target, origin, path, provider):
    candidate = Candidate("a", target, origin)
    assert (candidate.path, candidate.provider) == (path, provider)


def test_a_target_may_be_inside_a_class():
    here = f"{__name__}:Outer"
    assert entry_points.import_target(here) is Outer
    assert entry_points.import_target(f"{here}.Inner") is Outer.Inner
    assert entry_points.import_target("os.path:join") is os.path.join
    assert entry_points.import_target("os.path") is os.path


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"name": "a", "version": "1.0"}, "a 1.0"),
        ({"name": None, "version": "1.0"}, "a distribution without metadata"),
        ({"name": "a"}, "a distribution without metadata"),
    ],
)
def test_a_distribution_is_named_with_its_version(found, said):
    assert entry_points.distribution(SimpleNamespace(dist=SimpleNamespace(**found))) == said


# ---- installed distributions -----------------------------------------------------------------------


def names_in(group):
    return [found.name for found in entry_points.installed(group)]


def test_a_group_that_nobody_uses_is_found_empty_without_importing_a_reader(site, monkeypatch):
    site.distribution("some-dist", "2.0", group="accelerator_graph.backends.more", plug="not_there:Plugin")
    monkeypatch.delitem(sys.modules, "importlib.metadata")
    monkeypatch.setattr(sys, "meta_path", [None, *sys.meta_path])  # any import would fail
    assert names_in("accelerator_graph.backends") == []


@pytest.mark.parametrize("form", ["some_dist-2.0.dist-info", "Some_Dist.EGG-INFO", "a.egg"])
def test_distributions_of_every_form_are_found(form, tmp_path, monkeypatch):
    folder = tmp_path / form
    info = folder / "EGG-INFO" if form == "a.egg" else folder
    info.mkdir(parents=True)
    (info / "PKG-INFO").write_text("Name: some-dist\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text("[group]\nplug = m:A\n")
    monkeypatch.syspath_prepend(folder if form == "a.egg" else tmp_path)
    assert names_in("group") == ["plug"]


def test_distributions_in_the_current_folder_are_found(site, tmp_path, monkeypatch):
    """An empty entry of sys.path stands for it, as in an interactive session."""
    site.distribution("some-dist", "2.0", group="group", plug="m:A")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *(folder for folder in sys.path if folder != str(tmp_path))])
    assert names_in("group") == ["plug"]


def test_a_distribution_that_was_installed_a_moment_ago_is_found(site, tmp_path):
    """The folder's time has not changed, as on a file system that notes no parts of seconds."""
    site.distribution("some-dist", "2.0", group="group", plug="m:A")
    time = tmp_path.stat().st_mtime_ns
    assert names_in("group") == ["plug"]
    with pytest.raises(ModuleNotFoundError):
        entry_points.import_target("of_a_moment_ago:B")
    site.distribution("other-dist", "1.0", group="group", socket="of_a_moment_ago:B")
    site.module("of_a_moment_ago", "B = 5")
    os.utime(tmp_path, ns=(time, time))
    assert sorted(names_in("group")) == ["plug", "socket"]
    assert entry_points.import_target("of_a_moment_ago:B") == 5


@pytest.mark.parametrize("holder", range(3))
def test_one_of_several_folders_and_distributions_is_enough(holder, tmp_path, monkeypatch):
    """The others have another group, no entry points, or are not there."""
    folders = [tmp_path / str(number) for number in range(3)]
    for number, folder in enumerate(folders):
        for name in "abcd":
            info = folder / f"dist_{name}{number}-1.0.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Name: dist-{name}{number}\nVersion: 1.0\n")
            group = "group" if (name, number) == ("c", holder) else "group.more"
            if name != "a":
                (info / "entry_points.txt").write_text(f"[{group}]\nplug_{name} = m:A\n")
    (folders[1] / "notes.txt").write_text("[group]")
    (folders[1] / "entry_points.txt").write_text("[group]")
    (folders[1] / "package").mkdir()
    (folders[1] / "package" / "entry_points.txt").write_text("[nobody]")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "not there"), *map(str, folders)])
    assert entry_points.may_be_installed("group")
    assert entry_points.may_be_installed("group.more")
    assert not entry_points.may_be_installed("nobody")
    assert names_in("group") == ["plug_c"]


def test_a_file_that_was_read_is_closed(tmp_path):
    file = tmp_path / "entry_points.txt"
    file.write_bytes(b"[group]")
    for path, contents in ((file, b"[group]"), (tmp_path, b""), (tmp_path / "not there", b"")):
        free = os.open(file, os.O_RDONLY)
        os.close(free)
        assert entry_points._contents(str(path)) == contents
        with pytest.raises(OSError, match="descriptor"):
            os.fstat(free)


def test_distributions_in_an_archive_are_found(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("some_dist-2.0.dist-info/METADATA", "Name: some-dist\nVersion: 2.0\n")
        archive.writestr("some_dist-2.0.dist-info/entry_points.txt", "[group]\nplug = m:A\n")
    monkeypatch.syspath_prepend(tmp_path / "a.zip")
    assert names_in("group") == ["plug"]


def test_distributions_that_only_a_finder_knows_are_found(site, tmp_path, monkeypatch):
    site.distribution("some-dist", "2.0", group="group", plug="m:A")
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(tmp_path)])
    assert names_in("group") == []

    class Finder:
        find_spec = staticmethod(lambda name, path=None, target=None: None)
        find_distributions = staticmethod(lambda context: [PathDistribution(next(tmp_path.iterdir()))])

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert names_in("group") == ["plug"]


# ---- names and loading -----------------------------------------------------------------------------


def test_names_lists_everything_and_loads_nothing(site):
    site.distribution("some-dist", "2.0", plug="not_there:Plugin")
    backends = built_in(cpu=fake(), cuda=fake())
    backends.register("mine", "not_there_either:Plugin")
    assert backends.names() == ["cpu", "cuda", "mine", "plug"]


@pytest.mark.promise("unknown-backend-is-told-the-names")
@pytest.mark.parametrize(
    ("name", "meant"),
    [("CUDDA", "cuda"), ("gpu", "cuda"), ("nvidia", "cuda"), ("ROCm", "hip"), ("amd", "hip")],
)
def test_unknown_names_come_with_the_closest_match(name, meant):
    backends = built_in(cpu=fake(), cuda=fake(), hip=fake())
    message = rf"^there is no backend '{name}'; did you mean '{meant}'\? .*cpu, cuda, hip\.$"
    with pytest.raises(UnknownBackendError, match=message):
        backends.get(name)


@pytest.mark.promise("unknown-backend-is-told-the-names")
def test_unknown_names_come_with_the_known_ones():
    backends = built_in(cpu=fake(), cuda=fake())
    with pytest.raises(LookupError, match=r"^there is no backend 'zzz'; the known ones are cpu, cuda\.$"):
        backends.load("zzz")
    with pytest.raises(TypeError, match="must be a str, not 5"):
        backends.load(5)


def test_hip_needs_nothing_but_its_line_in_the_table():
    with pytest.raises(UnknownBackendError, match="this version of accelerator_graph has no HIP backend yet"):
        built_in(cpu=fake()).get("hip")
    assert built_in(cpu=fake(), hip=fake()).get("hip").name == "hip"


def test_only_the_named_plug_in_is_loaded(site):
    site.backend("plug_a")
    site.module("plug_b", "raise AssertionError('loaded without being named')")
    site.distribution("a", "1", plug_a="plug_a:Plugin")
    site.distribution("b", "1", plug_b="plug_b:Plugin")
    assert built_in(cpu=fake()).get("plug_a").name == "plug_a"


@pytest.mark.promise("import-error-is-the-cause")
def test_a_failed_import_is_explained_and_kept_until_refresh(site):
    site.module("plug", "import missing_runtime")
    site.distribution("plug-dist", "0.7", plug="plug:Plugin")
    backends = built_in(cpu=fake())
    for _ in range(2):
        with pytest.raises(
            BackendLoadError, match=r"plug-dist 0\.7.*No module named 'missing_runtime'; .*plug-dist"
        ) as info:
            backends.get("plug")
        assert isinstance(info.value.__cause__, ModuleNotFoundError)
        site.backend("plug")  # mended, but nobody has said so
    backends.refresh()
    assert backends.get("plug").name == "plug"


def test_a_plug_in_that_exits_when_imported_does_not_end_the_process(site):
    site.module("plug", "raise SystemExit(3)")
    site.distribution("plug-dist", "1", plug="plug:Plugin")
    with pytest.raises(BackendLoadError, match="SystemExit: 3"):
        built_in(cpu=fake()).get("plug")


@pytest.mark.promise("which-package-to-upgrade", "unserved-contract")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        (int, r"is not a subclass of accelerator_graph\.backends\.base\.Backend"),
        (Backend, "has no valid api_version"),
        (fake(api_version=True), "has no valid api_version"),
        (
            type("Half", (Backend,), {"api_version": BACKEND_API_VERSIONS[-1]}),
            "lacks the methods capture_begin, ",
        ),
        (
            fake(api_version=BACKEND_API_VERSIONS[-1] + 1),
            "version 2, .*version 1; upgrade accelerator_graph",
        ),
        (
            fake(api_version=BACKEND_API_VERSIONS[0] - 1),
            "version 0, .*version 1; upgrade (registry|test_registry)",
        ),
        (fake(api_version="1"), "has no valid api_version"),
        (fake(priority="high"), "priority"),
    ],
)
def test_what_is_no_backend_is_refused(target, message):
    backends = built_in(cpu=fake())
    with pytest.raises(BackendContractError, match=message):
        backends.register("mine", target)
    assert backends.names() == ["cpu"]
    setattr(sys.modules[__name__], "no_backend", target)  # noqa: B010
    backends.register("mine", f"{__name__}:no_backend")
    for _ in range(2):
        with pytest.raises(BackendContractError, match=message):
            backends.load("mine")


def test_one_release_of_a_plug_in_serves_two_versions_of_the_library(monkeypatch):
    monkeypatch.setattr(registry, "BACKEND_API_VERSIONS", (2, 3))
    backends = built_in(cpu=fake(api_version=3))
    backends.register("older", fake(api_version=2))
    assert [backends.get(name).name for name in ("cpu", "older")] == ["cpu", "older"]
    for version, outdated in ((1, "registry"), (4, "accelerator_graph")):
        with pytest.raises(BackendContractError) as info:
            backends.register("other", fake(api_version=version))
        assert str(info.value).endswith(
            f"has api_version {version}, but this accelerator_graph supports api_version 2 and 3; "
            f"upgrade {outdated}."
        )


def test_what_only_poses_as_a_subclass_is_refused():
    pose = type("Pose", (), {"api_version": BACKEND_API_VERSIONS[-1]})
    Backend.register(pose)
    with pytest.raises(BackendContractError, match="not a subclass"):
        built_in(cpu=fake()).register("mine", pose)


@pytest.mark.promise("import-error-is-the-cause")
def test_names_that_two_distributions_offer_are_refused_only_when_chosen(site):
    site.module("plug", "raise AssertionError('loaded although ambiguous')")
    site.distribution("one", "1.0", twin="plug:A")
    site.distribution("two", "2.0", twin="plug:B")
    backends = built_in(cpu=fake(), cuda=fake())
    assert backends.names() == ["cpu", "cuda", "twin"]
    assert backends.resolve().name == "cuda"
    with pytest.raises(BackendLoadError, match=r"ambiguous: one 1\.0 \(plug:A\) and two 2\.0 \(plug:B\)"):
        backends.get("twin")


def test_equal_duplicates_are_one(site):
    site.backend("plug")
    site.distribution("plug-dist", "1.0", plug="plug:Plugin")
    site.distribution("~lug-dist", "0.9", plug="plug:Plugin")
    assert built_in(cpu=fake()).get("plug").name == "plug"


def test_a_miss_looks_again_once(site, monkeypatch, tmp_path):
    scans = []
    looked = entry_points.installed
    monkeypatch.setattr(entry_points, "installed", lambda group: scans.append(group) or looked(group))
    backends = built_in(cpu=fake())
    os.utime(tmp_path, ns=(0, 0))
    backends.names()
    backends.names()
    assert len(scans) == 1
    site.backend("plug")
    site.distribution("plug-dist", "1.0", plug="plug:Plugin")
    os.utime(tmp_path, ns=(0, 0))  # nothing may depend on the folder's time
    assert backends.get("plug").name == "plug"
    assert len(scans) == 2
    with pytest.raises(UnknownBackendError):
        backends.get("nope")
    assert len(scans) == 3
    backends.refresh()
    backends.names()
    assert len(scans) == 4


def test_metadata_that_cannot_be_read_hurts_nobody(monkeypatch):
    def unreadable(group):
        raise ValueError("garbage")

    monkeypatch.setattr(entry_points, "installed", unreadable)
    monkeypatch.setattr(entry_points, "readable", unreadable)
    backends = built_in(cpu=fake())
    assert backends.names() == ["cpu"]
    with pytest.raises(UnknownBackendError, match="can't be read: ValueError: garbage"):
        backends.get("plug")
    assert "garbage" in backends.report()[-1].reason


def test_a_distribution_that_cannot_be_read_hides_no_other(site, tmp_path, monkeypatch):
    site.backend("plug")
    site.distribution("plug-dist", "1.0", plug="plug:Plugin")
    (tmp_path / "first" / "broken-1.0.dist-info" / "entry_points.txt").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "first")
    assert "plug" in built_in(cpu=fake()).names()


def test_a_scan_tells_of_all_that_it_leaves_out(site, tmp_path):
    site.distribution("a-dist", "1.0", group="group", plug="m:A")
    site.distribution("z-dist", "2.0", group="group", plug="m:B", Bad="m:A", cuda="m:C")
    site.distribution("c-dist", "1.0", group="another", other="m:A")
    for name in ("broken", "damaged"):
        site.distribution(name, "1.0", group="group")
        (tmp_path / f"{name}-1.0.dist-info" / "entry_points.txt").write_bytes(b"[group]\nno target")
    scan = entry_points.scan("group", {"cuda"})
    assert [(each.target, each.origin) for each in scan.offers.pop("plug")] == [
        ("m:A", "a-dist 1.0"),
        ("m:B", "z-dist 2.0"),
    ]
    assert scan.offers == {}
    *unreadable, bad, reserved = scan.ignored
    assert sorted(each.origin for each in unreadable) == [
        str(tmp_path / f"{name}-1.0.dist-info") for name in ("broken", "damaged")
    ]
    assert {each.name for each in unreadable} == {"*"}
    assert [(each.name, each.origin) for each in (bad, reserved)] == [
        ("Bad", "z-dist 2.0"),
        ("cuda", "z-dist 2.0"),
    ]


def test_a_distribution_of_a_finder_that_cannot_be_read_hides_no_other(monkeypatch):
    class Broken:
        @property
        def entry_points(self):
            raise ValueError("garbage")

    good = SimpleNamespace(entry_points=EntryPoints([entry("plug", "m:A"), EntryPoint("b", "m:B", "more")]))
    monkeypatch.setattr("importlib.metadata.distributions", lambda: [Broken(), good, Broken(), good])
    found, ignored = entry_points.readable("accelerator_graph.backends")
    assert [each.name for each in found] == ["plug", "plug"]
    assert [(each.name, each.origin, each.reason) for each in ignored] == [
        ("*", "a distribution", "its entry points can't be read: ValueError: garbage")
    ] * 2


@pytest.mark.parametrize("line", ["b\xe4d = m:A", "no target"])
def test_entry_points_that_cannot_be_read_hide_no_others(site, tmp_path, line):
    site.backend("plug")
    site.distribution("plug-dist", "1.0", plug="plug:Plugin")
    site.distribution("bad-dist", "1.0", bad="m:A")
    bad = next(tmp_path.glob("bad*dist-info"))
    (bad / "entry_points.txt").write_bytes(f"[accelerator_graph.backends]\n{line}\n".encode("latin-1"))
    backends = built_in(cpu=fake())
    assert "plug" in backends.names()
    with pytest.raises(UnknownBackendError, match=r"bad.*is ignored: its entry points can't be read"):
        backends.get("bad")


@pytest.mark.promise("no-plug-ins")
def test_plug_ins_can_be_switched_off(site, monkeypatch):
    site.backend("plug")
    site.distribution("plug-dist", "1.0", plug="plug:Plugin")
    monkeypatch.setenv("ACCELERATOR_GRAPH_DISABLE_PLUGINS", "1")
    monkeypatch.setattr(entry_points, "installed", lambda group: pytest.fail("scanned"))
    backends = built_in(cpu=fake())
    backends.register("mine", fake())
    assert backends.names() == ["cpu", "mine"]
    with pytest.raises(UnknownBackendError, match="ACCELERATOR_GRAPH_DISABLE_PLUGINS switches plug-ins off"):
        backends.get("plug")


# ---- registering -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cpu", "cuda", "hip", "Mine", "my-rt", "", "1st"])
def test_names_that_cannot_be_registered(name):
    with pytest.raises(ValueError, match=r"reserved|does not match"):
        built_in(cpu=fake()).register(name, fake())


@pytest.mark.parametrize("target", ["module", "module:", ":Class", "a b:C", "a:b:c"])
def test_targets_that_cannot_be_registered(target):
    with pytest.raises(ValueError, match="'module:Class'"):
        built_in(cpu=fake()).register("mine", target)


@pytest.mark.parametrize(("name", "target"), [("mine", 5), (None, fake()), ("mine", None)])
def test_types_that_cannot_be_registered(name, target):
    with pytest.raises(TypeError, match="is registered by a name and by"):
        built_in(cpu=fake()).register(name, target)


def test_registering_twice_has_to_be_asked_for():
    backends = built_in(cpu=fake())
    first, second = fake(), fake()
    backends.register("mine", first)
    one = backends.get("mine")
    with pytest.raises(ValueError, match="is already registered"):
        backends.register("mine", second)
    assert backends.get("mine") is one
    backends.register("mine", second, replace=True)
    assert type(backends.get("mine")) is second
    backends.unregister("mine")
    with pytest.raises(UnknownBackendError):
        backends.get("mine")
    for name in ("mine", "cpu"):
        with pytest.raises(ValueError, match="was not registered"):
            backends.unregister(name)


def test_a_registered_backend_never_shadows_an_installed_one(site):
    site.backend("plug")
    site.distribution("plug-dist", "1.0", plug="plug:Plugin")
    backends = built_in(cpu=fake())
    backends.register("plug", fake(), replace=True)
    with pytest.raises(BackendLoadError, match=r"ambiguous: registered \(.*\) and plug-dist 1\.0"):
        backends.get("plug")
    backends.register("plug", "plug:Plugin", replace=True)
    assert backends.get("plug").name == "plug"


# ---- opening ---------------------------------------------------------------------------------------


def test_get_probes_names_opens_and_keeps():
    cpu = fake()
    backends = built_in(cpu=cpu)
    backend = backends.get("cpu")
    assert backends.get("cpu") is backend
    assert cpu.log == ["probe", "open cpu"]


def test_a_backend_whose_opening_was_interrupted_can_be_opened():
    at, where = 0, "begin"
    while where:
        at += 1
        backends, interrupter = built_in(cpu=fake()), Interrupter(at, KeyboardInterrupt)
        interrupter.strike(backends.get, "cpu")
        where = interrupter.where
        there = in_thread(backends.get, "cpu")
        assert backends.get("cpu") is there, f"interrupted at {where}"
    assert at > 50


def test_what_probes_unusable_is_not_opened():
    backend = fake(usable=False, reason="its library is missing. Install it.")
    backends = built_in(cuda=backend)
    with pytest.raises(BackendUnavailableError) as info:
        backends.get("cuda")
    assert str(info.value) == "backend 'cuda' is not available: its library is missing. Install it."
    assert info.value.reasons == {"cuda": "its library is missing. Install it"}
    assert backend.log == ["probe"]


def test_a_probe_that_misbehaves_is_reported():
    def burn(cls):
        raise OSError("on fire")

    backends = built_in(cpu=fake(probe=classmethod(burn)), cuda=fake(probe=classmethod(lambda cls: None)))
    with pytest.raises(
        BackendUnavailableError, match=r"its probe\(\) must not raise, but raised OSError: on fire\.$"
    ):
        backends.get("cpu")
    with pytest.raises(BackendUnavailableError, match=r"its probe\(\) returned NoneType"):
        backends.get("cuda")


@pytest.mark.promise("reasons-of-all-backends")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BackendUnavailableError("no device."), "no device"),
        (BackendUnavailableError("backend 'cuda' is not available: no device."), "no device"),
        (BackendUnavailableError("whatever", reasons={"cuda": "no device"}), "no device"),
        (RuntimeError("boom"), "its open() raised RuntimeError: boom"),
    ],
)
def test_an_open_that_fails_is_explained_and_tried_again(error, reason):
    backend = fake(open_error=error)
    backends = built_in(cuda=backend)
    with pytest.raises(BackendUnavailableError) as info:
        backends.get("cuda")
    assert str(info.value) == f"backend 'cuda' is not available: {reason}."
    assert info.value.reasons == {"cuda": reason}
    assert info.value.__cause__ is error
    [row] = backends.report()
    assert (row.opened, row.usable, row.reason) == (False, False, reason)
    backends.refresh()
    assert backends.report()[0].usable
    backend.open_error = None
    assert type(backends.get("cuda")) is backend
    [row] = backends.report()
    assert (row.opened, row.usable, row.reason) == (True, True, "")


def test_an_open_that_asks_for_itself_is_an_error_and_no_deadlock():
    backends = built_in(cpu=fake(open=lambda self: backends.get("cpu")))
    with pytest.raises(BackendUnavailableError, match=r"its open\(\) asks for the backend that it opens"):
        backends.get("cpu")
