"use strict";

// Draws what cytoscape is spared in a graph of thousands of nodes: boxes and lines without text, behind its own.
const Overview = (() => {
  const LINES = 0.12, BORDERS = 0.2, RING = 7;

  function into(container) {
    const canvas = document.createElement("canvas");
    canvas.className = "overview";
    canvas.setAttribute("aria-hidden", "true");
    container.prepend(canvas);
    return canvas;
  }

  function paper({ overview, cy }) {
    const { clientWidth, clientHeight } = overview, zoom = cy.zoom(), { x, y } = cy.pan(), ratio = devicePixelRatio;
    const [width, height] = [Math.round(clientWidth * ratio), Math.round(clientHeight * ratio)];
    if (overview.width !== width || overview.height !== height) Object.assign(overview, { width, height });
    const context = overview.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, width, height);
    context.setTransform(ratio * zoom, 0, 0, ratio * zoom, ratio * x, ratio * y);
    return context;
  }

  function lines(context, edges, zoom) {
    context.strokeStyle = Drawing.colour("edge");
    context.lineWidth = Math.max(1.5, 0.6 / zoom);
    context.beginPath();
    for (const { line: [[x, y], ...others] } of edges) {
      context.moveTo(x, y);
      for (const point of others) context.lineTo(...point);
    }
    context.stroke();
  }

  function boxes(context, nodes, zoom) {
    const colours = Object.fromEntries(["box", "line", "edge", "new", "gone", "changed"].map((name) => [name, Drawing.colour(name)]));
    context.lineWidth = 1;
    for (const { element: { data }, kind, mark, left, right, top, bottom } of nodes) {
      if (kind === "header") title(context, data, { left, bottom, wide: right - left }, zoom);
      if (kind === "header" || kind === "hole") continue;
      context.fillStyle = kind === "box" ? colours.box : data.fill;
      context.fillRect(left, top, right - left, bottom - top);
      if (mark) {
        context.fillStyle = colours[mark];
        context.fillRect(left, top, Math.max(8, 3 / zoom), bottom - top);
      }
      if (zoom < BORDERS) continue;
      context.strokeStyle = kind === "box" ? colours.line : colours.edge;
      context.strokeRect(left, top, right - left, bottom - top);
    }
  }

  // The name of an open group, if there is room for some letters that can be read.
  function title(context, { text }, { left, bottom, wide }, zoom) {
    if (wide * zoom < 40) return;
    context.font = `bold ${10 / zoom}px system-ui, sans-serif`;
    context.fillStyle = Drawing.colour("soft");
    context.save();
    context.beginPath();
    context.rect(left, bottom - 16 / zoom, wide, 18 / zoom);
    context.clip();
    context.fillText(text, left + 3 / zoom, bottom);
    context.restore();
  }

  // Around what was found or chosen, as large on the screen from far as from near.
  function rings(context, places, colour, zoom) {
    context.strokeStyle = Drawing.colour(colour);
    context.lineWidth = 2.5 / zoom;
    for (const { left, right, top, bottom } of places) {
      const more = Math.max(3, (RING - (bottom - top) * zoom / 2) / zoom);
      context.strokeRect(left - more, top - more, right - left + 2 * more, bottom - top + 2 * more);
    }
  }

  function draw(view) {
    const context = paper(view), { cy, elements } = view;
    if (!view.many) return;
    const zoom = cy.zoom(), seen = Drawing.seeing(cy);
    const left = cy.nodes().empty() ? seen : (each) => seen(each) && cy.getElementById(each.element.data.id).empty();
    const nodes = elements.nodes.filter(left);
    boxes(context, nodes.filter(({ kind }) => kind === "box"), zoom);
    if (zoom >= LINES) lines(context, elements.edges.filter(left), zoom);
    boxes(context, nodes.filter(({ kind }) => kind !== "box"), zoom);
    const marked = (ids) => (ids.size ? nodes.filter(({ element }) => ids.has(element.data.id)) : []);
    rings(context, marked(view.hits), "hit", zoom);
    rings(context, marked(view.chosen), "accent", zoom);
  }

  return { into, draw };
})();
