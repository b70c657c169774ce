"""Capturing and instantiating graphs of 1 to 1000 kernels: all libraries capture the same launches."""

from contextlib import ExitStack

from _lives import BARE, bare, ours
from _peers import peers
from _scene import scene_of

SIZES = (1, 10, 100, 1000)


def measure(plan):
    scene = scene_of(plan.backend)
    stream = scene.stream()
    alone = peers(plan, scene, frameworks=False)
    for n in SIZES:
        lives = {BARE: bare(scene, stream, n), **ours(scene, stream, n), **_lives(plan, alone, n)}
        times = plan.compare_lives("", n, lives, BARE, seconds=3, between=scene.wait)
        if n == 1000:
            for name in ours(scene, stream, n):
                ratios = [a["capture"] / b["capture"] for a, b in zip(times[name], times[BARE], strict=True)]
                plan.goal(f"capture of {n} kernels, {name}", ratios, 1.03)
    loaded = peers(plan, scene, frameworks=True)
    with ExitStack() as stack:
        for peer in loaded:
            stack.enter_context(peer.current())
        for n in SIZES if loaded else ():
            lives = {BARE: bare(scene, stream, n), **_lives(plan, loaded, n)}
            plan.compare_lives("beside frameworks:", n, lives, BARE, seconds=3, between=scene.wait)


def _lives(plan, found, nodes):
    lives = {}
    for peer in found:
        lives |= plan.tried(f"{peer.name}, {nodes}", peer.lives, nodes) or {}
    return lives
