"use strict";
// One tick: its turns as bars in time, why the others took none, and one turn whole.
(function () {
  const { html } = Lemming;
  const { useEffect, useRef } = Lemming.hooks;
  const { Ago, Agent, Empty, useNow, amount, dollars, messageText, Words } = Lemming.ui;
  const { Strip, Bar, Axis, said } = Lemming.charts;

  const STATES = { committed: "committed", running: "running", interrupted: "interrupted: the next run continues it", quiet: "no agent ran" };
  const AROUND = 40;
  const counted = (number, one, many) => `${amount(number)} ${number === 1 ? one : many || one + "s"}`;

  function Tick({ value, params }) {
    const number = value.tick;
    const chosen = params.agent || "";
    const detail = useRef(null);
    useEffect(() => {
      if (value.turn && detail.current) detail.current.scrollIntoView({ block: "start" });
    }, [number, chosen]);
    const money = value.totals.cost_usd == null ? counted(value.totals.credits, "credit") : dollars(value.totals.cost_usd);
    return html`<section class="tick">
      <div class="tools"><a class="button" rel="prev" aria-disabled=${number > 0 ? undefined : "true"} href=${number > 0 ? Lemming.link("tick", { number: number - 1 }) : undefined}>← ${number - 1}</a>
        <h3>Tick ${number}</h3><span class="pill end ${value.state}">${STATES[value.state]}</span>
        <a class="button" rel="next" aria-disabled=${number + 1 < value.next_tick || value.state === "quiet" ? undefined : "true"} href=${number + 1 <= value.next_tick ? Lemming.link("tick", { number: number + 1 }) : undefined}>${number + 1} →</a>
        <span class="count">${value.at ? html`<${Ago} at=${value.at} />, ` : null}${amount(value.order.length)} planned, ${counted(value.totals.entries, "entry", "entries")}, ${counted(value.totals.calls, "model call")}, ${money}${value.engine_starts > 1 ? `, in ${value.engine_starts} attempts` : ""}</span>
        <a class="aside" href=${Lemming.link("past", { new: number })}>changed files</a></div>
      <${Around} number=${number} ticks=${value.strip} />
      ${value.rows.length ? html`<${Turns} value=${value} chosen=${chosen} />` : html`<${Empty} title="No agent ran">Only the tick counter changed.<//>`}
      <${Others} value=${value} />
      ${value.no_turn ? html`<p class="note">${value.no_turn}</p>` : null}
      <div ref=${detail}>${value.turn ? html`<${Turn} turn=${value.turn} tick=${number} />` : null}</div></section>`;
  }

  // The strip around this tick, of the same state as all else here.
  function Around({ number, ticks }) {
    const unit = ticks.some((tick) => tick.cost_usd) ? "cost_usd" : "credits";
    return ticks.length > 1 ? html`<${Strip} ticks=${ticks} now=${number} unit=${unit} />` : null;
  }

  function Turns({ value, chosen }) {
    const isLive = value.state === "running";
    const now = useNow();
    const passed = isLive ? Math.max(value.timing.end_ms, now - Date.parse(value.at)) : null;
    const end = passed ?? value.timing.end_ms;
    const more = value.order.length - value.first - value.rows.length;
    return html`<div class="turns" role="group" aria-label="turns of the tick, in their order">
      <div class="bar-line heading" aria-hidden="true"><span>Agent</span><span><${Axis} end=${end} /></span><span>Status</span><span>Activity</span></div>
      ${value.rows.map((row) => html`<a key=${row.agent} class="bar-line" data-line aria-current=${row.agent === chosen ? "true" : undefined}
        href=${Lemming.link("tick", { number: value.tick, agent: row.agent, first: value.first || "" })}>
        <span class="who"><${Agent} name=${row.agent} plain /></span>
        <span class="bars"><${Bar} name=${row.agent} bars=${value.timing.bars[row.agent] || []} end=${value.timing.end_ms} now=${passed} /></span>
        <span><span class=${"pill end " + row.status.replace(/ /g, "_")} title=${row.reason}>${ended(row)}</span></span>
        <span class="did">${did(row)}${row.reason && row.status !== "done" ? html`<span class="reason">${did(row) ? " · " : ""}<${Words} text=${row.reason} /></span>` : null}</span></a>`)}
      ${value.timing.is_exact ? null : html`<p class="note">${value.engine_starts > 1 ? "The tick was interrupted" : "These answers were recorded before this tick"}: bars show how long each took, one after another.</p>`}
      ${more > 0 || value.first ? html`<p class="buttons">${value.first ? html`<a class="button" href=${Lemming.link("tick", { number: value.tick, first: Math.max(0, value.first - 100) || "" })}>← earlier turns</a>` : null}
        ${more > 0 ? html`<a class="button" href=${Lemming.link("tick", { number: value.tick, first: value.first + value.rows.length })}>${amount(more)} more turns →</a>` : null}</p>` : null}</div>`;
  }

  const ended = (turn) => (turn.end === "waits" ? "waiting" : (turn.end || turn.status).replace(/_/g, " "));

  function did(row) {
    const parts = [];
    const add = (count, one, many) => count && parts.push(counted(count, one, many));
    add(row.saw, "new entry seen", "new entries seen");
    add(row.calls, "call");
    add(row.tools, "tool");
    if (row.tools_failed) parts.push(`${row.tools_failed} of them failed`);
    add(row.entries.length, "entry written", "entries written");
    add(row.memories, "memory", "memories");
    add(row.verdicts, "gate decision", "gate decisions");
    if (row.calls) parts.push(row.cost_usd == null ? `${amount(row.credits)} cr` : dollars(row.cost_usd));
    return parts.join(" · ");
  }

  function Others({ value }) {
    const told = [...Object.entries(value.broken).map(([name, why]) => [name, "broken: " + why]), ...Object.entries(value.skipped)];
    const count = told.length + value.not_due.length;
    if (!count) return null;
    return html`<details class="others"><summary>${amount(count)} did not run, and why</summary><dl>
      ${told.map(([name, why]) => html`<div><dt><${Agent} name=${name} /></dt><dd>${why}</dd></div>`)}
      ${value.not_due.length ? html`<div><dt>not due</dt><dd>${value.not_due.slice(0, 60).join(", ")}${value.not_due.length > 60 ? ` and ${amount(value.not_due.length - 60)} more` : ""}</dd></div>` : null}</dl></details>`;
  }

  // --- one turn whole ---

  function Turn({ turn, tick }) {
    const cost = turn.cost_usd == null ? counted(turn.credits, "credit") : `${dollars(turn.cost_usd)}, ${counted(turn.credits, "credit")}`;
    return html`<article class="card whole" aria-label=${`turn of ${turn.agent}`}>
      <p class="from"><${Agent} name=${turn.agent} /><span class="pill end ${turn.status}">${ended(turn)}</span>
        ${turn.reason ? html`<span><${Words} text=${turn.reason} /></span>` : null}<span class="when">${cost}, ${amount(turn.input_tokens)} tokens in, ${amount(turn.output_tokens)} out, ${said(turn.duration_ms)}${turn.attempts > 1 ? `, started ${turn.attempts} times` : ""}</span></p>
      ${turn.request ? html`<p class="note">for the request <a href=${Lemming.link("feed", { thread: turn.request })}>${turn.request}</a></p>` : null}
      <${Seen} turn=${turn} />
      ${turn.prompt && turn.prompt.length ? html`<${Prompt} turn=${turn} />` : null}
      ${turn.answers.map((answer) => html`<${Answer} answer=${answer} key=${"a" + answer.call} />`)}
      ${turn.tools.map((use) => html`<${Use} use=${use} key=${"t" + use.index} />`)}
      ${turn.verdicts.length ? html`<h4>Gate decisions</h4><ul class="list">${turn.verdicts.map((verdict) => html`<li><span class="pill end ${verdict.then === "block" || verdict.then === "stop" ? "failed" : "waiting"}">${verdict.then}</span> at ${verdict.at}: ${verdict.about} ${verdict.why} <code>${verdict.line}</code></li>`)}</ul>` : null}
      <${Effects} turn=${turn} /></article>`;
  }

  function Seen({ turn }) {
    const fresh = turn.saw.filter((seen) => seen.is_new), known = turn.saw.filter((seen) => !seen.is_new);
    if (!turn.saw.length && !turn.results.length) return html`<p class="note">No new input.</p>`;
    return html`<h4>New input</h4><ul class="list">${fresh.map((seen) => html`<${SeenEntry} seen=${seen} />`)}
      ${turn.results.map((result) => html`<li><code>${result.tool}</code> returned: <span class="said" dir="auto">${String(result.output).slice(0, 600)}</span></li>`)}</ul>
      ${known.length ? html`<details><summary>${known.length} ${known.length === 1 ? "entry" : "entries"} that it had seen before</summary><ul class="list">${known.map((seen) => html`<${SeenEntry} seen=${seen} />`)}</ul></details>` : null}`;
  }

  function SeenEntry({ seen }) {
    const text = seen.payload && typeof seen.payload === "object" ? seen.payload.text ?? JSON.stringify(seen.payload) : "";
    return html`<li>${seen.author ? html`<${Agent} name=${seen.author} /> <small>tick ${seen.tick}</small> ` : null}<span class="said" dir="auto">${String(text).slice(0, 600)}</span> <${Why} target=${seen.id} /></li>`;
  }

  const Why = ({ target }) => html`<a class="aside" href=${Lemming.link("why", { target })} aria-label=${"why " + target}>why?</a>`;

  function Prompt({ turn }) {
    return html`<details class="prompt"><summary>The exact prompt <small>${turn.prompt.length} ${turn.prompt.length === 1 ? "message" : "messages"}, ${amount(turn.prompt_chars)} characters</small></summary>
      ${turn.prompt.map((message) => html`<div class="prompt-message"><h5>${message.role}</h5><pre tabindex="0" dir="auto">${messageText(message)}</pre></div>`)}</details>`;
  }

  function Answer({ answer }) {
    return html`<h4>${answer.error ? "No answer" : "Answer"} <small>${answer.error ? "" : `${answer.model}${answer.key ? ` (key ${answer.key})` : ""}, ${said(answer.duration_ms)}, ${amount(answer.input_tokens)} tokens in, ${amount(answer.output_tokens)} out`}</small></h4>
      ${answer.earlier.map((each) => html`<p class="wrong">an attempt failed: ${each.code} ${each.message}</p>`)}
      ${answer.error ? html`<p class="wrong">${answer.code} ${answer.error}</p>` : html`<${Reply} text=${answer.text} />`}
      ${answer.problem ? html`<p class="wrong">invalid reply: ${answer.problem}</p>` : null}`;
  }

  // A reply in sentences: what is told again below, as tools and entries, is counted here; all of it is one key away.
  function Reply({ text }) {
    let reply;
    try {
      reply = JSON.parse(text);
    } catch {
      reply = null;
    }
    const raw = html`<pre tabindex="0" dir="auto">${pretty(text)}</pre>`;
    if (!reply || !Array.isArray(reply.outbox_entries)) return raw;
    const parts = [];
    const add = (list, one, many) => Array.isArray(list) && list.length && parts.push(counted(list.length, one, many));
    add(reply.outbox_entries, "entry", "entries");
    add(reply.tool_calls, "tool call", "tool calls");
    add(reply.memory_updates, "memory", "memories");
    return html`<p class="said">${parts.length ? parts.join(", ") : "an empty reply"}${reply.notes ? html`; notes: <q dir="auto">${reply.notes}</q>` : null}</p><details><summary>raw reply</summary>${raw}</details>`;
  }

  function pretty(text) {
    try {
      return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      return text;
    }
  }

  function Use({ use }) {
    const end = use.success == null ? "unfinished" : use.success ? "done" : use.outcome === "pending" ? "waiting" : use.outcome || "failed";
    return html`<h4><${Lemming.ui.Words} text=${use.wish[0].toUpperCase() + use.wish.slice(1)} /> <span class="pill end ${use.success ? "done" : use.success == null || use.outcome === "pending" ? "waiting" : "failed"}">${end}</span>${use.leave && use.leave.by ? html` <small>approved by ${use.leave.by}</small>` : null}</h4>
      ${use.args == null ? null : html`<details><summary>the call of <code>${use.tool}</code></summary><pre tabindex="0" dir="auto">${typeof use.args === "string" ? use.args : JSON.stringify(use.args, null, 2)}</pre></details>`}
      ${use.output ? html`<pre class="gave" tabindex="0" dir="auto">${use.output}</pre>` : null}`;
  }

  // What the turn wrote and removed, and what its judges and itself remark, in the words of the server.
  function Effects({ turn }) {
    const effects = turn.effects.filter((effect) => effect.label !== "file" || !/\/(outbox|memory)\//.test(effect.target));
    if (!effects.length) return html`<p class="note">No output.</p>`;
    return html`<h4>Output</h4><ul class="list">${effects.map((effect) => html`<li><span class="kind ${effect.kind}">${effect.kind}</span> ${effect.subject && effect.label !== "entry" ? html`<code>${effect.subject}</code> ` : null}<span class="said" dir="auto">${effect.text}</span> ${effect.target ? html`<${Why} target=${effect.target} />` : null}${effect.target in turn.contents ? html`<details><summary>its text</summary><pre tabindex="0" dir="auto">${turn.contents[effect.target]}</pre></details>` : null}</li>`)}</ul>`;
  }

  // One turn by itself: what it was shown, asked, called and wrote, what it cost, and the way to why.
  function TurnPage({ value, params }) {
    const turn = value.turn, order = value.order, place = order.indexOf(params.agent);
    const beside = (name, words, rel) => (name ? html`<a class="button" rel=${rel} href=${Lemming.link("turn", { number: value.tick, agent: name })}>${words}</a>` : null);
    return html`<section class="one-turn"><div class="tools">${beside(order[place - 1], `← ${order[place - 1]}`, "prev")}
        <h3><${Agent} name=${params.agent} /> in <a href=${Lemming.link("tick", { number: value.tick, agent: params.agent })}>tick ${value.tick}</a></h3>
        ${place < 0 ? null : beside(order[place + 1], `${order[place + 1]} →`, "next")}
        ${value.at ? html`<span class="count"><${Ago} at=${value.at} />, turn ${place + 1} of ${amount(order.length)}</span>` : null}
        <a class="aside" href=${Lemming.link("past", { new: value.tick })}>files changed by this tick</a></div>
      ${turn ? html`<${Turn} turn=${turn} tick=${value.tick} />` : html`<${Empty} title="No turn in this tick">${value.skipped[params.agent] || value.broken[params.agent] || "It was not due in this tick."}<//>`}</section>`;
  }

  const around = (route) => ({ ...route, around: AROUND });
  Lemming.part("turn", { title: "Turn", hidden: true, under: "ticks", view: "tick", looks: "tick", params: around, render: TurnPage });
  Lemming.part("tick", { title: "Tick", hidden: true, under: "ticks", params: around, render: Tick });
  Lemming.ui.Why = Why;
})();
