"""Giving a graph other work: in place, and by a new executable."""

from functools import partial

from _measure import loop
from _scene import scene_of

SIZES = (1, 10, 100, 1000)
BARE = "the binding: a new executable"
IN_PLACE = "accelerator_graph: update(), in place"
ANEW = "accelerator_graph: instantiate()"
LEAST = 5


def measure(plan):
    scene = scene_of(plan.backend)
    stream = scene.stream()
    for n in SIZES:
        graph, one, other = (scene.captured(n, stream) for _ in range(3))
        turns = [one, other]

        def update(graph=graph, turns=turns):
            turns.reverse()
            if not graph.update(turns[0]).in_place:
                raise RuntimeError("a graph of the same kernels was not updated in place")

        variants = {
            BARE: loop(partial(_anew, scene, scene.driver.CUgraph(one.raw_graph()))),
            "the binding: cuGraphExecUpdate": loop(_bare(scene, graph.clone(), turns)),
            ANEW: loop(one.instantiate),
            IN_PLACE: loop(update),
        }
        times = plan.compare("update", n, variants, BARE, seconds=1.5)
        if n == SIZES[-1] and IN_PLACE in times:
            faster = [anew[""] / here[""] for anew, here in zip(times[ANEW], times[IN_PLACE], strict=True)]
            plan.goal(
                f"instantiating {n} nodes, of the time of an update in place", faster, LEAST, least=True
            )


def _anew(scene, graph):
    scene.call("cuGraphExecDestroy", scene.instantiate(graph))


def _bare(scene, graph, turns):
    """Return the update by the binding alone, which compares nothing."""
    graph.instantiate()
    executable = scene.driver.CUgraphExec(graph.raw_executable())
    natives = [scene.driver.CUgraph(each.raw_graph()) for each in turns]

    def update():
        natives.reverse()
        code, _ = scene.driver.cuGraphExecUpdate(executable, natives[0])
        if int(code):
            raise RuntimeError(f"cuGraphExecUpdate answers {code.name}")

    update.graph = graph
    return update
