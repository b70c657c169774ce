"""What distributions offer beside their backend: works for the conformance kit, kernels for the demo."""

import pytest

from accelerator_graph._demo import missing_members as problem_of_a_plate
from accelerator_graph._plugins.hooks import Hook
from accelerator_graph.errors import BackendContractError, BackendLoadError, UnsupportedError
from accelerator_graph.testing import Work
from accelerator_graph.testing.works import BUILTINS
from registry.fakes import no_environment_fixture, site_fixture  # noqa: F401

pytestmark = pytest.mark.usefixtures("no_environment")

WORKS, DEMO = "accelerator_graph.conformance", "accelerator_graph.demo"

COMPLETE = """
    from accelerator_graph.testing.works.host import HostWork
    class MyWork(HostWork):
        def __init__(self):
            super().__init__("myrt")
    class Half(HostWork.__mro__[1]):
        def new(self): ...
    class NoWork: ...
    a_work = MyWork()
    class MyPlate:
        default_size = default_steps = 4
        def restore(self, stream): ...
        def diffuse(self, stream, step, first, last): ...
        def read(self): ...
        def close(self): ...
    class HalfAPlate:
        default_size = 4
        def restore(self, stream): ...
"""


def works():
    return Hook(noun="work for the conformance kit", group=WORKS, builtins=BUILTINS, base=Work)


def plates():
    return Hook(noun="kernel for the demo", group=DEMO, builtins={}, problem=problem_of_a_plate)


def test_a_distribution_has_a_class_for_each(site):
    site.module("myrt_graph", COMPLETE)
    site.distribution("myrt", "1.0", group=WORKS, myrt="myrt_graph:MyWork")
    site.distribution("myrt_demo", "1.0", group=DEMO, myrt="myrt_graph:MyPlate")
    assert works().load("myrt")().backend == "myrt"
    assert plates().load("myrt").__name__ == "MyPlate"


def test_without_one_the_group_is_named():
    with pytest.raises(UnsupportedError) as caught:
        works().load("myrt")
    assert str(caught.value) == (
        "backend 'myrt' has no work for the conformance kit; its author can declare one in pyproject.toml: "
        '[project.entry-points."accelerator_graph.conformance"] myrt = "module:Class".'
    )


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ("myrt_graph:NoWork", BackendContractError, "is not a subclass of accelerator_graph.testing.*derive"),
        ("myrt_graph:a_work", BackendContractError, "is an object of type MyWork, not a class"),
        ("myrt_graph:Half", BackendContractError, "lacks the methods enqueue, read; implement them"),
        ("myrt_graph:Missing", BackendLoadError, "AttributeError.*repair or uninstall myrt-graph.$"),
        ("no_such_module:Work", BackendLoadError, "No module named 'no_such_module'"),
    ],
)
def test_a_broken_one_is_named_with_its_distribution(site, target, error, message):
    site.module("myrt_graph", COMPLETE)
    site.distribution("myrt-graph", "1.0", group=WORKS, myrt=target)
    with pytest.raises(error, match=message) as caught:
        works().load("myrt")
    who = f"the work for the conformance kit of backend 'myrt' (myrt-graph 1.0, {target}) "
    assert str(caught.value).startswith(who)
    assert works().load("cpu").__name__ == "HostWork"


def test_a_plate_has_every_member_of_the_protocol(site):
    site.module("myrt_graph", COMPLETE)
    site.distribution("myrt-graph", "1.0", group=DEMO, myrt="myrt_graph:HalfAPlate")
    with pytest.raises(BackendContractError, match="lacks close, default_steps, diffuse, read; the guide"):
        plates().load("myrt")


def test_names_of_built_in_backends_are_reserved(site):
    site.module("myrt_graph", COMPLETE)
    site.distribution("myrt-graph", "1.0", group=WORKS, cpu="myrt_graph:MyWork")
    assert works().load("cpu").__name__ == "HostWork"
    assert [each.origin for each in works().ignored()] == ["myrt-graph 1.0"]
