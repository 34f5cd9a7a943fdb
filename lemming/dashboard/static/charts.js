"use strict";
// Drawings: the strip of ticks, the turns of a tick as bars, columns of money. All are SVG made of elements;
// every mark has its words, and what colour says is said by shape or text as well.
(function () {
  const { html } = Lemming;
  const { useState, useRef, useLayoutEffect } = Lemming.hooks;
  const { amount, dollars, hue } = Lemming.ui;

  // The width that an element has, in pixels, as it changes.
  function useWidth(least) {
    const box = useRef(null);
    const [width, set] = useState(0);
    useLayoutEffect(() => {
      const look = () => set(Math.max(least || 0, Math.floor(box.current.getBoundingClientRect().width)));
      look();
      const observer = new ResizeObserver(look);
      observer.observe(box.current);
      return () => observer.disconnect();
    }, []);
    return [box, width];
  }

  // Round values for an axis from 0 to at least `most`, at most `count` steps.
  function steps(most, count) {
    if (!(most > 0)) return [0];
    const raw = most / count;
    const power = 10 ** Math.floor(Math.log10(raw));
    const size = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw - 1e-12);
    return Array.from({ length: Math.ceil(most / size - 1e-9) + 1 }, (_, place) => place * size);
  }

  // Which of `count` labels to show so that they stay apart.
  function every(count, width, room) {
    const least = Math.max(1, Math.ceil((count * room) / Math.max(width, 1)));
    return [1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1000].find((each) => each >= least) || least;
  }

  function said(milliseconds) {
    if (milliseconds == null) return "";
    if (milliseconds < 1000) return Math.round(milliseconds) + " ms";
    if (milliseconds < 60000) return amount(milliseconds / 1000, 1) + " s";
    return Math.floor(milliseconds / 60000) + " min " + Math.round((milliseconds % 60000) / 1000) + " s";
  }

  const money = (unit, value) => (unit === "cost_usd" ? dollars(value) : amount(value));

  // --- the strip of ticks ---

  const WORST = { done: "done", waiting: "waiting", failed: "failed", skipped: "no turn" };

  function words(tick) {
    if (tick.problem) return `tick ${tick.tick}: its journal cannot be read: ${tick.problem}`;
    const state = { running: "running", interrupted: "interrupted" }[tick.status] || WORST[tick.worst] || "nothing done";
    const cost = tick.cost_usd == null ? `${amount(tick.credits)} credits` : `${dollars(tick.cost_usd)}, ${amount(tick.credits)} credits`;
    const took = tick.duration_ms ? `, ${said(tick.duration_ms)}` : "";
    const failed = Object.entries(tick.ends).reduce((sum, [end, count]) => sum + (end.startsWith("failed") ? count : 0), 0);
    const trouble = failed && state === "failed" ? `${failed} of ${tick.turns} failed` : state;
    return `tick ${tick.tick}: ${trouble}; ${tick.turns} of ${tick.planned} turns, ${tick.entries ?? 0} entries, ${cost}${took}`;
  }

  const mark = (tick) => (tick.problem ? "damaged" : tick.status === "committed" ? tick.worst || "skipped" : tick.status);

  // How the turns of a tick ended, as shares of its column from below: one that failed of twelve is a twelfth.
  function shares(tick) {
    const kind = mark(tick);
    const ends = Object.entries(tick.ends).map(([end, count]) => [end.split(":")[0], count]);
    const total = ends.reduce((sum, [, count]) => sum + count, 0);
    if (!total || kind === "damaged" || kind === "running") return [[kind, 0, 1]];
    let below = 0;
    return ["done", "skipped", "waiting", "failed"].flatMap((end) => {
      const share = ends.reduce((sum, [each, count]) => sum + (each === end ? count : 0), 0) / total;
      below += share;
      return share ? [[end, below - share, below]] : [];
    });
  }

  // Columns as high as ticks were dear, in the colours of how their turns ended. A column is a link to its tick.
  function Strip({ ticks, now, unit }) {
    const [box, width] = useWidth(240);
    const height = 148, left = 44, bottom = 22, top = 14;
    const room = width - left - 4, each = Math.min(room / Math.max(ticks.length, 1), 56);
    const scale = steps(Math.max(...ticks.map((tick) => tick[unit] || 0)), 3);
    const most = scale[scale.length - 1] || 1;
    const y = (value) => height - bottom - ((height - bottom - top) * (value || 0)) / most;
    const labelled = every(ticks.length, each * ticks.length, 44);
    return html`<figure class="chart strip" ref=${box}>${width ? html`<svg width=${width} height=${height} role="group"
        aria-label=${`ticks ${ticks.length ? ticks[0].tick + " to " + ticks[ticks.length - 1].tick : ""}, height by ${unit === "credits" ? "credits" : "dollars"}`}>
      ${scale.map((value) => html`<g class="grid"><line x1=${left} x2=${width - 4} y1=${y(value)} y2=${y(value)} />
        <text x=${left - 6} y=${y(value) + 4} text-anchor="end">${money(unit, value)}</text></g>`)}
      ${ticks.map((tick, place) => {
        const size = Math.max(1, Math.min(each - (each > 5 ? 2 : 0.5), 34)), x = left + place * each + (each - size) / 2;
        const at = Math.min(y(tick[unit]), height - bottom - 3), kind = mark(tick);
        const middle = x + size / 2;
        return html`<a key=${tick.tick} href=${Lemming.link("tick", { number: tick.tick })} aria-label=${words(tick)}
            aria-current=${tick.tick === now ? "true" : undefined} class="column ${kind}" data-line>
          <title>${words(tick)}</title><rect class="reach" x=${left + place * each} y=${top - 12} width=${each} height=${height - bottom - top + 12} />
          ${shares(tick).map(([end, from, to]) => html`<rect class=${"bar of-" + end} x=${x} y=${at + (height - bottom - at) * (1 - to)} width=${size} height=${(height - bottom - at) * (to - from)} />`)}
          ${kind === "failed" || kind === "damaged" || kind === "interrupted" ? html`<path class="sign" d=${cross(middle, at - 7)} />`
            : kind === "waiting" ? html`<circle class="sign" cx=${middle} cy=${at - 7} r="2.5" />` : null}
          ${tick.tick === now ? html`<path class="here" d=${`M${middle - 5} ${height - bottom + 7}L${middle} ${height - bottom + 1}L${middle + 5} ${height - bottom + 7}Z`} />` : null}
          ${tick.quiet_before ? html`<line class="gap" x1=${x - 1} x2=${x - 1} y1=${height - bottom} y2=${height - bottom + 5} />` : null}
        </a>${tick.tick % labelled === 0 || ticks.length === 1 ? html`<text class="label" x=${Math.min(middle, width - 4 - 3.4 * String(tick.tick).length)} y=${height - 3} text-anchor="middle">${tick.tick}</text>` : null}`;
      })}</svg>` : null}
      <figcaption><${Key} kinds=${["done", "waiting", "failed", "skipped", "running"].filter((kind) => ticks.some((tick) => shares(tick).some(([end]) => end === kind)))} />
        <span class="note">height: ${unit === "credits" ? "credits" : "dollars"}</span></figcaption></figure>`;
  }

  const cross = (x, y) => `M${x - 3} ${y - 3}l6 6m0 -6l-6 6`;

  function Key({ kinds }) {
    const names = { ...WORST, running: "running" };
    return html`<span class="key">${kinds.map((kind) => html`<span class="column ${kind}"><svg width="12" height="12" aria-hidden="true">
      <rect class=${"bar of-" + kind} width="12" height="12" rx="2" /></svg>${names[kind]}</span>`)}</span>`;
  }

  // --- the turns of a tick ---

  // One row of a tick's turns: when its model was asked and had answered. `end`: where the axis ends, in ms.
  function Bar({ bars, end, name, now }) {
    const last = now == null ? end : Math.max(end, now);
    const share = (value) => (last ? (100 * value) / last : 0);
    const begin = bars.length ? bars[0].begin_ms : 0;
    const over = bars.length ? bars[bars.length - 1].end_ms ?? last : 0;
    return html`<svg class="turn" width="100%" height="18" role="img" preserveAspectRatio="none" style=${{ "--hue": String(hue(name)) }}
        aria-label=${bars.length ? `from ${said(begin)} to ${bars[bars.length - 1].end_ms == null ? "now" : said(over)}` : "no answer"}>
      ${bars.length > 1 ? html`<rect class="between" x=${share(begin) + "%"} width=${Math.max(share(over - begin), 0.4) + "%"} y="8" height="2" />` : null}
      ${bars.map((bar) => html`<rect class=${bar.end_ms == null ? "model open" : bar.is_lost ? "model unanswered" : "model"} x=${Math.min(share(bar.begin_ms), 99.4) + "%"} y="3" height="12" rx="2"
        width=${Math.max(share((bar.end_ms ?? last) - bar.begin_ms), 0.6) + "%"}><title>${said(bar.begin_ms)} to ${bar.end_ms == null ? "now" : said(bar.end_ms)}${bar.is_lost ? ", without an answer" : ""}</title></rect>`)}</svg>`;
  }

  function Axis({ end }) {
    const [box, width] = useWidth(0);
    const marks = steps(end, Math.max(1, Math.floor(width / 90))).filter((value) => value <= end);
    return html`<div class="axis" ref=${box} aria-hidden="true"><svg width="100%" height="16">${end ? marks.map((value) => html`
      <text x=${(100 * value) / end + "%"} y="12" text-anchor=${value / end > 0.9 ? "end" : value ? "middle" : "start"}>${said(value)}</text>`) : null}</svg></div>`;
  }

  // --- columns of money ---

  // `columns`: [{name, label, parts: [[who, value]]}]; `named`: who, in the order of the colours.
  function Columns({ columns, named, unit, label, link, isOfAgents }) {
    const [box, width] = useWidth(280);
    const colour = (who) => (!who ? { class: "part rest" } : isOfAgents ? { class: "part of-agent", style: { "--hue": String(hue(who)) } } : { class: "part c" + named.indexOf(who) });
    const height = 240, left = 56, bottom = 24, top = 10;
    const room = width - left - 4, each = Math.min(room / Math.max(columns.length, 1), 84);
    const sums = columns.map((column) => column.parts.reduce((sum, [, value]) => sum + value, 0));
    const scale = steps(Math.max(0, ...sums), 5), most = scale[scale.length - 1] || 1;
    const y = (value) => height - bottom - ((height - bottom - top) * value) / most;
    const labelled = every(columns.length, each * columns.length, columns.some((column) => column.name.length > 6) ? 84 : 44);
    return html`<figure class="chart money-chart" ref=${box}>${width ? html`<svg width=${width} height=${height} role="group" aria-label=${label}>
      ${scale.map((value) => html`<g class="grid"><line x1=${left} x2=${width - 4} y1=${y(value)} y2=${y(value)} />
        <text x=${left - 6} y=${y(value) + 4} text-anchor="end">${money(unit, value)}</text></g>`)}
      ${columns.map((column, place) => {
        const x = left + place * each, size = Math.max(1, Math.min(each - (each > 5 ? 2 : 0.5), 48));
        let below = 0;
        const told = `${column.label}: ${money(unit, sums[place])}` + column.parts.map(([who, value]) => `\n${who || "all others"}: ${money(unit, value)}`).join("");
        const drawn = column.parts.map(([who, value]) => {
          below += value;
          return html`<rect ...${colour(who)} x=${x} y=${y(below)} width=${size} height=${Math.max(y(below - value) - y(below), 0)} />`;
        });
        const inner = html`<title>${told}</title><rect class="reach" x=${x} y=${top} width=${each} height=${height - bottom - top} />${drawn}`;
        return html`${link ? html`<a key=${column.name} class="column" href=${link(column)} aria-label=${told}>${inner}</a>` : html`<g key=${column.name} class="column" role="img" aria-label=${told}>${inner}</g>`}
          ${place % labelled === 0 ? html`<text class="label" x=${x + size / 2} y=${height - 5} text-anchor=${place ? "middle" : "start"}>${column.name}</text>` : null}`;
      })}</svg>` : null}
      <figcaption><span class="key">${named.map((who, place) => html`<span><svg width="12" height="12" aria-hidden="true"><rect ...${colour(who)} width="12" height="12" rx="2" /></svg>${who || "all others together"}</span>`)}</span></figcaption></figure>`;
  }

  Lemming.charts = { Strip, Bar, Axis, Columns, useWidth, said, words, mark };
})();
