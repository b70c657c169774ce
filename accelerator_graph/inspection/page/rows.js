"use strict";

// What the page shows: a tree of groups, whose leaves are rows. A row has one node, or in a comparison up to two.
const Rows = (() => {
  const FEW = 300;
  const PART = 100;
  const SAME = 8;

  function count(number, noun, plural = `${noun}s`) {
    return `${number.toLocaleString("en")} ${number === 1 ? noun : plural}`;
  }

  function nodesOf(contents, prefix, lane) {
    const nodes = contents.nodes.map((node) => ({
      ...node, uid: prefix + node.id, lane: contents.lanes[node.id] + lane, before: [], after: [], labels: [],
    }));
    for (const [source, target, kind] of contents.edges) {
      nodes[target].before.push({ node: nodes[source], kind: kind || "" });
      nodes[source].after.push({ node: nodes[target], kind: kind || "" });
    }
    return nodes;
  }

  function group(name, items, more) {
    return { isGroup: true, name, items, open: false, ...more };
  }

  // A body stands to the right of all lanes around it, so that no edge of another node runs through it.
  const beside = (nodes) => 1 + nodes.reduce((most, node) => Math.max(most, node.lane), 0);

  const bodyName = (node, number) => `inside node ${node.uid}${node.bodies[number].case && `, ${node.bodies[number].case}`}`;

  function bodyOf(node, number, lane) {
    if (!node?.bodies?.[number]) return [];
    const nodes = nodesOf(node.bodies[number], `${node.uid}/${number}/`, lane);
    if (nodes.length) nodes[0].insideOf = node;
    return nodes;
  }

  function itemsOf(nodes) {
    const lane = beside(nodes);
    return nodes.flatMap((node) => [{ sides: [node] }, ...(node.bodies || []).map(
      (_, number) => group(bodyName(node, number), itemsOf(bodyOf(node, number, lane))),
    )]);
  }

  function byLabel(items, labels) {
    const sorted = [...labels].sort((a, b) => a.start - b.start || b.stop - a.stop);
    const root = group("", []);
    const stack = [{ group: root, stop: Infinity }];
    for (const item of items) {
      if (!item.isGroup) {
        const id = item.sides[0].id;
        while (stack.at(-1).stop <= id) stack.pop();
        while (sorted.length && sorted[0].start <= id) {
          const label = sorted.shift();
          if (label.stop <= id) continue;
          const inner = group(label.name, [], { label });
          stack.at(-1).group.items.push(inner);
          stack.push({ group: inner, stop: Math.min(label.stop, stack.at(-1).stop) });
        }
        item.sides[0].labels = stack.slice(1).map((each) => each.group.label);
      }
      stack.at(-1).group.items.push(item);
    }
    return root;
  }

  // Puts a label's rows into a group, as `byLabel`; a row that only the first graph has, into that of the same names.
  function compared({ rows, changes, inside = {} }, sides) {
    const root = group("", []), places = sides.map(beside), open = [root];
    const isSame = (one, other) => one === other || (one.side !== other.side && one.name === other.name);
    for (const [a, b] of rows) {
      const item = { sides: [a === null ? null : sides[0][a], b === null ? null : sides[1][b]] };
      item.mark = a === null ? "new" : b === null ? "gone" : changes[b] ? "changed" : "";
      item.sentences = b === null ? [] : changes[b] || [];
      const { labels } = item.sides.findLast(Boolean);
      const both = open.slice(1).findIndex((each, depth) => !labels[depth] || !isSame(each.label, labels[depth]));
      open.length = both < 0 ? open.length : 1 + both;
      for (const label of labels.slice(open.length - 1)) {
        const inner = group(label.name, [], { label });
        open.at(-1).items.push(inner);
        open.push(inner);
      }
      open.at(-1).items.push(item, ...comparedBodies(item.sides, inside[b] || [], places));
    }
    fold(root);
    return root;
  }

  // Folds what is the same: long runs into groups of their own. Returns how many nodes a group has, and if any differs.
  function fold(parent) {
    let same = [], count = 0, total = 0, differs = false;
    const items = [], flush = () => {
      items.push(...(count < SAME || same.length < 2 ? same : [group(`${count} the same`, same, { counted: true })]));
      [same, count] = [[], 0];
    };
    for (const item of parent.items) {
      const [nodes, other] = item.isGroup ? fold(item) : [1, Boolean(item.mark)];
      total += nodes;
      differs ||= other;
      if (other) { flush(); items.push(item); } else { same.push(item); count += nodes; }
    }
    flush();
    Object.assign(parent, { items: !differs && parent.label ? parent.items : items, open: differs });
    return [total, differs];
  }

  // The bodies of a node, or of two that are the same; a body that only one of them has stands alone.
  function comparedBodies(nodes, known, places) {
    const count = Math.max(...nodes.map((node) => node?.bodies?.length || 0));
    return Array.from({ length: count }, (_, number) => {
      const sides = nodes.map((node, side) => bodyOf(node, number, places[side]));
      const alone = { rows: [...sides[0].map(({ id }) => [id, null]), ...sides[1].map(({ id }) => [null, id])], changes: {} };
      const named = nodes.findLast((node) => node?.bodies?.[number]);
      return group(bodyName(named, number), compared(known[number] || alone, sides).items);
    });
  }

  function finish(parent, depth) {
    while (parent.items.length > FEW) {
      const parts = [];
      for (let at = 0; at < parent.items.length; at += PART) {
        parts.push(group("", parent.items.slice(at, at + PART)));
      }
      parent.items = parts;
    }
    parent.depth = depth;
    parent.leaves = [];
    for (const item of parent.items) {
      item.parent = parent;
      parent.leaves = parent.leaves.concat(item.isGroup ? finish(item, depth + 1) : [item]);
    }
    if (!parent.name) named(parent);
    return parent.leaves;
  }

  // Names a part of a long list: by its first and last label, or by its nodes if it has no labels.
  function named(part) {
    part.labels = part.items.flatMap((item) => (item.label ? [item.name] : item.labels || []));
    const uids = [part.leaves[0], part.leaves.at(-1)].map((item) => item?.sides.find(Boolean).uid);
    const ends = part.labels.length ? [part.labels[0], part.labels.at(-1)] : uids, several = ends[0] !== ends[1];
    part.name = `${part.labels.length ? "" : several ? "nodes " : "node "}${several ? ends.join(" to ") : ends[0]}`;
    part.counted = !part.labels.length;
  }

  // Opens whole levels of groups, from the outside, as long as few rows are shown.
  function openSome(root) {
    let level = [root], shown = 0;
    while (level.length) {
      shown += level.reduce((sum, each) => sum + each.items.length, 0);
      if (shown > FEW) return;
      for (const each of level) each.open = true;
      level = level.flatMap((each) => each.items.filter((item) => item.isGroup));
    }
  }

  function tree(data) {
    const sides = data.graphs.map((graph) => nodesOf(graph, "", 0));
    if (data.rows) {
      data.graphs.forEach((graph, side) => {
        for (const label of graph.labels) label.side = side;
        byLabel(sides[side].map((node) => ({ sides: [node] })), graph.labels);
      });
    }
    const root = data.rows ? compared(data, sides) : byLabel(itemsOf(sides[0]), data.graphs[0].labels);
    finish(root, 0);
    root.open = true;
    if (!data.rows) openSome(root);
    return root;
  }

  // Returns what is shown: the rows and the names of groups, in order.
  function visible(parent) {
    return parent.items.flatMap((item) => (item.isGroup && item.open ? [item, ...visible(item)] : [item]));
  }

  function groups(parent) {
    return parent.items.flatMap((item) => (item.isGroup ? [item, ...groups(item)] : []));
  }

  return { tree, visible, groups, count };
})();
