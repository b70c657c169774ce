"use strict";

// Draws the shown items with cytoscape: branches side by side, and in as many columns as the window has room for.
const Drawing = (() => {
  const HEIGHT = 26, ROW = 46, BETWEEN = 18, GAP = 84, INDENT = 10, AROUND = 120, PADDING = 16;
  const NARROW = 168, WIDE = 264, WIDEST = 480, FEWEST = 8, MANY = 1500, READABLE = 0.5, LEGIBLE = 0.85, MARGIN = 0.25;
  const FONT = "12px system-ui, sans-serif", LONGEST = 300;
  let width = NARROW;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  function style() {
    const font = { "font-family": "system-ui, sans-serif", "font-size": 12, color: colour("text") };
    const line = { "line-color": colour("edge"), "target-arrow-color": colour("edge") };
    const marked = (name) => ({
      selector: `node.${name}`, style: { "border-color": colour(name), "border-width": 3 },
    });
    return [
      { selector: "node", style: {
        ...font, shape: "round-rectangle", width: "data(width)", height: HEIGHT, label: "data(text)", "background-color": "data(fill)",
        "border-width": 1, "border-color": colour("edge"), "text-valign": "center", "text-wrap": "ellipsis",
        "text-max-width": "data(width)", "min-zoomed-font-size": 6,
        "z-index-compare": "manual", "z-index": 100,
      } },
      { selector: "node.group", style: {
        "background-color": "data(fill)", "border-style": "double", "border-width": 4, "font-weight": "bold",
      } },
      { selector: "node.header", style: {
        "background-opacity": 0, "border-width": 0, "font-weight": "bold", color: "data(ink)",
        "text-halign": "center", "text-background-color": "data(fill)",
        "text-background-opacity": 1, "text-background-padding": 3,
      } },
      { selector: "node.box", style: {
        height: "data(height)", "background-color": colour("box"), "border-color": colour("line"),
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

  // Returns the line of each shown item: below those that it waits for and below the one before it in its lane, so
  // that branches are side by side. The name of an open group has a line of its own, and nobody else is in its lines.
  function linesOf(shown, lanes) {
    const known = new Map(), last = [], open = [];
    let floor = 0, bottom = -1;
    return shown.map((item) => {
      while (open.length && open.at(-1) !== item.parent) { open.pop(); floor = bottom + 1; }
      if (item.isGroup && item.open) {
        open.push(item);
        bottom += 1;
        floor = bottom + 1;
        return bottom;
      }
      const nodes = (item.isGroup ? item.leaves : [item]).flatMap((leaf) => leaf.sides.filter(Boolean)), lane = lanes.get(item);
      const above = nodes.flatMap((node) => [...node.before.map((each) => each.node), ...(node.insideOf ? [node.insideOf] : [])]);
      const line = above.reduce((most, node) => Math.max(most, 1 + (known.get(node) ?? -1)), Math.max(floor, 1 + (last[lane] ?? -1)));
      for (const node of nodes) known.set(node, line);
      last[lane] = line;
      bottom = Math.max(bottom, line);
      return line;
    });
  }

  const roomOf = (wide, columns, lanes) => ((wide - AROUND + GAP) / columns - GAP) / lanes - BETWEEN;

  // Returns the rows of a column and the width of a box: what can be read in the window, if that holds everything, else
  // what makes a whole of the window's shape.
  function shape(lines, widest, needed, { clientWidth, clientHeight }) {
    for (const zoom of [1, LEGIBLE]) {
      const rows = Math.max(FEWEST, Math.floor((clientHeight / zoom - AROUND + ROW) / ROW));
      const room = roomOf(clientWidth / zoom, Math.ceil(lines / rows), widest);
      if (room >= (zoom === 1 ? needed : Math.min(needed, NARROW))) return [rows, Math.min(needed, room)];
    }
    const wide = Math.min(needed, WIDE, Math.max(NARROW, roomOf(clientWidth, 1, widest))), step = widest * (wide + BETWEEN) + GAP;
    const whole = Math.sqrt((lines * step * Math.max(1, clientHeight)) / (ROW * Math.max(1, clientWidth)));
    const rows = Math.max(FEWEST, Math.floor(clientHeight / ROW), Math.ceil(whole));
    const room = roomOf(clientWidth, Math.ceil(lines / rows), widest);
    return [rows, room < NARROW ? wide : Math.min(wide, room)];
  }

  // Gives each shown item its place: a column of the page, and a row in it. Returns the rows of a column.
  function place(shown, needed, canvas) {
    const lanes = new Map(shown.map((item) => [item, laneOf(item)]));
    const widest = 1 + [...lanes.values()].reduce((a, b) => Math.max(a, b), 0), lines = linesOf(shown, lanes);
    const [rows, found] = shape(1 + lines.reduce((a, b) => Math.max(a, b), 0), widest, needed, canvas);
    width = Math.ceil(found);
    const lane = width + BETWEEN, step = widest * lane + GAP;
    shown.forEach((item, index) => {
      const line = lines[index], column = Math.floor(line / rows), left = column * step;
      item.place = {
        index, line, column, row: line % rows, left, right: left + (widest - 1) * lane,
        x: left + lanes.get(item) * lane, y: (line % rows) * ROW,
      };
    });
    return rows;
  }

  // Behind an open group: a box for each column that it reaches.
  function boxes(shown, rows) {
    const found = [], ends = new Map(); // the last line of each open group
    for (const { parent, place: { line } } of shown) {
      for (let each = parent; each; each = each.parent) ends.set(each, Math.max(line, ends.get(each) ?? 0));
    }
    for (const item of shown) {
      if (!item.isGroup || !item.open) continue;
      const { index, line, column, left, right } = item.place, end = ends.get(item) ?? line, step = right - left + width + BETWEEN + GAP;
      for (let from = line; from <= end; from = (Math.floor(from / rows) + 1) * rows) {
        const to = Math.min(end, (Math.floor(from / rows) + 1) * rows - 1), beyond = (Math.floor(from / rows) - column) * step;
        const wide = Math.max(6, 26 - item.depth * INDENT / 2), top = (from % rows) * ROW, bottom = (to % rows) * ROW;
        found.push({
          group: "nodes", classes: "box", position: { x: (left + right) / 2 + beyond, y: (top + bottom) / 2 }, pannable: true,
          data: {
            id: `box ${index} ${from}`, depth: item.depth, fill: "#000", width: right - left + width + 2 * wide,
            height: bottom - top + HEIGHT + Math.max(2, 12 - 2 * item.depth),
          },
        });
      }
    }
    return found;
  }

  // ---- the words in the boxes

  const context = document.createElement("canvas").getContext("2d");

  function measured(text, bold) {
    context.font = `${bold ? "bold " : ""}${FONT}`;
    return context.measureText(text).width;
  }

  const shortened = (name, most) => (name.length <= most ? name
    : `${name.slice(0, Math.ceil((most - 1) / 2))}…${name.slice(name.length - Math.floor((most - 1) / 2))}`);

  // Returns how wide a box has to be for the longest words.
  const needed = (words) => Math.min(WIDEST, PADDING + words.reduce(
    (most, { before, name, after, bold }) => Math.max(most, measured(before + shortened(name, LONGEST) + after, bold)), 0,
  ));

  // Returns the words, without the middle of the name if there is no room: kernels of one family differ at the end.
  function fitted({ before, name, after, bold }, room) {
    let low = 1, most = Math.min(name.length, LONGEST);
    const whole = (length) => before + shortened(name, length) + after;
    if (measured(whole(most), bold) <= room - PADDING) return whole(most);
    while (low < most) {
      const middle = Math.ceil((low + most) / 2);
      if (measured(whole(middle), bold) <= room - PADDING) low = middle;
      else most = middle - 1;
    }
    return whole(low);
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
    const down = HEIGHT / 2, side = width / 2, turn = a.x < b.x ? a.y + down + 6 : b.y - down - 6, gap = a.right + side + GAP / 2;
    if (a.column !== b.column) return [[a.x + side, a.y], [gap, a.y], [gap, b.y], [b.x - side, b.y]];
    return [[a.x, a.y + down], [a.x, turn], [b.x, turn], [b.x, b.y - down]];
  }

  function reaching(element) {
    const { classes, position: { x, y }, data: { width: wide, height = HEIGHT } } = element;
    const [[kind], [mark]] = [classes.match(/box|header|hole|$/), classes.match(/new|gone|changed|$/)];
    return { element, kind, mark, left: x - wide / 2, right: x + wide / 2, top: y - height / 2, bottom: y + height / 2 };
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
      const { index, x, y, right } = item.place;
      const hole = !item.isGroup && !item.sides[side];
      // The name of an open group is above its first branch, and may be as wide as all of them.
      const header = item.isGroup && item.open, words = text(item, side), [tint, ink] = fill(item, side);
      const wide = header ? Math.max(width, Math.min(right - x + width, needed([words]))) : width;
      found.push({
        group: "nodes", classes: [item.isGroup ? (header ? "header" : "group") : hole ? "hole" : "", item.mark || ""].join(" "),
        position: { x: x + (wide - width) / 2, y }, pannable: true,
        data: { id: `${index}`, text: hole ? "" : fitted(words, wide), fill: tint, ink, width: wide },
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

  return { LEGIBLE, colour, style, needed, place, elements, view, show, seeing, at };
})();
