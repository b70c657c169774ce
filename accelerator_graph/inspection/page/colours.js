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

  // Returns the greatest of each number: of the nodes, and of the labels, which have times of their own.
  function scales(nodes, labels) {
    const found = {};
    for (const [name, number] of Object.entries(NUMBERS)) {
      const most = (list) => list.map(number.of).filter((value) => value != null).reduce((a, b) => Math.max(a, b), -1);
      const [node, label] = [most(nodes), most(labels)];
      if (node >= 0 || label >= 0) found[name] = { node, label };
    }
    return found;
  }

  function mixed(share) {
    const parts = (name) => Drawing.colour(name).match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
    const [low, high] = [parts("low"), parts("high")];
    return `rgb(${low.map((from, index) => Math.round(from + (high[index] - from) * share)).join(",")})`;
  }

  // Returns a function that gives an item its colour on one side, and that of its words.
  function painter(by, most) {
    const [box, soft, text] = ["box", "soft", "text"].map(Drawing.colour), kinds = new Map();
    const shades = Array.from({ length: 21 }, (_, step) => mixed(step / 20));
    return (item, side) => {
      const node = item.isGroup ? item.label : item.sides[side];
      if (!node) return [box, soft];
      if (by === "kind") {
        if (item.isGroup) return [box, soft];
        if (!kinds.has(node.kind)) kinds.set(node.kind, of(node.kind));
        return [kinds.get(node.kind), text];
      }
      const value = NUMBERS[by].of(node), greatest = most[item.isGroup ? "label" : "node"];
      return value == null ? [box, soft] : [shades[Math.round(20 * NUMBERS[by].share(value, greatest || 1))], text];
    };
  }

  // Returns pairs of a colour and what it means.
  function legend(by, most, nodes) {
    if (by !== "kind") {
      const of = (value, whose) => (value < 0 ? [] : [[mixed(1), `${by}${whose} ${NUMBERS[by].show(value)}`]]);
      return [
        [mixed(0), `${by} 0`], ...of(most.node, most.label < 0 ? "" : " of a node"), ...of(most.label, " of a label"),
        [Drawing.colour("box"), `no ${by}`],
      ];
    }
    const counts = new Map();
    for (const { kind } of nodes) counts.set(kind, (counts.get(kind) || 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]).map(([kind, count]) => [of(kind), kind, count]);
  }

  return { scales, painter, legend };
})();
