"""Replay on the CPU backend against a plain loop over the same callables.

Usage: python benchmarks/replay_cpu.py [--rounds N].
"""

import argparse

from _measure import interleave, summary, table

import accelerator_graph as ag


def nothing():
    pass


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    with ag.Stream(backend="cpu") as stream, ag.Graph() as graph:
        for _ in range(1000):
            stream.launch(nothing)
    with stream, ag.Graph() as single:
        stream.launch(nothing)
    calls = [(nothing, (), {})] * 1000

    def plain():
        for fn, args, kwargs in calls:
            fn(*args, **kwargs)

    many, one = graph.bind(), single.bind()

    def replay():
        many()
        stream.synchronize()

    def handover():
        one()
        stream.synchronize()

    times = interleave(
        {"plain loop of 1000": plain, "replay of 1000 and synchronise": replay, "replay of 1": handover},
        rounds,
        1,
    )
    rows = summary(times, "plain loop of 1000")
    print(table("1000 empty callables on the CPU backend, ratio to the plain loop", rows))
    loop, whole, hand = (row["median_ns"] for row in rows.values())
    print(
        f"hand-over between threads: {hand / 1e3:.1f} us; without it {(whole - hand) / loop:.2f} of the loop"
    )
    limit = 1.5 * loop + 1e5
    print(f"to reach: at most 1.5 times the loop plus 100 us, {limit / 1e3:.0f} us; got {whole / 1e3:.0f} us")


if __name__ == "__main__":
    main()
