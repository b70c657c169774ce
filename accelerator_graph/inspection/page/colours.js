"use strict";

// The colours of nodes: by kind, or by a number that each node has.
const Colours = (() => {
  const FAMILIES = { mem_alloc: "alloc", mem_free: "alloc", conditional: "graph" };
  const KNOWN = ["kernel", "memset", "memcpy", "host", "alloc", "graph"];
  const NUMBERS = {
    time: { of: (node) => node.time, show: Words.time, share: (value, most) => value / most },
    size: { of: (node) => node.nbytes, show: Words.size, share: (value, most) => Math.log1p(value) / Math.log1p(most) },
  };

  const of = (kind) => Drawing.colour(KNOWN.includes(FAMILIES[kind] || kind) ? FAMILIES[kind] || kind : "other");

  // Returns the greatest of each number that any node has.
  function scales(nodes) {
    const found = {};
    for (const [name, number] of Object.entries(NUMBERS)) {
      const values = nodes.map(number.of).filter((value) => value != null);
      if (values.length) found[name] = values.reduce((a, b) => Math.max(a, b), 0);
    }
    return found;
  }

  function mixed(share) {
    const parts = (name) => Drawing.colour(name).match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
    const [low, high] = [parts("low"), parts("high")];
    return `rgb(${low.map((from, index) => Math.round(from + (high[index] - from) * share)).join(",")})`;
  }

  // Returns a function that gives an item its colour on one side.
  function painter(by, most) {
    const box = Drawing.colour("box"), kinds = new Map(), shades = Array.from({ length: 21 }, (_, step) => mixed(step / 20));
    return (item, side) => {
      const node = item.isGroup ? null : item.sides[side];
      if (!node) return box;
      if (by === "kind") {
        if (!kinds.has(node.kind)) kinds.set(node.kind, of(node.kind));
        return kinds.get(node.kind);
      }
      const value = NUMBERS[by].of(node);
      return value == null ? box : shades[Math.round(20 * NUMBERS[by].share(value, most || 1))];
    };
  }

  // Returns pairs of a colour and what it means.
  function legend(by, most, nodes) {
    if (by !== "kind") {
      return [[mixed(0), `${by} 0`], [mixed(1), `${by} ${NUMBERS[by].show(most)}`], [Drawing.colour("box"), `no ${by}`]];
    }
    const counts = new Map();
    for (const { kind } of nodes) counts.set(kind, (counts.get(kind) || 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]).map(([kind, count]) => [of(kind), kind, count]);
  }

  return { scales, painter, legend };
})();
