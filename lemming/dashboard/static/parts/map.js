"use strict";
// The map: who reads, asks and hands on to whom; an arrow is as thick as what went along it.
(function () {
  const { html } = Lemming;
  const { useState } = Lemming.hooks;
  const { Empty, amount, hue } = Lemming.ui;
  const { useWidth } = Lemming.charts;

  const BOX = { width: 132, height: 56 };
  const GAP = { columns: { x: 226, y: 96 }, circle: { x: 168, y: 108 } };
  const LEAST_SCALE = 0.72; // names can still be read
  const KINDS = { reads: "is read by", asks: "asks", hands: "hands on to" };
  const SPEAKS = { person: "a person speaks for it", channel: "a channel", model: "a model", broken: "its resume is broken" };
  const wide = (traffic) => 1 + Math.min(5, Math.log2(1 + traffic) * 0.7);

  function Map_({ value, params, page }) {
    const [held, hold] = useState("");
    if (!value.nodes.length) return html`<${Empty} title="No agents yet"><code>lemming agents new NAME</code> makes one.<//>`;
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
        <span><svg width="34" height="12" aria-hidden="true"><path class="arrow reads" d="M2 6H32" stroke-width="6" /></svg>thicker: more went that way</span>
        <span><svg width="34" height="12" aria-hidden="true"><path class="arrow reads unused" d="M2 6H32" stroke-width="1" /></svg>may, and nothing went</span></div>
      <details class="others"><summary>${amount(value.arrows.length)} ${value.arrows.length === 1 ? "way" : "ways"}, in words</summary><ul class="list">${value.arrows.slice(0, 300).map((arrow) => html`<li>${arrow.from} ${KINDS[arrow.kind]} ${arrow.to}: ${arrow.traffic || "nothing yet"}</li>`)}</ul></details></section>`;
  }

  function Drawing({ value, held, hold }) {
    const gap = GAP[value.form] || GAP.columns;
    const place = new Map(value.nodes.map((node) => [node.name, { x: node.x * gap.x, y: node.y * gap.y }]));
    const xs = value.nodes.map((node) => node.x * gap.x), ys = value.nodes.map((node) => node.y * gap.y);
    const boxes = [...place.values()];
    const margin = { x: BOX.width / 2 + 16, y: BOX.height / 2 + 64 };
    const box = { x: Math.min(...xs) - margin.x, y: Math.min(...ys) - margin.y };
    const size = { x: Math.max(...xs) - box.x + margin.x, y: Math.max(...ys) - box.y + margin.y };
    const touches = (arrow) => !held || arrow.from === held || arrow.to === held;
    const near = new Set(held ? value.arrows.filter(touches).flatMap((arrow) => [arrow.from, arrow.to]).concat(held) : []);
    const ways = apart(value.arrows);
    const [frame, width] = useWidth(0);
    const scale = width ? Math.min(1, Math.max(LEAST_SCALE, (width - 2) / size.x)) : 1;
    return html`<div class="drawing" ref=${frame} tabindex="0" role="region" aria-label="map of the agents; it may be wider than the screen"><svg viewBox=${`${box.x} ${box.y} ${size.x} ${size.y}`} width=${size.x * scale} height=${size.y * scale}
        role="group" aria-label=${`${value.nodes.length} agents and ${value.arrows.length} ways between them`}>
      ${[...ways].sort((one, other) => touches(one.arrow) - touches(other.arrow)).map(({ arrow, side }) => html`<${Way} key=${arrow.from + arrow.kind + arrow.to} arrow=${arrow} side=${side} from=${place.get(arrow.from)} to=${place.get(arrow.to)} form=${value.form} boxes=${boxes} isDim=${!touches(arrow)} isHeld=${Boolean(held) && touches(arrow)} />`)}
      ${value.nodes.map((node) => html`<${Box} key=${node.name} node=${node} at=${place.get(node.name)} isDim=${Boolean(held) && !near.has(node.name)} isMiddle=${node.name === value.agent} hold=${hold} />`)}</svg></div>`;
  }

  // Arrows between the same two run side by side: each gets a place beside the middle.
  function apart(arrows) {
    const beside = new Map();
    return arrows.map((arrow) => {
      const pair = [arrow.from, arrow.to].sort().join(" ");
      const side = beside.get(pair) || 0;
      beside.set(pair, side + 1);
      return { arrow, side };
    });
  }

  function Way({ arrow, side, from, to, form, boxes, isDim, isHeld }) {
    const shift = (side % 2 ? -1 : 1) * Math.ceil(side / 2) * 11;
    const [path, tip] = form === "circle" ? bent(from, to, shift) : to.x > from.x + 1 ? onward(from, to, shift, boxes) : back(from, to, side, boxes);
    const told = `${arrow.from} ${KINDS[arrow.kind]} ${arrow.to}: ${arrow.traffic ? amount(arrow.traffic) : "nothing yet"}`;
    const looks = `${arrow.kind}${arrow.traffic ? "" : " unused"}`;
    const thick = wide(arrow.traffic);
    return html`<g class="way ${looks}${arrow.is_wide && !arrow.traffic ? " wide" : ""}${isDim ? " dim" : ""}${isHeld ? " held" : ""}" role="img" aria-label=${told}><title>${told}</title><path class="reach" d=${path} />
      <path class="arrow ${looks}" d=${path} stroke-width=${thick} /><path class="head ${looks}" d="M-9 -5L0 0L-9 5Z" transform=${`translate(${tip.x} ${tip.y}) rotate(${tip.turn}) scale(${0.9 + thick / 12})`} /></g>`;
  }

  // To the right; around the boxes that stand in the way, on the side that is nearer.
  function onward(from, to, shift, boxes) {
    const a = { x: from.x + BOX.width / 2, y: from.y + shift }, b = { x: to.x - BOX.width / 2, y: to.y + shift };
    const tip = { x: b.x, y: b.y, turn: 0 };
    const at = (x) => a.y + ((b.y - a.y) * (x - a.x)) / (b.x - a.x || 1);
    const between = boxes.filter((box) => box.x > from.x + 1 && box.x < to.x - 1);
    if (!between.some((box) => Math.abs(box.y - at(box.x)) < BOX.height)) {
      const reach = Math.max(30, (b.x - a.x) * 0.45);
      return [`M${a.x} ${a.y}C${a.x + reach} ${a.y} ${b.x - 8 - reach} ${b.y} ${b.x - 6} ${b.y}`, tip];
    }
    const high = Math.min(...between.map((box) => box.y)) - BOX.height, low = Math.max(...between.map((box) => box.y)) + BOX.height;
    const middle = (a.y + b.y) / 2, lane = (middle - high <= low - middle ? high : low) + shift;
    return [`M${a.x} ${a.y}C${a.x + 46} ${a.y} ${a.x + 40} ${lane} ${a.x + 96} ${lane}L${b.x - 96} ${lane}C${b.x - 40} ${lane} ${b.x - 52} ${b.y} ${b.x - 6} ${b.y}`, tip];
  }

  // Against the flow, around below what stands between; within a column, around beside it.
  function back(from, to, side, boxes) {
    if (Math.abs(from.x - to.x) < 1) {
      const x = from.x + BOX.width / 2, bow = 40 + side * 14 + Math.abs(from.y - to.y) * 0.1;
      return [`M${x} ${from.y}C${x + bow} ${from.y} ${x + bow} ${to.y} ${x + 6} ${to.y}`, { x, y: to.y, turn: 180 }];
    }
    const a = { x: from.x - 20, y: from.y + BOX.height / 2 }, b = { x: to.x + 20, y: to.y + BOX.height / 2 };
    const between = boxes.filter((box) => box.x >= to.x - 1 && box.x <= from.x + 1);
    const isNext = between.every((box) => box.x < to.x + 1 || box.x > from.x - 1) && from.y === to.y;
    const low = (isNext ? Math.max(a.y, b.y) : Math.max(...between.map((box) => box.y + BOX.height / 2))) + 22 + side * 11 + Math.min(30, Math.abs(a.x - b.x) * 0.03);
    return [`M${a.x} ${a.y}C${a.x} ${low} ${a.x - 20} ${low} ${a.x - 70} ${low}L${b.x + 70} ${low}C${b.x + 20} ${low} ${b.x} ${low} ${b.x} ${b.y + 6}`, { x: b.x, y: b.y, turn: -90 }];
  }

  // On a circle: bent towards the middle, the further apart the more, from edge to edge.
  function bent(from, to, shift) {
    const size = Math.hypot(from.x, from.y) + Math.hypot(to.x, to.y);
    const pull = 0.5 - 0.32 * Math.min(1, Math.hypot(from.x - to.x, from.y - to.y) / (size || 1));
    const middle = { x: (from.x + to.x) * pull + shift, y: (from.y + to.y) * pull + shift };
    const a = edge(from, middle), b = edge(to, middle);
    const turn = (Math.atan2(b.y - middle.y, b.x - middle.x) * 180) / Math.PI;
    return [`M${a.x} ${a.y}Q${middle.x} ${middle.y} ${b.x} ${b.y}`, { ...b, turn }];
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
