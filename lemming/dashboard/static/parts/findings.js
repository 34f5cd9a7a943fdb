"use strict";
// What goes wrong in what the agents do, by rules over files: one card each, with its evidence as links.
(function () {
  const { html } = Lemming;
  const { Agent, Empty, Words, amount } = Lemming.ui;

  function Findings({ value, params }) {
    const kinds = [...new Set(value.rows.map((each) => each.kind).concat(params.kind || []))];
    const looked = value.last == null ? "no turn has been taken yet" : `looked at ticks ${value.first} to ${value.last}, ${amount(value.turns)} turns`;
    return html`<section class="findings">
      <div class="tools"><select aria-label="kind" value=${params.kind || ""} onChange=${(event) => Lemming.go("findings", { ...params, kind: event.target.value })}>
          <option value="">all kinds</option>${kinds.map((kind) => html`<option value=${kind}>${value.kinds[kind] ? value.kinds[kind].title : kind}</option>`)}</select>
        ${params.agent ? html`<a href=${Lemming.link("findings", { kind: params.kind })}>about all agents</a>` : null}
        <span class="count">${looked}${value.damaged.length ? `; ${value.damaged.length} journals cannot be read` : ""}</span></div>
      ${value.rows.length ? html`<ol class="cards" aria-label="findings">${grouped(value.rows).map((rows) => (rows.length < MANY ? rows.map((each) => html`<${Card} each=${each} kind=${value.kinds[each.kind]} />`) : html`<${Group} rows=${rows} kind=${value.kinds[rows[0].kind]} />`))}</ol>`
        : !value.can_tell ? html`<${Empty} title="Too few ticks to tell">A look covers ${amount(value.turns)} turns. Here that is ${amount(value.ticks)} ${value.ticks === 1 ? "tick" : "ticks"}, too few to see a repetition.<//>`
        : html`<${Empty} title="No findings">No loops, dropped requests or spending without progress.<//>`}
    </section>`;
  }

  const MANY = 4;

  // Many findings of one kind are one card: who, and each below it when it is opened.
  function grouped(rows) {
    const kinds = new Map();
    for (const row of rows) kinds.set(row.kind, [...(kinds.get(row.kind) || []), row]);
    return [...kinds.values()];
  }

  function Group({ rows, kind }) {
    const agents = [...new Set(rows.flatMap((row) => row.agents))];
    const since = Math.min(...rows.map((row) => row.since_tick));
    return html`<li class="card group" data-line tabindex="0">
      <p class="from"><strong>${amount(agents.length)} ${agents.length === 1 ? "agent" : "agents"}</strong><span class="pill waits" title=${kind ? kind.means : ""}>${kind ? kind.title : rows[0].kind}</span><span class="when">since tick ${since}</span></p>
      <p class="said" dir="auto">${rows[0].text}${rows.length > 1 ? html`; <span class="faint">and ${amount(rows.length - 1)} more like it</span>` : null}</p>
      <p class="note"><${Words} text=${rows[0].fix} /></p>
      <p class="from">${agents.slice(0, 8).map((name) => html`<${Agent} name=${name} />`)}${agents.length > 8 ? html`<span class="faint">and ${amount(agents.length - 8)} more</span>` : null}</p>
      <details><summary>each of the ${amount(rows.length)}</summary><ul class="list">${rows.slice(0, 200).map((row) => html`<li>${row.text} ${row.evidence.slice(0, 3).map((one) => html`<a href=${link(one)}>${one}</a> `)}</li>`)}</ul></details></li>`;
  }

  function Card({ each, kind }) {
    return html`<li class="card" data-line tabindex="0">
      <p class="from">${each.agents.map((name) => html`<${Agent} name=${name} />`)}<span class="pill waits" title=${kind ? kind.means : ""}>${kind ? kind.title : each.kind}</span>
        <span class="when">since <a href=${Lemming.link("tick", { number: each.since_tick })}>tick ${each.since_tick}</a></span></p>
      <p class="said" dir="auto">${each.text}</p>
      <p class="note"><${Words} text=${each.fix} /></p>
      <p class="evidence">${each.evidence.map((one) => html`<a href=${link(one)}>${one}</a>`)}</p>
    </li>`;
  }

  // A turn is named TICK/AGENT; anything else is a file, and it is asked where that came from.
  function link(evidence) {
    const turn = evidence.match(/^(\d+)\/([a-z0-9_-]+)$/);
    return turn ? Lemming.link("turn", { number: turn[1], agent: turn[2] }) : Lemming.link("why", { target: evidence });
  }

  Lemming.part("findings", { title: "Findings", key: "i", render: Findings });
})();
