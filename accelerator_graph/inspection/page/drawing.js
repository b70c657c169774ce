"use strict";

// Draws the shown rows with cytoscape: one row below the other, in as many columns as the window is wide.
const Drawing = (() => {
  const WIDTH = 168, HEIGHT = 26, LANE = 186, ROW = 46, GAP = 84, INDENT = 10;
  const FEWEST = 24, MANY = 1500, READABLE = 0.5, MARGIN = 0.25;

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

  // The body of a conditional node can be empty.
  const laneOf = (item) => (item.isGroup
    ? item.leaves.map(leftmost).reduce((a, b) => Math.min(a, b), item.leaves.length ? Infinity : 0)
    : Math.max(...item.sides.map((node) => (node ? node.lane : 0))));

  const leftmost = (leaf) => Math.min(...leaf.sides.filter(Boolean).map((node) => node.lane));

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
          group: "nodes", classes: "box", position: { x: (left + right) / 2, y: (y + shown[to].place.y) / 2 }, pannable: true,
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
      element: { group: "edges", data, classes: `${kind} ${course}` }, line: line(a, b),
      left: Math.min(a.x, b.x), right: Math.max(a.x, b.x), top: Math.min(a.y, b.y), bottom: Math.max(a.y, b.y),
    };
  }

  // The way of an edge, as points.
  function line(a, b) {
    const down = HEIGHT / 2, side = WIDTH / 2, turn = a.x < b.x ? a.y + down + 6 : b.y - down - 6, gap = a.right + side + GAP / 2;
    if (a.column !== b.column) return [[a.x + side, a.y], [gap, a.y], [gap, b.y], [b.x - side, b.y]];
    return [[a.x, a.y + down], [a.x, turn], [b.x, turn], [b.x, b.y - down]];
  }

  function reaching(element) {
    const { classes, position: { x, y }, data: { width = WIDTH, height = HEIGHT } } = element;
    const [[kind], [mark]] = [classes.match(/box|header|hole|$/), classes.match(/new|gone|changed|$/)];
    return { element, kind, mark, left: x - width / 2, right: x + width / 2, top: y - height / 2, bottom: y + height / 2 };
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
        group: "nodes", classes: [item.isGroup ? (header ? "header" : "group") : hole ? "hole" : "", item.mark || ""].join(" "),
        position: header ? { x: (left + right) / 2, y } : { x, y }, pannable: true,
        data: {
          id: `${index}`, text: hole ? "" : text(item, side), fill: fill(item, side), width: header ? right - left + WIDTH : WIDTH,
        },
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
    return { nodes: found.map(reaching), edges: [...edges.values()] };
  }

  function view(container) {
    return cytoscape({
      container, elements: [], style: style(), layout: { name: "preset" }, minZoom: 0.02, maxZoom: 3,
      autoungrabify: true, boxSelectionEnabled: false, autounselectify: true,
    });
  }

  // Of thousands of nodes cytoscape draws only those near the window, and only if their text can be read: each takes it
  // a quarter of a millisecond. The rest is the overview's.
  function show(view, all = false) {
    const { cy, elements } = view, wanted = new Map();
    view.many = elements.nodes.length > MANY && !all;
    if (!view.many) for (const { element } of [...elements.nodes, ...elements.edges]) wanted.set(element.data.id, element);
    else if (cy.zoom() >= READABLE) {
      const seen = seeing(cy, MARGIN);
      for (const each of elements.nodes) if (seen(each)) wanted.set(each.element.data.id, each.element);
      for (const { element } of elements.edges) {
        if (wanted.has(element.data.source) && wanted.has(element.data.target)) wanted.set(element.data.id, element);
      }
    }
    cy.batch(() => {
      cy.elements().filter((element) => !wanted.has(element.id())).remove();
      cy.add([...wanted.values()].filter(({ data }) => cy.getElementById(data.id).empty()));
    });
  }

  // Returns whether something can be seen, or would be in a window that is larger by a part of itself on each side.
  function seeing(cy, margin = 0) {
    const { x1, x2, y1, y2, w, h } = cy.extent();
    return ({ left, right, top, bottom }) => left < x2 + margin * w && right > x1 - margin * w
      && top < y2 + margin * h && bottom > y1 - margin * h;
  }

  // Returns the number of the row at a place, or a few pixels beside it, of which cytoscape draws nothing.
  function at(view, { x, y }) {
    const slack = 4 / view.cy.zoom();
    let found, least = slack;
    for (const { element, kind, left, right, top, bottom } of view.elements.nodes) {
      const away = Math.max(left - x, x - right, top - y, y - bottom);
      if (away < least && kind !== "box" && kind !== "hole") [found, least] = [Number(element.data.id), away];
    }
    return found;
  }

  return { colour, style, place, elements, view, show, seeing, at };
})();
