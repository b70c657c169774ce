"use strict";

// What the page says about a node.
const Words = (() => {
  const UNITS = ["B", "KiB", "MiB", "GiB"];
  const frames = []; // those of stacks, by the numbers that nodes have
  const SIGNS = { new: "+ ", gone: "− ", changed: "≠ " };

  function size(bytes) {
    let unit = 0;
    while (bytes >= 1024 && unit < UNITS.length - 1) { bytes /= 1024; unit += 1; }
    return `${Number.isInteger(bytes) || bytes >= 100 ? bytes.toFixed(0) : bytes.toFixed(1)} ${UNITS[unit]}`;
  }

  // Microseconds in a unit that fits.
  function time(us) {
    const [shown, unit] = us < 999.5 ? [us, "us"] : us < 999.5e3 ? [us / 1e3, "ms"] : [us / 1e6, "s"];
    return `${Number(shown.toPrecision(3))} ${unit}`;
  }

  const timeOf = (label) => time(label.time) + (label.uncertain ? " ?" : "");
  const address = (value) => `0x${BigInt(value).toString(16)}`;
  const product = (sizes) => sizes.join(" × ");
  const place = (label) => `${label.name}${label.file ? ` (${label.file}:${label.line})` : ""}`;

  function title(node, names) {
    const name = node.name ? (names[node.name] || [node.name])[0] : "";
    if (name) return node.kind === "kernel" ? name : `${node.kind} ${name}`;
    return node.nbytes == null ? node.kind : `${node.kind} ${size(node.nbytes)}`;
  }

  // Returns the words in the box of an item: a name, which can be shortened, and what stands around it.
  function text(item, side, names) {
    if (item.isGroup) {
      const inside = item.leaves.filter((leaf) => leaf.sides[side]).length;
      const took = item.label?.time == null ? "" : ` · ${timeOf(item.label)}`;
      const count = item.open || item.counted ? "" : ` (${inside})`;
      return { before: item.open ? "▾ " : "▸ ", name: item.name, after: count + took, bold: true };
    }
    const node = item.sides[side];
    if (!node) return { before: "", name: "", after: "" };
    const after = node.enabled === false ? " (disabled)" : "";
    return { before: SIGNS[item.mark] || "", name: title(node, names), after };
  }

  // Returns pairs of a word and what it is; what the graph does not report is left out.
  function facts(node, names) {
    const is = (value, shown) => (value == null ? "" : shown(value));
    return [
      ["node", node.uid],
      ["kind", node.kind],
      [node.kind === "conditional" ? "condition" : "function", node.name ? (names[node.name] || [0, node.name])[1] : ""],
      ["called with", node.call || ""],
      ["recorded at", (node.stack || []).map((number) => frames[number]).join(", called at ")],
      ["defined at", node.file ? `${node.file}:${node.line}` : ""],
      ["grid", is(node.grid, product)],
      ["block", is(node.block, product)],
      ["shared memory", is(node.shared_bytes, size)],
      ["size", is(node.nbytes, (bytes) => (bytes < 1024 ? size(bytes) : `${size(bytes)} (${bytes.toLocaleString("en")} B)`))],
      ["value", is(node.value, String)],
      ["reads at", is(node.source, address)],
      [/memset|memcpy/.test(node.kind) ? "writes at" : "address", is(node.target, address)],
      ["state", node.enabled === false ? "disabled" : ""],
      ["inside", node.kind === "conditional" && !node.bodies ? "not reported by the driver" : ""],
      ["label", node.labels.map(place).join(" › ")],
      ["time", is(node.time, time)],
    ].filter(([, shown]) => shown !== "");
  }

  // Returns what a search looks through, in lower case.
  function haystack(node, names) {
    return [
      `#${node.uid}`, title(node, names), ...facts(node, names).slice(1).map(([, shown]) => shown),
    ].join("\n").toLowerCase();
  }

  return { frames, size, time, timeOf, address, place, title, text, facts, haystack };
})();
