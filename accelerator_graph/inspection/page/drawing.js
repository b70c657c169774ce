"use strict";

// Draws the shown rows with cytoscape: one row below the other, in as many columns as the window is wide.
const Drawing = (() => {
  const WIDTH = 168, HEIGHT = 26, LANE = 186, ROW = 46, GAP = 84, INDENT = 10;
  const FEWEST = 24, MANY = 1500;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  function style() {
    const font = { "font-family": "system-ui, sans-serif", "font-size": 12, color: colour("text") };
    const line = { "line-color": colour("edge"), "target-arrow-color": colour("edge") };
    const marked = (name) => ({
      selector: `node.${name}`, style: { "border-color": colour(name), "border-width": 3 },
    });
    return [
      { selector: "node", style: {
        ...font, shape: "round-rectangle", width: WIDTH, height: HEIGHT, label: "data(text)", "background-color": "data(fill)",
        "border-width": 1, "border-color": colour("edge"), "text-valign": "center", "text-wrap": "ellipsis",
        "text-max-width": WIDTH - 12, "min-zoomed-font-size": 6,
        "z-index-compare": "manual", "z-index": 100,
      } },
      { selector: "node.group", style: {
        "background-color": colour("box"), "border-style": "double", "border-width": 4, "font-weight": "bold",
      } },
      { selector: "node.header", style: {
        "background-opacity": 0, "border-width": 0, "font-weight": "bold", color: colour("soft"), width: "data(width)",
        "text-halign": "center", "text-max-width": "data(width)", "text-background-color": colour("box"),
        "text-background-opacity": 1, "text-background-padding": 3,
      } },
      { selector: "node.box", style: {
        width: "data(width)", height: "data(height)", "background-color": colour("box"), "border-color": colour("line"),
        events: "no", "z-index": "data(depth)", label: "",
      } },
      { selector: "node.hole", style: {
        "background-opacity": 0, "border-style": "dashed", "border-color": colour("line"), label: "", events: "no",
      } },
      marked("new"), marked("gone"), marked("changed"),
      { selector: "edge", style: {
        ...line, width: 1.5, "target-arrow-shape": "triangle", "arrow-scale": 0.8, "curve-style": "straight",
        "taxi-direction": "downward", "taxi-turn-min-distance": 2, "z-index-compare": "manual", "z-index": 50,
      } },
      { selector: "edge.fork", style: { "curve-style": "taxi", "taxi-turn": "6px" } },
      { selector: "edge.join", style: { "curve-style": "taxi", "taxi-turn": "-6px" } },
      { selector: "edge.across", style: { "curve-style": "taxi", "taxi-turn": "data(turn)", "taxi-direction": "rightward" } },
      { selector: "edge.programmatic", style: { "line-style": "dashed" } },
      { selector: "edge.inside", style: { "line-style": "dotted", "target-arrow-shape": "none" } },
      { selector: "node.hit", style: { "border-color": colour("hit"), "border-width": 3 } },
      { selector: "edge.near", style: {
        width: 3, "line-color": colour("accent"), "target-arrow-color": colour("accent"), "z-index": 60,
      } },
      { selector: "node.chosen", style: {
        "border-color": colour("accent"), "border-width": 4, "border-style": "solid",
        "underlay-color": colour("accent"), "underlay-opacity": 0.25, "underlay-padding": 5, "underlay-shape": "round-rectangle",
      } },
    ];
  }

  const laneOf = (item) => (item.isGroup
    ? Math.min(...item.leaves.flatMap((leaf) => leaf.sides.filter(Boolean).map((node) => node.lane)))
    : Math.max(...item.sides.map((node) => (node ? node.lane : 0))));

  // Gives each shown item its place: a column of the page, and a row in it.
  function place(shown, aspect) {
    const lanes = new Map(shown.map((item) => [item, item.isGroup && item.open ? 0 : laneOf(item)]));
    const widest = 1 + [...lanes.values()].reduce((a, b) => Math.max(a, b), 0);
    const step = widest * LANE + GAP;
    const rows = Math.max(FEWEST, Math.ceil(Math.sqrt((shown.length * step) / (ROW * aspect))));
    shown.forEach((item, index) => {
      const column = Math.floor(index / rows);
      item.place = {
        index, column, row: index % rows, left: column * step, right: column * step + (widest - 1) * LANE,
        x: column * step + lanes.get(item) * LANE, y: (index % rows) * ROW,
      };
    });
    return rows;
  }

  // Behind an open group: a box for each column that it reaches.
  function boxes(shown, rows) {
    const found = [];
    shown.forEach((item, first) => {
      if (!item.isGroup || !item.open) return;
      let last = first;
      while (last + 1 < shown.length && within(shown[last + 1], item)) last += 1;
      for (let from = first; from <= last; from = (Math.floor(from / rows) + 1) * rows) {
        const to = Math.min(last, (Math.floor(from / rows) + 1) * rows - 1);
        const { left, right, y } = shown[from].place;
        const wide = Math.max(6, 26 - item.depth * INDENT / 2);
        found.push({
          classes: "box", position: { x: (left + right) / 2, y: (y + shown[to].place.y) / 2 }, pannable: true,
          data: {
            id: `box ${first} ${from}`, depth: item.depth, fill: "#000", width: right - left + WIDTH + 2 * wide,
            height: shown[to].place.y - y + HEIGHT + Math.max(2, 12 - 2 * item.depth),
          },
        });
      }
    });
    return found;
  }

  function within(item, group) {
    for (let each = item.parent; each; each = each.parent) if (each === group) return true;
    return false;
  }

  function edge(source, target, kind) {
    const a = source.place, b = target.place;
    const data = {
      id: `${a.index} ${b.index}`, source: `${a.index}`, target: `${b.index}`, turn: `${a.right - a.x + GAP / 2}px`,
    };
    const course = a.column !== b.column ? "across" : a.x === b.x ? "" : a.x < b.x ? "fork" : "join";
    return {
      element: { data, classes: `${kind} ${course}` },
      left: Math.min(a.x, b.x), right: Math.max(a.x, b.x), top: Math.min(a.y, b.y), bottom: Math.max(a.y, b.y),
    };
  }

  // Returns the nodes of one side, and its edges with what they reach.
  function elements(shown, rows, side, text, fill) {
    const of = new Map();
    for (const item of shown) {
      if (!item.isGroup) of.set(item.sides[side], item);
      else if (!item.open) for (const leaf of item.leaves) of.set(leaf.sides[side], item);
    }
    const found = boxes(shown, rows), edges = new Map();
    for (const item of shown) {
      const { index, x, y, left, right } = item.place;
      const hole = !item.isGroup && !item.sides[side];
      const header = item.isGroup && item.open;
      found.push({
        classes: [item.isGroup ? (header ? "header" : "group") : hole ? "hole" : "", item.mark || ""].join(" "),
        position: header ? { x: (left + right) / 2, y } : { x, y }, pannable: true,
        data: { id: `${index}`, text: hole ? "" : text(item, side), fill: fill(item, side), width: right - left + WIDTH },
      });
      if (hole) found.at(-1).classes = "hole";
    }
    for (const [node, item] of of) {
      if (!node) continue;
      const sources = node.before.map((each) => [of.get(each.node), each.kind]);
      if (node.insideOf) sources.push([of.get(node.insideOf), "inside"]);
      for (const [source, kind] of sources) {
        if (!source || source === item) continue;
        const made = edge(source, item, kind);
        edges.set(made.element.data.id, made);
      }
    }
    return { nodes: found, edges: [...edges.values()] };
  }

  function view(container) {
    return cytoscape({
      container, elements: [], style: style(), layout: { name: "preset" }, minZoom: 0.02, maxZoom: 3,
      autoungrabify: true, boxSelectionEnabled: false, autounselectify: true,
    });
  }

  // Of thousands of edges only those are drawn that can be seen, since they take most of the time. While thousands of
  // small nodes are dragged, cytoscape moves a picture of them instead of drawing each.
  function addEdges(cy, edges) {
    const many = edges.length > MANY, far = cy.zoom() < 0.25, { x1, x2, y1, y2 } = cy.extent();
    const seen = (each) => each.left < x2 && each.right > x1 && each.top < y2 && each.bottom > y1;
    cy.renderer().textureOnViewport = many && far;
    cy.batch(() => {
      cy.edges().remove();
      cy.add((many ? (far ? [] : edges.filter(seen)) : edges).map((each) => each.element));
    });
    return many;
  }

  return { colour, style, place, elements, view, addEdges };
})();
