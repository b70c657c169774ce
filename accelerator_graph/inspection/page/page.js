"use strict";

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  Words.frames.push(...data.frames);
  const root = Rows.tree(data);
  const comparing = Boolean(data.rows);
  const at = (id) => document.getElementById(id);
  const make = (tag, more, ...children) => {
    const element = Object.assign(document.createElement(tag), more);
    element.append(...children);
    return element;
  };
  let shown = [], chosen = null, matches = [], match = -1;

  const nodes = root.leaves.flatMap((item) => item.sides.filter(Boolean));
  const scales = Colours.scales(nodes, data.graphs.flatMap((graph) => graph.labels));

  function showLegend() {
    const by = at("colour").value;
    const entries = Colours.legend(by, scales[by], nodes).map(([fill, text, count]) => {
      const swatch = make("span", { className: "swatch" });
      swatch.style.background = fill;
      return make("li", {}, swatch, comparing || count === undefined ? text : `${text} ${count.toLocaleString("en")}`);
    });
    if (comparing) {
      const words = [["new", "+ new"], ["gone", "− gone"], ["changed", "≠ changed"]];
      entries.push(...words.map(([className, text]) => {
        const count = root.leaves.filter((item) => item.mark === className).length;
        return make("li", { className }, `${text}: ${count}`);
      }));
    }
    at("legend").replaceChildren(...entries);
  }

  // ---- the drawing

  const views = data.graphs.map((graph) => {
    const canvas = make("div", { className: "canvas", tabIndex: 0 });
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", `Drawing of ${graph.title || "the graph"}; the arrow keys go from node to node`);
    const heading = graph.title ? [make("p", {}, make("b", {}, graph.title), ` · ${Rows.count(graph.nodes.length, "node")}`)] : [];
    const printed = make("img", { className: "printed", alt: "" });
    at("views").append(make("div", { className: "view" }, ...heading, canvas, printed));
    const overview = Overview.into(canvas);
    return { canvas, overview, printed, cy: Drawing.view(canvas), hits: new Set(), chosen: new Set() };
  });
  const [{ cy }] = views;

  function draw() {
    shown = Rows.visible(root);
    const text = (...each) => Words.text(...each, data.names);
    const wide = Drawing.needed(shown.flatMap((item) => data.graphs.map((_, side) => text(item, side))));
    const rows = Drawing.place(shown, wide, views[0].canvas);
    const by = at("colour").value, fill = Colours.painter(by, scales[by]);
    views.forEach((view, side) => {
      view.cy.elements().remove();
      view.elements = Drawing.elements(shown, rows, side, text, fill);
      Drawing.show(view);
    });
    mark();
  }

  function mark() {
    const found = new Set(matches);
    const isHit = (item) => (item.isGroup ? !item.open && item.leaves.some((leaf) => found.has(leaf)) : found.has(item));
    const hits = new Set(), ids = new Set(chosen ? [`${shown.indexOf(chosen)}`] : []);
    if (found.size) shown.forEach((item, index) => isHit(item) && hits.add(`${index}`));
    for (const view of views) {
      Object.assign(view, { hits, chosen: ids });
      view.cy.batch(() => {
        view.cy.$(".chosen, .near, .hit").removeClass("chosen near hit");
        view.cy.nodes().filter((node) => hits.has(node.id())).addClass("hit");
        for (const id of ids) view.cy.getElementById(id).addClass("chosen").connectedEdges().addClass("near");
      });
      Overview.draw(view);
    }
  }

  // Shows everything if it can be read then, else the beginning.
  function begin() {
    everything();
    if (cy.zoom() < Drawing.LEGIBLE && shown.length) {
      const { nodes } = views[0].elements, least = (name) => nodes.reduce((found, each) => Math.min(found, each[name]), Infinity);
      cy.viewport({ zoom: 1, pan: { x: 30 - least("left"), y: 30 - least("top") } });
    }
  }

  function everything() {
    const [{ elements: { nodes }, canvas: { clientWidth, clientHeight } }] = views;
    const most = (name, sign) => sign * nodes.reduce((found, each) => Math.max(found, sign * each[name]), -Infinity);
    const [left, right, top, bottom] = [most("left", -1), most("right", 1), most("top", -1), most("bottom", 1)];
    if (!nodes.length) return;
    const zoom = Math.min(1.2, (clientWidth - 60) / (right - left), (clientHeight - 60) / (bottom - top));
    const pan = { x: (clientWidth - zoom * (left + right)) / 2, y: (clientHeight - zoom * (top + bottom)) / 2 };
    cy.viewport({ zoom, pan });
  }

  function into(item) {
    const { x, y } = item.place, zoom = Math.max(cy.zoom(), 0.7), { clientWidth, clientHeight } = views[0].canvas;
    const seen = cy.extent();
    const inside = x - 90 > seen.x1 && x + 90 < seen.x2 && y - 20 > seen.y1 && y + 20 < seen.y2;
    if (inside && cy.zoom() >= 0.5) return;
    cy.viewport({ zoom, pan: { x: clientWidth / 2 - x * zoom, y: clientHeight / 2 - y * zoom } });
  }

  function zoomed(factor) {
    const { clientWidth, clientHeight } = views[0].canvas;
    cy.zoom({ level: cy.zoom() * factor, renderedPosition: { x: clientWidth / 2, y: clientHeight / 2 } });
  }

  // ---- choosing and folding

  function choose(item, move = true) {
    if (!item) return;
    chosen = item;
    let changed = false;
    for (let each = item.parent; each; each = each.parent) {
      changed ||= !each.open;
      each.open = true;
    }
    if (changed) draw();
    else mark();
    if (move) into(item);
    showDetails();
  }

  function toggle(group) {
    const before = group.place;
    group.open = !group.open;
    draw();
    const zoom = cy.zoom();
    cy.panBy({ x: (before.x - group.place.x) * zoom, y: (before.y - group.place.y) * zoom });
    choose(group);
  }

  function foldAll(open) {
    for (const group of Rows.groups(root)) group.open = open;
    while (chosen && chosen.parent && !chosen.parent.open) chosen = chosen.parent;
    if (chosen === root) chosen = null;
    draw();
    everything();
    showDetails();
  }

  const itemOf = new Map(root.leaves.flatMap((item) => item.sides.filter(Boolean).map((node) => [node, item])));

  function links(list) {
    const most = 30;
    const buttons = list.slice(0, most).map(({ node, kind }) => make("button", {
      type: "button", onclick: () => choose(itemOf.get(node)),
    }, `${node.uid} ${Words.title(node, data.names)}${kind ? ` (${kind})` : ""}`));
    if (list.length > most) buttons.push(`and ${list.length - most} more`);
    return buttons.length ? buttons : ["nothing"];
  }

  function factsOf(node) {
    const list = make("dl");
    for (const [word, value] of Words.facts(node, data.names)) list.append(make("dt", {}, word), make("dd", {}, value));
    list.append(make("dt", {}, "waits for"), make("dd", {}, ...links(node.before)));
    list.append(make("dt", {}, "waited for by"), make("dd", {}, ...links(node.after)));
    return list;
  }

  function sentences() {
    const most = 100;
    const list = make("ul", {}, ...data.sentences.slice(0, most).map((each) => make("li", {}, each)));
    if (data.sentences.length > most) list.append(make("li", {}, `and ${data.sentences.length - most} more`));
    return list;
  }

  function showDetails() {
    if (!chosen) {
      at("details").replaceChildren(nodes.length ? at("reading").cloneNode(true) : "The graph has no nodes.");
      if (data.about) {
        at("details").prepend(
          make("h2", {}, "Times"), make("p", {}, data.about), make("ul", {}, ...data.notes.map((each) => make("li", {}, each))),
        );
      }
      if (comparing && data.sentences.length) {
        at("details").prepend(make("h2", {}, "What differs"), sentences(), make("p", {}, "n goes to the next difference, p to the previous one."));
      }
      return;
    }
    if (chosen.isGroup) {
      const kinds = new Map(), list = make("dl");
      for (const leaf of chosen.leaves) {
        const { kind } = leaf.sides.at(-1) || leaf.sides[0];
        kinds.set(kind, (kinds.get(kind) || 0) + 1);
      }
      const label = chosen.label;
      if (label?.file) list.append(make("dt", {}, "recorded at"), make("dd", {}, `${label.file}:${label.line}`));
      if (label?.time != null) list.append(make("dt", {}, "time"), make("dd", {}, Words.timeOf(label)));
      for (const [kind, count] of kinds) list.append(make("dt", {}, kind), make("dd", {}, count.toLocaleString("en")));
      const group = chosen;
      at("details").replaceChildren(
        make("h2", {}, group.name), list,
        make("p", {}, make("button", { type: "button", onclick: () => toggle(group) }, group.open ? "Fold" : "Unfold")),
      );
      return;
    }
    const [node] = chosen.sides.filter(Boolean).slice(-1);
    const parts = [make("h2", {}, Words.title(node, data.names))];
    if (chosen.mark) {
      const what = { new: "Only in the second graph.", gone: "Only in the first graph.", changed: "Different in the second graph:" };
      parts.push(make("p", { className: chosen.mark }, what[chosen.mark]));
      if (chosen.sentences.length) parts.push(make("ul", {}, ...chosen.sentences.map((each) => make("li", {}, each))));
    }
    at("details").replaceChildren(...parts, factsOf(node));
  }

  // ---- searching

  let haystacks = null;

  function search() {
    const wanted = at("search").value.trim().toLowerCase();
    haystacks ||= root.leaves.map((item) => item.sides.filter(Boolean).map((node) => Words.haystack(node, data.names)).join("\n"));
    const exact = /^\d[\d/]*$/.test(wanted) ? `#${wanted}\n` : null;
    matches = wanted ? root.leaves.filter((_, index) => haystacks[index].includes(exact || wanted)) : [];
    if (exact && !matches.length) matches = root.leaves.filter((_, index) => haystacks[index].includes(wanted));
    match = -1;
    at("found").value = wanted ? Rows.count(matches.length, "match", "matches") : "";
    mark();
  }

  // Without a search, the differences of two graphs are gone through.
  const marked = root.leaves.filter((item) => item.mark);

  function goTo(step) {
    const list = at("search").value.trim() ? matches : marked;
    if (!list.length) return;
    match = (match + step + list.length + (match < 0 && step < 0 ? 1 : 0)) % list.length;
    at("found").value = `${match + 1} of ${list.length.toLocaleString("en")}`;
    choose(list[match]);
  }

  // ---- keys, buttons and the mouse

  const sideNode = () => (chosen && !chosen.isGroup ? chosen.sides.filter(Boolean).at(-1) : null);
  const step = (by) => choose(shown[Math.min(Math.max(shown.indexOf(chosen) + by, 0), shown.length - 1)]);
  const follow = (list) => list && list.length && choose(itemOf.get(list[0].node));
  const KEYS = {
    ArrowDown: () => step(1),
    ArrowUp: () => step(-1),
    ArrowRight: () => (chosen?.isGroup ? !chosen.open && toggle(chosen) : follow(sideNode()?.after)),
    ArrowLeft: () => (chosen?.isGroup ? chosen.open && toggle(chosen) : follow(sideNode()?.before)),
    Home: () => choose(shown[0]),
    End: () => choose(shown.at(-1)),
    Enter: () => (chosen?.isGroup ? toggle(chosen) : chosen && chosen.parent !== root && toggle(chosen.parent)),
    n: () => goTo(1),
    p: () => goTo(-1),
    "+": () => zoomed(1.25),
    "=": () => zoomed(1.25),
    "-": () => zoomed(0.8),
    0: everything,
  };

  function press(event) {
    const act = event.ctrlKey || event.metaKey || event.altKey ? null : KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  for (const view of views) {
    view.canvas.addEventListener("keydown", press);
    view.cy.on("tap", (event) => {
      const item = shown[event.target === view.cy ? Drawing.at(view, event.position) : event.target.id()];
      view.canvas.focus({ preventScroll: true });
      if (!item) return;
      if (item.isGroup) toggle(item);
      else choose(item, false);
    });
    view.cy.on("render", () => Overview.draw(view));
    view.cy.on("viewport", () => {
      if (view.many) {
        clearTimeout(view.waiting);
        view.waiting = setTimeout(() => {
          if (!view.many) return; // it is being printed
          Drawing.show(view);
          mark();
        }, 120);
      }
      for (const other of views) {
        const { x, y } = other.cy.pan(), pan = view.cy.pan(), zoom = view.cy.zoom();
        if (other !== view && (x !== pan.x || y !== pan.y || other.cy.zoom() !== zoom)) other.cy.viewport({ zoom, pan: { ...pan } });
      }
    });
  }
  document.addEventListener("keydown", (event) => {
    const typing = /INPUT|SELECT|TEXTAREA/.test(event.target.tagName);
    if (event.key === "/" && !typing) {
      event.preventDefault();
      at("search").focus();
    } else if (event.key === "Escape") {
      at("search").value = "";
      at("help").open = false;
      search();
      views[0].canvas.focus({ preventScroll: true });
    } else if (event.target === document.body) {
      press(event);
    }
  });
  at("search").addEventListener("input", search);
  at("search").addEventListener("keydown", (event) => event.key === "Enter" && goTo(event.shiftKey ? -1 : 1));
  at("next").onclick = () => goTo(1);
  at("previous").onclick = () => goTo(-1);
  at("fold").onclick = () => foldAll(false);
  at("unfold").onclick = () => foldAll(true);
  at("fit").onclick = everything;
  at("larger").onclick = () => zoomed(1.25);
  at("smaller").onclick = () => zoomed(0.8);

  // ---- beginning

  function repaint() {
    for (const view of views) view.cy.style(Drawing.style());
    draw();
    showLegend();
  }

  // A page is printed in light colours, with a picture of the whole graph.
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("printing");
    repaint();
    for (const view of views) {
      Drawing.show(view, true);
      view.printed.src = view.cy.png({ full: true, maxWidth: 3000, maxHeight: 3000, bg: Drawing.colour("page") });
    }
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printing");
    repaint();
  });

  for (const name of ["kind", ...Object.keys(scales)]) at("colour").append(make("option", { value: name }, name));
  at("colour").value = scales.time ? "time" : "kind";
  at("colour").onchange = repaint;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  const hasGroups = Rows.groups(root).length > 0;
  at("fold").hidden = at("unfold").hidden = !hasGroups;
  at("summary").textContent = comparing
    ? (data.sentences.length ? Rows.count(data.sentences.length, "difference") : "The graphs are equal.")
    : `${Rows.count(data.graphs[0].nodes.length, "node")}, ${Rows.count(data.graphs[0].edges.length, "dependency", "dependencies")}`;
  showLegend();
  draw();
  begin();
  showDetails();
  window.page = { views, shown: () => shown, chosen: () => chosen };
})();
