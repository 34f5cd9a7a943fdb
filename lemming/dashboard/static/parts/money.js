"use strict";
// Money: what was spent over time, by agent or model, and what may be spent.
(function () {
  const { html } = Lemming;
  const { useState } = Lemming.hooks;
  const { Agent, Empty, Meter, amount, dollars, hue } = Lemming.ui;
  const { Columns } = Lemming.charts;

  const NEAR = 0.8, NAMES = 8;

  function Money({ value, params, page }) {
    const group = params.group === "models" ? "models" : "agents";
    const unit = params.unit || (value.has_dollars ? "cost_usd" : "credits");
    const go = (more) => Lemming.go("money", { ...params, ...more });
    if (!value.columns.length) return html`<${Empty} title="No spending yet">Every answer of a model is counted here, tick by tick.<//>`;
    const named = order(value.columns, group, unit);
    const columns = value.columns.map((column) => ({
      name: column.name,
      label: value.by === "tick" ? `tick ${column.name}` : column.name,
      parts: named.filter((who) => column[group][unit][who]).map((who) => [who, column[group][unit][who]]),
    }));
    const total = value.total, span = value.ticks.length > 1 ? `ticks ${value.ticks[0]} to ${value.ticks[1]}` : `tick ${value.ticks[0]}`;
    const shown = value.columns.reduce((sum, column) => sum + (column[unit] || 0), 0);
    return html`<section class="money-part">
      <dl class="facts big"><div><dt>spent in all</dt><dd>${amount(total.credits)} <small>credits${total.max_credits == null ? ", of which some agents have no limit" : total.used_up === total.credits ? ` of ${amount(total.max_credits)}` : `, ${amount(total.used_up)} used up of ${amount(total.max_credits)}`}</small>
          <${Meter} value=${total.used_up} max=${total.max_credits} label="share of the credits that is used up" /></dd></div>
        <div><dt>in dollars</dt><dd>${dollars(total.cost_usd, total.unpriced_calls)}${total.unpriced_calls ? html` <small>${amount(total.unpriced_calls)} calls have no known price</small>` : null}</dd></div>
        <div><dt>tokens</dt><dd>${amount(total.input_tokens)} <small>in</small> ${amount(total.output_tokens)} <small>out</small></dd></div></dl>
      <div class="tools"><${Choice} label="by" value=${value.by} of=${[["tick", "by tick"], ["day", "by day"]]} choose=${(by) => go({ by: by === "tick" ? "" : by })} />
        <${Choice} label="by whom" value=${group} of=${[["agents", "by agent"], ["models", "by model"]]} choose=${(each) => go({ group: each === "agents" ? "" : each })} />
        <${Choice} label="unit" value=${unit} of=${[["credits", "credits"], ["cost_usd", "dollars"]]} choose=${(each) => go({ unit: each })} />
        ${page.is_report ? null : html`<label class="count">of the newest <select aria-label="how many ticks" value=${params.ticks || "120"} onChange=${(event) => go({ ticks: event.target.value })}>${["30", "120", "500", "2000"].map((each) => html`<option>${each}</option>`)}</select> ticks</label>`}</div>
      <${Columns} columns=${columns} named=${named} unit=${unit} isOfAgents=${group === "agents"} link=${value.by === "tick" ? (column) => Lemming.link("tick", { number: column.name }) : null}
        label=${`${unit === "credits" ? "credits" : "dollars"} by ${value.by}, ${span}`} />
      <p class="note">${span}: ${unit === "credits" ? amount(shown) + " credits" : dollars(shown)}${value.older ? "; older ticks are not drawn" : ""}</p>
      <${Limits} limits=${value.limits} /><${Agents} value=${value} unit=${unit} />
      ${value.damaged.map((each) => html`<p class="wrong">${each}</p>`)}</section>`;
  }

  // Who spent most of what is drawn comes first; all others together last.
  function order(columns, group, unit) {
    const sums = new Map();
    for (const column of columns) for (const [who, value] of Object.entries(column[group][unit])) sums.set(who, (sums.get(who) || 0) + value);
    return [...sums].filter(([, value]) => value).sort((one, other) => (one[0] === "") - (other[0] === "") || other[1] - one[1] || (one[0] < other[0] ? -1 : 1)).map(([who]) => who);
  }

  function Choice({ label, value, of, choose }) {
    return html`<span class="choice" role="group" aria-label=${label}>${of.map(([each, name]) => html`<button type="button" aria-pressed=${each === value} onClick=${() => choose(each)}>${name}</button>`)}</span>`;
  }

  function Limits({ limits }) {
    if (!limits.length) return null;
    return html`<h3>Limits that gates set</h3><ul class="list">${limits.map((each) => html`<li>${Object.entries(each.limits).map(([key, most]) => (key === "dollars" ? dollars(most) : `${amount(most)} ${key}`)).join(", ")} per ${each.per}${each.window ? ` in ${each.window}` : ""}${each.models.length ? ` with ${each.models.join(", ")}` : ""}, then ${each.then} <code>${each.line}</code></li>`)}</ul>`;
  }

  const FIRST = 15;

  // Who spent most, each against its budget; all others are one line.
  function Agents({ value, unit }) {
    const [isAll, showAll] = useState(false);
    const of = (row) => row[unit] || 0, total = of(value.total), rows = [...value.agents].sort((one, other) => of(other) - of(one));
    const shown = isAll ? rows : rows.slice(0, FIRST), top = Math.max(...rows.map(of), 0);
    const many = rows.length - shown.length + value.left_out;
    const sum = (key) => value.total[key] - shown.reduce((all, row) => all + (row[key] || 0), 0);
    const share = (part) => (total ? `${amount((100 * part) / total, 1)} %` : "–");
    const full = rows.filter((row) => row.max_credits && row.used_up >= NEAR * row.max_credits).sort((one, other) => other.used_up / other.max_credits - one.used_up / one.max_credits);
    return html`${full.length ? html`<p class="near"><strong>${amount(full.length)} ${full.length === 1 ? "agent has" : "agents have"} spent four fifths of what they may, or more:</strong> ${full.slice(0, NAMES).map((row) => html`<a href=${Lemming.link("agent", { name: row.agent })}>${row.agent}</a> <small>${amount((100 * row.used_up) / row.max_credits, 0)} %</small> `)}${full.length > NAMES ? `and ${amount(full.length - NAMES)} more` : ""}</p>` : null}
      <div class="table spent" role="group" aria-label="agents, who spent most first"><div class="line heading" aria-hidden="true"><span>Agent</span><span>Credits</span><span>Share of all</span><span>Share of limit</span><span>Dollars</span><span>Tokens</span><span>Turns</span></div>
      ${shown.map((row) => html`<a class="line" data-line key=${`${row.agent} ${row.standing}`} href=${row.standing === "removed" ? null : Lemming.link("agent", { name: row.agent })}><span><${Agent} name=${row.agent} plain />${row.standing === "present" ? null : html` <small>${row.standing}</small>`}</span>
        <span>${amount(row.credits)}<span class="narrow"> credits</span></span>
        <span class="share" style=${{ "--hue": String(hue(row.agent)) }}>${of(row) ? html`<span class="bar" style=${{ width: (60 * of(row)) / top + "%" }}></span>` : null}${share(of(row))}</span>
        <span>${row.max_credits == null ? html`<small>${row.standing === "present" ? "no limit" : row.standing === "broken" ? "unknown" : ""}</small>` : html`${amount(row.used_up)} of ${amount(row.max_credits)}<${Meter} value=${row.used_up} max=${row.max_credits} />`}</span>
        <span>${dollars(row.cost_usd, row.unpriced_calls)}</span><span class="faint">${amount(row.input_tokens)} in, ${amount(row.output_tokens)} out</span><span>${amount(row.turns)}</span></a>`)}
      ${many > 0 ? html`<div class="line together"><span>${amount(many)} others together</span><span>${amount(sum("credits"))}</span><span>${share(sum(unit))}</span><span></span><span>${value.total.cost_usd == null ? "–" : dollars(Math.max(0, sum("cost_usd")), sum("unpriced_calls"))}</span><span class="faint">${amount(sum("input_tokens"))} in, ${amount(sum("output_tokens"))} out</span><span>${amount(sum("turns"))}</span></div>` : null}</div>
      ${rows.length > FIRST ? html`<p><button type="button" class="plain" onClick=${() => showAll(!isAll)}>${isAll ? `only the first ${FIRST}` : `show ${rows.length - FIRST} more`}</button>${value.left_out ? html` <span class="note"><code>lemming cost</code> lists all</span>` : null}</p>` : null}`;
  }

  const kept = ({ by, ticks }) => ({ ...(by && { by }), ...(ticks && { ticks }) });
  Lemming.part("money", { title: "Money", key: "c", params: kept, render: Money });
})();
