"use strict";
// One agent: its resume, to be edited in place; memory, workspace, turns, and what its model would be sent next.
(function () {
  const { html } = Lemming;
  const { useState, useEffect, useRef } = Lemming.hooks;
  const { Agent, Empty, Failure, Meter, useAction, amount, dollars } = Lemming.ui;

  const SECTIONS = [["resume", "Resume"], ["prompt", "Next prompt"], ["memory", "Memory"], ["workspace", "Workspace"], ["turns", "Turns"]];

  function One({ value, params, page }) {
    const shown = params.show || "resume";
    const counts = { memory: value.memory.values.length, workspace: value.workspace.files.length + value.workspace.left_out, turns: value.money.turns };
    return html`<section class="one">
      <div class="tools"><h3><${Agent} name=${value.name} plain /></h3><span>${value.title}</span>
        ${value.is_broken ? html`<span class="pill end failed">its resume is broken</span>` : null}
        <span class="count">${value.money.credits == null ? null : html`${amount(value.money.used_up)}${value.money.max_credits == null ? "" : ` of ${amount(value.money.max_credits)}`} credits used${value.money.cost_usd == null ? "" : `, ${dollars(value.money.cost_usd)}`}`}</span></div>
      <p class="ways">${ways(value)}</p>
      <p class="links"><a href=${Lemming.link("map", { agent: value.name })}>on the map</a> · <a href=${Lemming.link("feed", { agent: value.name })}>what it said</a> · <a href=${Lemming.link("past", { agent: value.name })}>what changed in its folder</a></p>
      <nav class="tabs" aria-label="of this agent"><ul>${SECTIONS.map(([name, title]) => html`<li><a aria-current=${name === shown ? "page" : undefined} href=${Lemming.link("agent", { name: value.name, show: name === "resume" ? "" : name })}>${title}${counts[name] ? html` <small>${amount(counts[name])}</small>` : null}</a></li>`)}</ul></nav>
      ${shown === "resume" ? html`<${Resume} key=${value.name} value=${value} page=${page} />` : null}
      ${shown === "prompt" ? html`<${Prompt} prompt=${value.prompt} />` : null}
      ${shown === "memory" ? html`<${Memory} value=${value} />` : null}
      ${shown === "workspace" ? html`<${Workspace} value=${value} />` : null}
      ${shown === "turns" ? html`<${Turns} value=${value} />` : null}</section>`;
  }

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

  function Resume({ value, page }) {
    const saved = value.resume;
    const [text, setText] = useState(saved.text);
    const [base, setBase] = useState({ text: saved.text, sha256: saved.sha256 });
    const [told, setTold] = useState(null);
    const box = useRef(null);
    const action = useAction();
    const isChanged = text !== base.text, hasMoved = saved.sha256 !== base.sha256;
    useEffect(() => {
      if (hasMoved && !isChanged) take();
    }, [saved.sha256]);
    const take = () => {
      setText(saved.text);
      setBase({ text: saved.text, sha256: saved.sha256 });
      setTold(null);
    };
    const save = async () => {
      const answer = await action.run(() => Lemming.act("resume", { name: value.name, text, was: base.sha256 }));
      if (!answer) return;
      setTold(answer);
      if (answer.is_saved) setBase({ text, sha256: answer.sha256 });
    };
    const keys = (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key === "s") {
        event.preventDefault();
        if (isChanged) save();
      }
    };
    const problems = told && !told.is_saved ? told.problems : told ? told.problems : saved.problems;
    const goTo = (problem) => {
      const lines = text.split("\n");
      const at = lines.slice(0, Math.max(problem.line - 1, 0)).reduce((sum, line) => sum + line.length + 1, 0) + Math.max((problem.column || 1) - 1, 0);
      box.current.focus();
      box.current.setSelectionRange(at, at);
      box.current.scrollTop = Math.max(0, (problem.line - 6) * 18);
    };
    const rows = Math.min(34, Math.max(12, text.split("\n").length + 1));
    return html`<div class="editor card"><p class="from"><code>${saved.file}</code><span class="when" role="status">${isChanged ? "not saved" : told && told.is_saved ? "saved as typed" : ""}</span></p>
      ${saved.wrong ? html`<p class="wrong">${saved.wrong}</p>` : null}
      <textarea ref=${box} class="code" spellcheck="false" rows=${rows} aria-label=${`the resume of ${value.name}`} readonly=${page.is_read_only} value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${keys} aria-describedby="problems"></textarea>
      <ul id="problems" class="problems" aria-live="polite">${problems.map((problem) => html`<li class=${problem.severity}><button type="button" class="plain" onClick=${() => goTo(problem)}>${problem.line ? `line ${problem.line}${problem.column ? `, column ${problem.column}` : ""}` : "the file"}</button>
        <span>${problem.message}${problem.hint ? html`<small> ${problem.hint}</small>` : null}</span></li>`)}</ul>
      ${(told && told.is_stale) || (hasMoved && isChanged) ? html`<div class="failure" role="alert"><strong>The file has changed on the disk since you began.</strong><p>Nothing was written. <button type="button" class="plain" onClick=${take}>Take what is there now</button> (what you typed is lost; copy it first)</p></div>` : null}
      ${told && !told.is_saved && !told.is_stale ? html`<p class="wrong" role="alert">Not saved: mend what is named above first.</p>` : null}
      ${page.is_read_only ? html`<p class="note">This page only looks.</p>` : html`<div class="buttons"><button class="primary" disabled=${!isChanged || action.isBusy} onClick=${save} title="Ctrl+S">Save</button>
        <button disabled=${!isChanged} onClick=${() => (setText(base.text), setTold(null))}>Undo</button><span class="note">It is checked as <code>lemming validate</code> does and counts from the agent's next turn.</span></div>`}
      <${Failure} error=${action.error} /></div>`;
  }

  // --- the rest ---

  function Prompt({ prompt }) {
    if (!prompt) return html`<p class="loading">putting it together…</p>`;
    if (prompt.why_not) return html`<${Empty} title="No prompt">${prompt.why_not}<//>`;
    const size = prompt.messages.reduce((sum, message) => sum + message.content.length, 0);
    return html`<p class="note">What ${prompt.model} would be sent now, for tick ${prompt.tick}: ${amount(size)} characters.${prompt.waits_for.length ? ` In its turn, plus what ${prompt.waits_for.join(", ")} will write before it.` : ""}</p>
      ${prompt.messages.map((message) => html`<div class="prompt-message"><h5>${message.role}</h5><pre class="tall" tabindex="0" dir="auto">${message.content}</pre></div>`)}`;
  }

  function Memory({ value }) {
    const { values, problems } = value.memory;
    if (!values.length && !problems.length) return html`<${Empty} title="It remembers nothing">A memory is a file in agents/${value.name}/memory.<//>`;
    return html`<dl class="memories">${values.map((each) => html`<div data-line tabindex="0"><dt><code>${each.key}</code>${each.trust ? html` <span class="trust ${each.trust}">${each.trust}</span>` : null} <${Lemming.ui.Why} target=${`${value.name}/memory/${each.key}`} /></dt>
      <dd class="said" dir="auto">${each.text}${each.chars > each.text.length ? html`<small> … ${amount(each.chars)} characters</small>` : null}</dd></div>`)}</dl>${problems.map((each) => html`<p class="wrong">${each}</p>`)}`;
  }

  function Workspace({ value }) {
    const [open, setOpen] = useState(null);
    const action = useAction();
    const { files, left_out, wrong } = value.workspace;
    if (wrong) return html`<p class="wrong">${wrong}</p>`;
    if (!files.length) return html`<${Empty} title="Its workspace is empty">Files that it writes are in agents/${value.name}/workspace.<//>`;
    const look = async (path) => {
      const told = await action.run(() => Lemming.load("agent", { name: value.name, file: path }));
      if (told) setOpen(told.file);
    };
    return html`<ul class="list files-of">${files.map((file) => html`<li>${file.is_link ? html`<code>${file.path}</code> <small>a link, not followed</small>` : html`<button type="button" class="plain" data-line aria-expanded=${Boolean(open && open.path === file.path)} onClick=${() => (open && open.path === file.path ? setOpen(null) : look(file.path))}><code>${file.path}</code></button> <small>${amount(file.bytes)} bytes</small> <${Lemming.ui.Why} target=${`agents/${value.name}/workspace/${file.path}`} />`}
      ${open && open.path === file.path ? html`<pre class="tall" tabindex="0" dir="auto">${open.text}</pre>` : null}</li>`)}</ul>${left_out ? html`<p class="note">and ${amount(left_out)} more</p>` : null}<${Failure} error=${action.error} />`;
  }

  function Turns({ value }) {
    if (!value.turns.length) return html`<${Empty} title="It has taken no turn"><//>`;
    return html`<div class="table" role="group" aria-label="its turns, newest first">${value.turns.map((turn) => html`<a class="line of-agent" data-line href=${Lemming.link("tick", { number: turn.tick, agent: value.name })}>
      <span>tick ${turn.tick}</span><span><span class="pill end ${turn.status}">${(turn.end || turn.status).replace(/_/g, " ")}</span></span>
      <span>${turn.cost_usd == null ? `${amount(turn.credits)} cr` : dollars(turn.cost_usd)}</span><span class="faint">${amount(turn.tokens)} tokens</span><span class="faint">${turn.serving}</span></a>`)}</div>
      ${value.money.wrong ? html`<p class="wrong">${value.money.wrong}</p>` : null}`;
  }

  // Of the workspace's files one at a time is fetched; the prompt only where it is looked at.
  const asked = (route) => ({ name: route.name || "", ...(route.show === "prompt" && { prompt: 1 }) });
  Lemming.part("agent", { title: "Agent", hidden: true, under: "agents", params: asked, render: One });
})();
