"use strict";
// The map: who reads, asks and delegates to whom; an arrow is as thick as what went along it.
(function () {
  const { html } = Lemming;
  const { useState, useLayoutEffect } = Lemming.hooks;
  const { Empty, amount, hue } = Lemming.ui;
  const { useWidth } = Lemming.charts;

  const BOX = { width: 132, height: 56 };
  const GAP = { columns: { x: 226, y: 96 }, circle: { x: 210, y: 104 }, large: { x: 132, y: 72 } };
  const LEAST_SCALE = 0.72, MOST_SCALE = 1.2; // names can still be read, and look like names elsewhere
  const KINDS = { reads: "is read by", asks: "asks", hands: "delegates to" };
  const SPEAKS = { person: "a person speaks for it", channel: "a channel", model: "a model", broken: "its resume is broken" };
  const wide = (traffic) => 1 + Math.min(4, Math.log2(1 + traffic) * 0.55);
  const MANY = 12; // of so many boxes, what one reads of everybody is pale until it is pointed at

  function Map_({ value, params, page }) {
    const [held, hold] = useState("");
    if (!value.nodes.length) return html`<${Empty} title="No agents yet"><code>lemming agents new NAME</code> creates one.<//>`;
    const choose = (event) => {
      const agent = event.target.value.trim();
      if (!agent || value.names.includes(agent)) Lemming.go("map", { ...params, agent });
    };
    const others = value.left_out ? `${amount(value.left_out)} ${value.left_out === 1 ? "other is" : "others are"} not drawn` : "all agents";
    return html`<section class="map">
      <div class="tools"><input data-search type="search" list="names" aria-label="draw one agent and its neighbours" placeholder="One agent and its neighbours  /" value=${value.agent} onChange=${choose} />
        <datalist id="names">${value.names.slice(0, 1000).map((name) => html`<option value=${name}></option>`)}</datalist>
        ${value.agent ? html`<a class="button" href=${Lemming.link("map")}>everybody</a><a class="button" href=${Lemming.link("agent", { name: value.agent })}>${value.agent} itself</a>` : null}
        <span class="count">${value.agent ? `${value.agent} and its neighbours; ` : ""}${others}</span>
        ${page.is_report ? null : html`<label class="count">traffic of the newest <select aria-label="how many ticks" value=${params.ticks || "100"} onChange=${(event) => Lemming.go("map", { ...params, ticks: event.target.value })}>
          ${["1", "10", "100", "1000"].map((each) => html`<option>${each}</option>`)}</select> ticks</label>`}</div>
      <${Drawing} value=${value} held=${held} hold=${hold} />
      <div class="key map-key">${Object.entries(KINDS).map(([kind, name]) => html`<span class=${kind}><svg width="34" height="12" aria-hidden="true"><path class="arrow ${kind}" d="M2 6H26" stroke-width="2" /><path class="head ${kind}" d="M26 2L33 6L26 10Z" /></svg>${name}</span>`)}
        <span><svg width="34" height="12" aria-hidden="true"><path class="arrow reads" d="M2 6H32" stroke-width="6" /></svg>thicker: more went that way; in the colour of who wrote</span>
        <span><svg width="34" height="12" aria-hidden="true"><path class="arrow reads unused" d="M2 6H32" stroke-width="1" /></svg>allowed, no traffic</span></div>
      <details class="others"><summary>${amount(value.arrows.length)} ${value.arrows.length === 1 ? "way" : "ways"}, in words</summary><ul class="list">${value.arrows.slice(0, 300).map((arrow) => html`<li>${arrow.from} ${KINDS[arrow.kind]} ${arrow.to}: ${arrow.traffic || "nothing yet"}</li>`)}</ul></details></section>`;
  }

  function Drawing({ value, held, hold }) {
    const isLarge = value.nodes.length > MANY, gap = value.form === "circle" ? (isLarge ? GAP.large : GAP.circle) : GAP.columns;
    const place = new Map(value.nodes.map((node) => [node.name, { x: node.x * gap.x, y: node.y * gap.y }]));
    const xs = value.nodes.map((node) => node.x * gap.x), ys = value.nodes.map((node) => node.y * gap.y);
    const ways = value.form === "circle" ? bentWays(value.arrows, place) : routed(value.arrows, place);
    const margin = { x: BOX.width / 2 + (value.form === "circle" ? 16 : 60), y: BOX.height / 2 + 24 };
    const heights = ways.flatMap((way) => way.heights);
    const box = { x: Math.min(...xs) - margin.x, y: Math.min(Math.min(...ys) - margin.y, ...heights.map((y) => y - 12)) };
    const size = { x: Math.max(...xs) - box.x + margin.x, y: Math.max(Math.max(...ys) + margin.y, ...heights.map((y) => y + 12)) - box.y };
    const touches = (arrow) => !held || arrow.from === held || arrow.to === held;
    const near = new Set(held ? value.arrows.filter(touches).flatMap((arrow) => [arrow.from, arrow.to]).concat(held) : []);
    const [frame, width] = useWidth(0);
    useLayoutEffect(() => {
      const shown = frame.current; // where it is wider than the screen, its middle is what is in sight
      if (shown.scrollWidth > shown.clientWidth) shown.scrollTop = (shown.scrollHeight - shown.clientHeight) / 2;
    }, [width, value.agent, value.nodes.length]);
    const scale = width ? Math.min(MOST_SCALE, Math.max(LEAST_SCALE, (width - 2) / size.x)) : 1;
    return html`<div class="drawing" ref=${frame} tabindex="0" role="region" aria-label="map of the agents; it may be wider than the screen"><svg viewBox=${`${box.x} ${box.y} ${size.x} ${size.y}`} width=${size.x * scale} height=${size.y * scale}
        role="group" aria-label=${`${value.nodes.length} agents and ${value.arrows.length} ways between them`}>
      ${[...ways].sort((one, other) => touches(one.arrow) - touches(other.arrow)).map((way) => html`<${Way} key=${way.arrow.from + way.arrow.kind + way.arrow.to} way=${way} held=${held} isPale=${way.arrow.is_wide && (!way.arrow.traffic || isLarge)} isDim=${!touches(way.arrow)} isHeld=${Boolean(held) && touches(way.arrow)} />`)}
      ${value.nodes.map((node) => html`<${Box} key=${node.name} node=${node} at=${place.get(node.name)} isDim=${Boolean(held) && !near.has(node.name)} isMiddle=${node.name === value.agent} hold=${hold} />`)}</svg></div>`;
  }

  function Way({ way, held, isPale, isDim, isHeld }) {
    const { arrow, path, tip, begin } = way;
    const told = `${arrow.from} ${KINDS[arrow.kind]} ${arrow.to}: ${arrow.traffic ? amount(arrow.traffic) : "nothing yet"}`;
    const looks = `${arrow.kind}${arrow.traffic ? "" : " unused"}`;
    const thick = wide(arrow.traffic), far = arrow.to === held ? begin : tip;
    return html`<g class="way ${looks}${isPale ? " wide" : ""}${isDim ? " dim" : ""}${isHeld ? " held" : ""}" style=${{ "--hue": String(hue(arrow.from)) }} role="img" aria-label=${told}><title>${told}</title><path class="reach" d=${path} />
      <path class="arrow ${looks}" d=${path} stroke-width=${thick} /><path class="head ${looks}" d="M-9 -5L0 0L-9 5Z" transform=${`translate(${tip.x} ${tip.y}) rotate(${tip.turn}) scale(${0.9 + thick / 12})`} />
      ${isHeld && arrow.traffic ? html`<text class="traffic" x=${far.x + (far.side || 0) * 14} y=${far.y - 6} text-anchor="middle">${amount(arrow.traffic)}</text>` : null}</g>`;
  }

  // --- in columns: through the gaps between boxes, never behind one ---

  const LANE = 7;

  // The ways of arrows between columns: from one side of a box through a gap of every column on the way to a side of the
  // other. Arrows that share a gap, or a side of a box, lie beside each other in the order in which they come.
  function routed(arrows, place) {
    const columns = [...new Set([...place.values()].map((at) => at.x))].sort((one, other) => one - other);
    const boxesIn = columns.map((x) => [...place.values()].filter((at) => at.x === x).map((at) => at.y).sort((one, other) => one - other));
    const ways = arrows.map((arrow) => {
      const from = place.get(arrow.from), to = place.get(arrow.to), onward = to.x >= from.x ? 1 : -1;
      const first = columns.indexOf(from.x), last = columns.indexOf(to.x), points = [];
      for (let at = first + onward; first !== last && at !== last; at += onward) {
        const ideal = from.y + ((to.y - from.y) * (columns[at] - from.x)) / (to.x - from.x);
        points.push({ column: at, ideal, gap: nearestGap(boxesIn[at], ideal) });
      }
      const end = first === last ? 1 : -onward;
      return { arrow, from, to, onward, points, end, begin: { x: from.x + (onward * BOX.width) / 2, y: from.y, side: onward }, tip: { x: to.x + (end * BOX.width) / 2, y: to.y, side: end, turn: end > 0 ? 180 : 0 } };
    });
    for (const [at, boxes] of boxesIn.entries())
      for (let gap = 0; gap <= boxes.length; gap++) spread(ways.flatMap((way) => way.points.filter((point) => point.column === at && point.gap === gap)), boxes, gap);
    for (const at of place.values())
      for (const side of [-1, 1]) {
        const ends = ways.flatMap((way) => [
          ...(way.from === at && way.begin.side === side ? [{ port: way.begin, towards: way.points.length ? way.points[0].y : way.to.y }] : []),
          ...(way.to === at && way.tip.side === side ? [{ port: way.tip, towards: way.points.length ? way.points[way.points.length - 1].y : way.from.y }] : []),
        ]);
        ends.sort((one, other) => one.towards - other.towards);
        const step = Math.min(9, (BOX.height - 12) / Math.max(1, ends.length - 1));
        ends.forEach((end, number) => (end.port.y = at.y + (number - (ends.length - 1) / 2) * step));
      }
    return ways.map((way) => ({ ...way, path: through(way, columns), heights: way.points.map((point) => point.y) }));
  }

  // Which gap of a column is nearest to a height: 0 is above its first box, and so on.
  function nearestGap(boxes, y) {
    const middle = (gap) => (gap === 0 ? boxes[0] - BOX.height : gap === boxes.length ? boxes[gap - 1] + BOX.height : (boxes[gap - 1] + boxes[gap]) / 2);
    return Array.from({ length: boxes.length + 1 }, (_, gap) => gap).sort((one, other) => Math.abs(middle(one) - y) - Math.abs(middle(other) - y))[0];
  }

  // Gives each that passes through a gap a height of its own; above and below a column there is room for any number.
  function spread(points, boxes, gap) {
    points.sort((one, other) => one.ideal - other.ideal);
    const above = gap === 0, below = gap === boxes.length;
    const room = above || below ? Infinity : boxes[gap] - boxes[gap - 1] - BOX.height - 8;
    const step = Math.min(LANE, room / Math.max(1, points.length - 1));
    const edge = above ? boxes[0] - BOX.height / 2 - 10 : below ? boxes[gap - 1] + BOX.height / 2 + 10 : 0;
    points.forEach((point, number) => {
      point.y = above ? edge - (points.length - 1 - number) * step : below ? edge + number * step : (boxes[gap - 1] + boxes[gap]) / 2 + (number - (points.length - 1) / 2) * step;
    });
  }

  // Level where boxes are, bent between the columns.
  function through({ begin, tip, points, onward, end }, columns) {
    const stop = { x: tip.x + end * 6, y: tip.y };
    if (begin.side === tip.side) {
      const bow = 34 + Math.min(22, Math.abs(begin.y - tip.y) * 0.06);
      return `M${begin.x} ${begin.y}C${begin.x + bow} ${begin.y} ${stop.x + bow} ${stop.y} ${stop.x} ${stop.y}`;
    }
    const parts = [`M${begin.x} ${begin.y}`];
    let at = begin;
    const bend = (x, y) => {
      const middle = (at.x + x) / 2;
      parts.push(`C${middle} ${at.y} ${middle} ${y} ${x} ${y}`);
      at = { x, y };
    };
    for (const point of points) {
      bend(columns[point.column] - (onward * BOX.width) / 2, point.y);
      at = { x: columns[point.column] + (onward * BOX.width) / 2, y: point.y };
      parts.push(`L${at.x} ${at.y}`);
    }
    bend(stop.x, stop.y);
    return parts.join("");
  }

  // --- on a circle ---

  // Arrows between the same two run side by side: each gets a place beside the middle.
  function bentWays(arrows, place) {
    const beside = new Map();
    return arrows.map((arrow) => {
      const pair = [arrow.from, arrow.to].sort().join(" "), side = beside.get(pair) || 0;
      beside.set(pair, side + 1);
      const [path, tip, begin] = bent(place.get(arrow.from), place.get(arrow.to), (side % 2 ? -1 : 1) * Math.ceil(side / 2) * 11);
      return { arrow, path, tip, begin, heights: [] };
    });
  }

  // Bent towards the middle, the further apart the more, from edge to edge.
  function bent(from, to, shift) {
    const size = Math.hypot(from.x, from.y) + Math.hypot(to.x, to.y);
    const pull = 0.5 - 0.32 * Math.min(1, Math.hypot(from.x - to.x, from.y - to.y) / (size || 1));
    const middle = { x: (from.x + to.x) * pull + shift, y: (from.y + to.y) * pull + shift };
    const a = edge(from, middle), b = edge(to, middle);
    const turn = (Math.atan2(b.y - middle.y, b.x - middle.x) * 180) / Math.PI;
    return [`M${a.x} ${a.y}Q${middle.x} ${middle.y} ${b.x} ${b.y}`, { ...b, turn }, a];
  }

  // Where the line from a box's middle leaves the box.
  function edge(box, towards) {
    const dx = towards.x - box.x || 0.01, dy = towards.y - box.y || 0.01;
    const share = Math.min(BOX.width / 2 / Math.abs(dx), BOX.height / 2 / Math.abs(dy));
    return { x: box.x + dx * share, y: box.y + dy * share };
  }

  function Box({ node, at, isDim, isMiddle, hold }) {
    const told = `${node.name}, ${node.title ? node.title + ", " : ""}${SPEAKS[node.speaks]}${node.paused ? ", paused" : ""}; ${amount(node.wrote)} entries${node.reads_all ? "; reads everybody" : ""}`;
    const name = node.name.length > 15 ? node.name.slice(0, 14) + "…" : node.name;
    const about = node.paused ? "paused" : node.speaks === "model" ? (node.title.length > 16 ? node.title.slice(0, 15) + "…" : node.title) : node.speaks;
    const lines = [name, about, node.reads_all ? "reads everybody" : ""].filter(Boolean);
    return html`<a class=${`box ${node.speaks}${isDim ? " dim" : ""}${isMiddle ? " middle" : ""}${node.paused ? " paused" : ""}`} href=${Lemming.link("agent", { name: node.name })} aria-label=${lines.join(" ") + "; " + told} data-line
        style=${{ "--hue": String(hue(node.name)) }} transform=${`translate(${at.x - BOX.width / 2} ${at.y - BOX.height / 2})`}
        onMouseEnter=${() => hold(node.name)} onMouseLeave=${() => hold("")} onFocus=${() => hold(node.name)} onBlur=${() => hold("")}>
      <title>${told}</title><rect class="card-box" width=${BOX.width} height=${BOX.height} rx=${node.speaks === "person" ? BOX.height / 2 : 8} />
      <rect class="stripe" x="10" y=${BOX.height / 2 - 9} width="5" height="18" rx="2.5" />
      ${lines.map((line, place) => html`<text x="23" y=${BOX.height / 2 + 5 + (place - (lines.length - 1) / 2) * 14} class=${place ? "about" : "name"}>${line}</text>`)}</a>`;
  }

  Lemming.part("map", { title: "Map", key: "m", render: Map_ });
})();
