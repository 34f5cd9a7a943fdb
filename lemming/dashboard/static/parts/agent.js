"use strict";
// One agent: its resume, to be edited in place; memory, workspace, turns, and what its model would be sent next.
(function () {
  const { html } = Lemming;
  const { useState } = Lemming.hooks;
  const { Ago, Agent, Empty, Failure, Meter, Words, useAction, amount, dollars, messageText } = Lemming.ui;
  const { Editor, Fields } = Lemming.editing;

  const SECTIONS = [["turns", "Turns"], ["resume", "Resume"], ["memory", "Memory"], ["workspace", "Files"], ["prompt", "Next prompt"]];

  function One({ value, params, page }) {
    const shown = params.show || "turns";
    const counts = { memory: value.memory.values.length, workspace: value.workspace.files.length + value.workspace.left_out, turns: value.money.turns };
    return html`<section class="one">
      <div class="tools"><h3><${Agent} name=${value.name} plain /></h3><span>${value.title}</span>
        <span class="links"><a href=${Lemming.link("feed", { agent: value.name })}>what it said</a> · <a href=${Lemming.link("map", { agent: value.name })}>on the map</a> · <a href=${Lemming.link("past", { agent: value.name })}>what changed in its folder</a></span></div>
      <${Now} value=${value} />
      ${(value.workers || []).map((worker) => html`<${Worker} worker=${worker} page=${page} />`)}
      <p class="ways">${ways(value)}</p>
      <nav class="tabs" aria-label="of this agent"><ul>${SECTIONS.map(([name, title]) => html`<li><a aria-current=${name === shown ? "page" : undefined} href=${Lemming.link("agent", { name: value.name, show: name === "turns" ? "" : name })}>${title}${counts[name] ? html` <small>${amount(counts[name])}</small>` : null}</a></li>`)}</ul></nav>
      ${shown === "resume" ? html`<${Resume} key=${value.name} value=${value} page=${page} />` : null}
      ${shown === "prompt" ? html`<${Prompt} prompt=${value.prompt} />` : null}
      ${shown === "memory" ? html`<${Memory} value=${value} />` : null}
      ${shown === "workspace" ? html`<${Workspace} value=${value} />` : null}
      ${shown === "turns" ? html`<${Turns} value=${value} />` : null}</section>`;
  }

  const PLAINLY = { due: "its turn comes in the next tick", news: "something new came for it, so its turn comes in the next tick", not_due: "scheduled for later", person: "a person speaks for it", channel: "a channel speaks for it", paused: "it does not run until it is unpaused" };

  // How it is: what it does now, the last failure, its last entry, when it is due, what it has spent.
  function Now({ value }) {
    const now = value.now, money = value.money, failed = value.turns.find((turn) => turn.status === "failed");
    const isTrouble = now.text && now.state !== "not_due", doing = isTrouble ? now.text : PLAINLY[now.state];
    return html`<section class="now card" aria-label="how it is">
      <p class="doing"><span class="pill ${now.state}">${now.label}</span>${doing ? html`<span class="reason"><${Words} text=${doing} /></span>` : null}${now.since ? html`<small><${Ago} at=${now.since} since /></small>` : null}
        ${now.state === "waits" ? html`<a href=${Lemming.link("waiting")}>what waits</a>` : null}</p>
      <dl>${now.last ? html`<dt>last entry</dt><dd dir="auto"><q>${now.last.text}</q> <small><a href=${Lemming.link("why", { target: now.last.file })}>why?</a> · <${Ago} at=${now.last.at} /></small></dd>` : null}
        ${now.next ? html`<dt>next</dt><dd>${now.next_at ? html`<${Ago} at=${now.next_at} />` : now.next}</dd>` : null}
        ${failed && now.state !== "failing" ? html`<dt>failed last</dt><dd>in <a href=${Lemming.link("turn", { number: failed.tick, agent: value.name })}>tick ${failed.tick}</a>: ${failed.reason || words(failed.end || failed.status)}</dd>` : null}
        ${money.credits == null || !(value.takes_turns || value.is_broken) ? null : html`<dt>spent</dt><dd>${amount(money.used_up)}${money.max_credits == null ? (value.is_broken ? " credits" : " credits, without a limit") : ` of ${amount(money.max_credits)} credits`}${money.cost_usd == null ? "" : `, ${dollars(money.cost_usd)}`}<${Meter} value=${money.used_up} max=${money.max_credits} label="share of its credits that is spent" /></dd>`}</dl></section>`;
  }

  const STEPS_SHOWN = 8;

  // A coding harness at work for the agent: its steps as they come, the files that it has touched, and its cost.
  function Worker({ worker, page }) {
    const [isSure, setSure] = useState(false), [isAll, setAll] = useState(false);
    const action = useAction();
    const isGone = worker.state === "gone", steps = [...worker.steps].reverse();
    const stop = () => action.run(() => Lemming.act("stop-worker", { agent: worker.agent })).then(() => setSure(false));
    return html`<section class="worker card" aria-label="its worker">
      <p class="doing"><span class="pill ${isGone ? "interrupted" : "working"}">${isGone ? "engine is gone" : "at work"}</span>
        <span class="reason">${worker.harness}${worker.model ? `, ${worker.model}` : ""} on <code>${worker.workspace}</code>, for <code>${worker.branch}</code></span><small><${Ago} at=${worker.since} since /></small>
        <span class="cost">${worker.tokens ? dollars(worker.cost_usd, worker.cost_usd == null) : "no cost yet"}${worker.tokens ? html` <small>${amount(worker.tokens)} tokens</small>` : null}</span></p>
      ${isGone ? html`<p class="note">The next run finishes its turn.</p>` : null}
      <div class="progress"><div><h4>Steps</h4>${steps.length ? html`<ol class="steps" aria-live="polite">${steps.slice(0, isAll ? undefined : STEPS_SHOWN).map((step) => html`<li key=${step.at + step.text + step.path}><small><${Ago} at=${step.at} /></small> <span dir="auto">${step.text}</span>${step.path ? html` <code>${step.path}</code>` : null}</li>`)}</ol>
          ${steps.length > STEPS_SHOWN ? html`<button type="button" class="plain" onClick=${() => setAll(!isAll)}>${isAll ? "fewer" : `${steps.length - STEPS_SHOWN} earlier`}</button>` : null}` : html`<p class="note">none that it told</p>`}</div>
        <div><h4>Files touched <small>${worker.files.length || ""}</small></h4>${worker.files.length ? html`<ul class="touched">${worker.files.map((file) => html`<li><code>${file}</code></li>`)}</ul>` : html`<p class="note">none yet</p>`}</div></div>
      ${worker.stopped_by ? html`<p class="note">${worker.stopped_by} has asked it to end.</p>`
        : page.is_read_only ? null
        : isSure ? html`<p class="buttons"><button type="button" class="danger" disabled=${action.isBusy} onClick=${stop}>Stop it: its changes are discarded</button> <button type="button" onClick=${() => setSure(false)}>Back</button></p>`
        : html`<p class="buttons"><button type="button" class="danger" onClick=${() => setSure(true)}>Stop…</button></p>`}
      <${Failure} error=${action.error} /></section>`;
  }

  const words = (end) => end.replace(/_/g, " ");

  function ways(value) {
    const named = (names) => (names.length > 12 ? `${names.slice(0, 12).join(", ")} and ${names.length - 12} more` : names.join(", "));
    const { reads, read_by, asks } = value.readers;
    const parts = [];
    parts.push(reads.length ? (reads.includes("*") ? "reads everybody" : `reads ${named(reads)}`) : "reads nobody");
    parts.push(read_by.length ? `is read by ${named(read_by)}` : "is read by nobody");
    if (asks.length) parts.push(`may ask ${named(asks)}`);
    return parts.join("; ");
  }

  // --- the resume ---

  const FIELDS = [
    [["title"], "Title", "text"], [["instructions"], "Instructions", "long"], [["model", "key"], "Model", "text"],
    [["model", "temperature"], "Temperature", "number"], [["schedule", "run_every_n_ticks"], "A turn every so many ticks", "number"], [["credits", "max_credits"], "Credits it may spend", "number"],
  ];

  const Values = (props) => html`<${Fields} fields=${FIELDS} ...${props} />`;

  function Resume({ value, page }) {
    return html`<${Editor} key=${value.resume.file} saved=${value.resume} page=${page} label=${`the resume of ${value.name}`} fields=${Values}
      counts="It is checked as \`lemming validate\` does and counts from the agent's next turn." />`;
  }

  // --- the rest ---

  function Prompt({ prompt }) {
    if (!prompt) return html`<p class="loading">putting it together…</p>`;
    if (prompt.why_not) return html`<${Empty} title="No prompt">${prompt.why_not}<//>`;
    const size = prompt.messages.reduce((sum, message) => sum + messageText(message).length, 0);
    return html`<p class="note">What ${prompt.model} would be sent now, for tick ${prompt.tick}: ${amount(size)} characters.${prompt.waits_for.length ? ` In its turn, plus what ${prompt.waits_for.join(", ")} will write before it.` : ""}</p>
      ${prompt.messages.map((message) => html`<div class="prompt-message"><h3 class="role">${message.role}</h3><pre class="tall" tabindex="0" dir="auto">${messageText(message)}</pre></div>`)}`;
  }

  function Memory({ value }) {
    const { values, problems } = value.memory;
    if (!values.length && !problems.length) return html`<${Empty} title="No memories">A memory is a file in agents/${value.name}/memory.<//>`;
    return html`<dl class="memories">${values.map((each) => html`<div data-line tabindex="0"><dt><code>${each.key}</code>${each.trust ? html` <span class="trust ${each.trust}">${each.trust}</span>` : null} <${Lemming.ui.Why} target=${`${value.name}/memory/${each.key}`} /></dt>
      <dd class="said" dir="auto">${each.text}${each.chars > each.text.length ? html`<small> … ${amount(each.chars)} characters</small>` : null}</dd></div>`)}</dl>${problems.map((each) => html`<p class="wrong">${each}</p>`)}`;
  }

  function Workspace({ value }) {
    const [open, setOpen] = useState(null);
    const action = useAction();
    const { files, left_out, wrong } = value.workspace;
    if (wrong) return html`<p class="wrong">${wrong}</p>`;
    if (!files.length) return html`<${Empty} title="The workspace is empty">Files that it writes are in agents/${value.name}/workspace.<//>`;
    const look = async (path) => {
      const told = await action.run(() => Lemming.load("agent", { name: value.name, file: path }));
      if (told) setOpen(told.file);
    };
    return html`<ul class="list files-of">${files.map((file) => html`<li>${file.is_link ? html`<code>${file.path}</code> <small>a link, not followed</small>` : html`<button type="button" class="plain" data-line aria-expanded=${Boolean(open && open.path === file.path)} onClick=${() => (open && open.path === file.path ? setOpen(null) : look(file.path))}><code>${file.path}</code></button> <small>${amount(file.bytes)} bytes</small> <${Lemming.ui.Why} target=${`agents/${value.name}/workspace/${file.path}`} />`}
      ${open && open.path === file.path ? html`<pre class="tall" tabindex="0" dir="auto">${open.text}</pre>` : null}</li>`)}</ul>${left_out ? html`<p class="note">and ${amount(left_out)} more</p>` : null}<${Failure} error=${action.error} />`;
  }

  // Turns that ended alike for the same reason, one after another, stand in one line.
  function Turns({ value }) {
    if (!value.turns.length) return html`<${Empty} title="No turns yet"><//>`;
    const runs = [];
    for (const turn of value.turns) {
      const last = runs[runs.length - 1], key = [turn.status, turn.end, turn.reason, turn.reason ? "" : turn.did].join();
      if (last && last.key === key && (turn.reason || turn.did === "no entries")) last.turns.push(turn);
      else runs.push({ key, turns: [turn] });
    }
    return html`<div class="table" role="group" aria-label="its turns, newest first">
      <div class="line of-agent heading" aria-hidden="true"><span>Tick</span><span>Ended</span><span>Activity, or reason</span><span>Cost</span><span>Tokens</span></div>
      ${runs.map(({ turns }) => html`<${Run} turns=${turns} name=${value.name} />`)}</div>
      ${value.money.wrong ? html`<p class="wrong">${value.money.wrong}</p>` : null}`;
  }

  function Run({ turns, name }) {
    const newest = turns[0], oldest = turns[turns.length - 1];
    const sum = (of) => turns.reduce((total, turn) => total + (of(turn) || 0), 0);
    return html`<a class="line of-agent" data-line href=${Lemming.link("turn", { number: newest.tick, agent: name })}>
      <span>${turns.length > 1 ? `ticks ${oldest.tick}–${newest.tick}` : `tick ${newest.tick}`}</span><span><span class="pill end ${newest.status}">${words(newest.end || newest.status)}</span>${turns.length > 1 ? html` <small>${turns.length}×</small>` : null}</span>
      <span title=${newest.reason || newest.did}><${Words} text=${newest.reason || newest.did} /></span>
      <span>${newest.cost_usd == null ? `${amount(sum((turn) => turn.credits))} cr` : dollars(sum((turn) => turn.cost_usd))}</span><span class="faint">${amount(sum((turn) => turn.tokens))}</span></a>`;
  }

  // Of the workspace's files one at a time is fetched; the prompt only where it is looked at.
  const asked = (route) => ({ name: route.name || "", ...(route.show === "prompt" && { prompt: 1 }) });
  Lemming.part("agent", { title: "Agent", hidden: true, under: "agents", params: asked, render: One });
})();
