"use strict";
// One agent: its resume, to be edited in place; memory, workspace, turns, and what its model would be sent next.
(function () {
  const { html } = Lemming;
  const { useState, useEffect, useRef } = Lemming.hooks;
  const { Ago, Agent, Empty, Failure, Meter, useAction, useDraft, amount, dollars, STATES } = Lemming.ui;

  const SECTIONS = [["turns", "Turns"], ["resume", "Resume"], ["memory", "Memory"], ["workspace", "Files"], ["prompt", "Next prompt"]];

  function One({ value, params, page }) {
    const shown = params.show || "turns";
    const counts = { memory: value.memory.values.length, workspace: value.workspace.files.length + value.workspace.left_out, turns: value.money.turns };
    return html`<section class="one">
      <div class="tools"><h3><${Agent} name=${value.name} plain /></h3><span>${value.title}</span>
        <span class="links"><a href=${Lemming.link("feed", { agent: value.name })}>what it said</a> · <a href=${Lemming.link("map", { agent: value.name })}>on the map</a> · <a href=${Lemming.link("past", { agent: value.name })}>what changed in its folder</a></span></div>
      <${Now} value=${value} />
      <p class="ways">${ways(value)}</p>
      <nav class="tabs" aria-label="of this agent"><ul>${SECTIONS.map(([name, title]) => html`<li><a aria-current=${name === shown ? "page" : undefined} href=${Lemming.link("agent", { name: value.name, show: name === "turns" ? "" : name })}>${title}${counts[name] ? html` <small>${amount(counts[name])}</small>` : null}</a></li>`)}</ul></nav>
      ${shown === "resume" ? html`<${Resume} key=${value.name} value=${value} page=${page} />` : null}
      ${shown === "prompt" ? html`<${Prompt} prompt=${value.prompt} />` : null}
      ${shown === "memory" ? html`<${Memory} value=${value} />` : null}
      ${shown === "workspace" ? html`<${Workspace} value=${value} />` : null}
      ${shown === "turns" ? html`<${Turns} value=${value} />` : null}</section>`;
  }

  // How it is: what it does now, the last failure, its last words, when it is due, what it has spent.
  function Now({ value }) {
    const now = value.now, money = value.money, failed = value.turns.find((turn) => turn.status === "failed");
    const isTrouble = now.text && now.state !== "not_due";
    return html`<section class="now card" aria-label="how it is">
      <p class="doing"><span class="pill ${now.state}">${STATES[now.state] || now.state}</span>${isTrouble ? html`<span class="reason">${now.text}</span>` : null}${now.since ? html`<small><${Ago} at=${now.since} since /></small>` : null}
        ${now.state === "waits" ? html`<a href=${Lemming.link("waiting")}>what waits</a>` : null}</p>
      <dl>${now.last ? html`<dt>last words</dt><dd dir="auto"><q>${now.last.text}</q> <small><a href=${Lemming.link("why", { target: now.last.file })}>why?</a> · <${Ago} at=${now.last.at} /></small></dd>` : null}
        ${now.next ? html`<dt>next</dt><dd>${now.next_at ? html`<${Ago} at=${now.next_at} />` : now.next}</dd>` : null}
        ${failed && now.state !== "failing" ? html`<dt>failed last</dt><dd>in <a href=${Lemming.link("tick", { number: failed.tick, agent: value.name })}>tick ${failed.tick}</a>: ${failed.reason || words(failed.end || failed.status)}</dd>` : null}
        ${money.credits == null || !value.takes_turns ? null : html`<dt>spent</dt><dd>${amount(money.used_up)}${money.max_credits == null ? " credits, without a limit" : ` of ${amount(money.max_credits)} credits`}${money.cost_usd == null ? "" : `, ${dollars(money.cost_usd)}`}<${Meter} value=${money.used_up} max=${money.max_credits} label="share of its credits that is spent" /></dd>`}</dl></section>`;
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

  function Resume({ value, page }) {
    const saved = value.resume;
    const [text, setText] = useDraft("resume " + value.name, saved.text);
    const [base, setBase] = useState({ text: saved.text, sha256: saved.sha256 });
    const [told, setTold] = useState(null);
    const box = useRef(null);
    const action = useAction();
    const isChanged = text !== base.text, hasMoved = saved.sha256 !== base.sha256;
    useEffect(() => {
      if (hasMoved && !isChanged) take();
    }, [saved.sha256]);
    const take = () => {
      Lemming.drafts.delete("resume " + value.name);
      setText(saved.text);
      setBase({ text: saved.text, sha256: saved.sha256 });
      setTold(null);
    };
    const save = async () => {
      const answer = await action.run(() => Lemming.act("resume", { name: value.name, text, was: base.sha256 }));
      if (!answer) return;
      setTold(answer);
      if (answer.is_saved) {
        setBase({ text, sha256: answer.sha256 });
        Lemming.drafts.delete("resume " + value.name);
      }
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
      <div class="beside"><${Fields} text=${text} change=${page.is_read_only ? null : setText} /><div>
      <textarea ref=${box} class="code" spellcheck="false" rows=${rows} aria-label=${`the resume of ${value.name}`} readonly=${page.is_read_only} value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${keys} aria-describedby="problems"></textarea>
      <ul id="problems" class="problems" aria-live="polite">${problems.map((problem) => html`<li class=${problem.severity}><button type="button" class="plain" onClick=${() => goTo(problem)}>${problem.line ? `line ${problem.line}${problem.column ? `, column ${problem.column}` : ""}` : "the file"}</button>
        <span>${problem.message}${problem.hint ? html`<small> ${problem.hint}</small>` : null}</span></li>`)}</ul></div></div>
      ${(told && told.is_stale) || (hasMoved && isChanged) ? html`<div class="failure" role="alert"><strong>The file has changed on the disk since you began.</strong><p>Nothing was written. <button type="button" class="plain" onClick=${take}>Take what is there now</button> (what you typed is lost; copy it first)</p></div>` : null}
      ${told && !told.is_saved && !told.is_stale ? html`<p class="wrong" role="alert">Not saved: mend what is named above first.</p>` : null}
      ${page.is_read_only ? html`<p class="note">This page only looks.</p>` : html`<div class="buttons"><button class="primary" disabled=${!isChanged || action.isBusy} onClick=${save} title="Ctrl+S">Save</button>
        <button disabled=${!isChanged} onClick=${() => (setText(base.text), setTold(null))}>Undo</button>
        <${Try} name=${value.name} text=${text} isChanged=${isChanged} /><span class="note">It is checked as <code>lemming validate</code> does and counts from the agent's next turn.</span></div>`}
      <${Failure} error=${action.error} /></div>`;
  }

  // --- what would have been different ---

  // Two steps: what it would cost, without asking anybody; then the last ticks again, in a fork.
  function Try({ name, text, isChanged }) {
    const [found, setFound] = useState(null);
    const action = useAction();
    useEffect(() => setFound(null), [text]);
    const run = async (isDry) => {
      const told = await action.run(() => Lemming.act("try", { name, text, is_dry: isDry }));
      if (told) setFound(told);
    };
    return html`<button disabled=${!isChanged || action.isBusy} onClick=${() => run(true)}>${action.isBusy ? "trying…" : "Try on the last 10 ticks"}</button>
      ${found || action.error ? html`<section class="tried card" role="status" aria-label="what would have been different"><${Failure} error=${action.error} />
        ${found ? html`<${Tried} found=${found} go=${() => run(false)} isBusy=${action.isBusy} />` : null}</section>` : null}`;
  }

  function Tried({ found, go, isBusy }) {
    const span = found.first === found.last ? `tick ${found.first}` : `ticks ${found.first} to ${found.last}`;
    const count = (number, noun) => `${amount(number)} ${noun}${number === 1 ? "" : "s"}`;
    if (found.is_dry)
      return html`<p><strong>${span}: at least ${count(found.asked, "question")} of ${amount(found.asked + found.reused)} would be other ones.</strong> ${found.asked ? html`Asking them costs ${found.at_most_usd == null ? "an amount that nobody knows" : `at most ${dollars(found.at_most_usd)}`}. ` : "Nothing else would have happened."}</p>
        ${found.scripted.length ? html`<p class="wrong">The model of ${found.scripted.join(", ")} is a recording, which answers whatever it is asked: it may be unable to tell.</p>` : null}
        ${found.asked ? html`<p class="buttons"><button class="primary" disabled=${isBusy} onClick=${go}>Ask them, in a fork that is thrown away</button></p>` : null}`;
    const paid = `${count(found.calls, "call")} made${found.cost_usd == null ? "" : `, ${dollars(found.cost_usd)}`}; ${count(found.reused, "answer")} from the record`;
    return html`${found.stopped_by ? html`<p class="wrong">It went no further than tick ${found.last}: ${found.stopped_by}</p>` : null}
      ${found.cannot_tell ? html`<p class="wrong"><strong>That cannot be told: ${found.cannot_tell}.</strong></p>` : found.is_alike ? html`<p><strong>${span}: nothing would have been different.</strong></p>` : html`<p><strong>${span}: ${count(found.entries.length + found.left_out, "entry").replace(/entrys/, "entries")} would have been different.</strong></p>`}
      <p class="note">${paid}</p>
      ${found.entries.map((entry) => html`<div><p class="from"><${Agent} name=${entry.agent} /><span class="kind ${entry.kind}">${entry.kind}</span><span class="faint">tick ${entry.tick}, ${entry.change}</span></p><${Lemming.ui.Diff} text=${entry.diff} /></div>`)}
      ${found.ends.map((end) => html`<p>tick ${end.tick}, ${end.agent}: ended ${end.before || "(no turn)"}, now ${end.after || "(no turn)"}</p>`)}
      ${found.files.length ? html`<p class="note">other files: ${found.files.join(", ")}</p>` : null}`;
  }

  // --- some of the resume's values as fields, beside the file ---

  const FIELDS = [
    [["title"], "Title", "text"], [["instructions"], "Instructions", "long"], [["model", "key"], "Model", "text"],
    [["model", "temperature"], "Temperature", "number"], [["schedule", "run_every_n_ticks"], "A turn every so many ticks", "number"], [["credits", "max_credits"], "Credits it may spend", "number"],
  ];

  function Fields({ text, change }) {
    let plain;
    try {
      plain = JSON.parse(text);
    } catch {
      return html`<p class="note">While the file is no JSON, its values cannot be shown as fields.</p>`;
    }
    const there = FIELDS.map(([path, title, form]) => [path, title, form, path.reduce((at, key) => (at && typeof at === "object" ? at[key] : undefined), plain)]).filter(([, , , value]) => typeof value === "string" || typeof value === "number");
    const set = (path, form) => (event) => {
      const typed = event.target.value, value = form === "number" ? Number(typed) : typed;
      if (form !== "number" || (typed.trim() && Number.isFinite(value))) change(replaced(text, path, JSON.stringify(value)));
    };
    return html`<div class="form" role="group" aria-label="values of the resume">${there.map(([path, title, form, value]) => html`<label key=${path.join()}><span>${title}</span>${form === "long"
      ? html`<textarea rows="8" readonly=${!change} value=${value} onInput=${set(path, form)}></textarea>`
      : html`<input readonly=${!change} inputmode=${form === "number" ? "decimal" : undefined} value=${String(value)} onInput=${set(path, form)} />`}</label>`)}</div>`;
  }

  // The text of a JSON file with one value replaced: all else stays as it was typed.
  function replaced(text, path, value) {
    let at = 0;
    const STRING = /"(?:[^"\\]|\\.)*"/y, PLAIN = /[^\s,\]}]+/y;
    const skip = () => { while (/\s/.test(text[at] || "")) at++; };
    const take = (form) => {
      form.lastIndex = at;
      at += form.exec(text)[0].length;
    };
    // Passes over a value; returns where the one at the rest of the path stands, if it is in there.
    const pass = (rest) => {
      skip();
      const begin = at;
      let found = null;
      if (text[at] === "{" || text[at] === "[") {
        const isObject = text[at++] === "{";
        for (skip(); text[at] !== "}" && text[at] !== "]"; skip()) {
          let key = null;
          if (isObject) {
            const start = at;
            take(STRING);
            key = JSON.parse(text.slice(start, at));
            skip();
            at++;
          }
          const inner = pass(rest && key === rest[0] ? rest.slice(1) : null);
          if (inner && rest && key === rest[0]) found = inner;
          skip();
          if (text[at] === ",") at++;
        }
        at++;
      } else take(text[at] === '"' ? STRING : PLAIN);
      return rest && !rest.length ? [begin, at] : found;
    };
    const place = pass(path);
    return place ? text.slice(0, place[0]) + value + text.slice(place[1]) : text;
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

  // Turns that ended alike for the same reason, one after another, stand in one line.
  function Turns({ value }) {
    if (!value.turns.length) return html`<${Empty} title="It has taken no turn"><//>`;
    const runs = [];
    for (const turn of value.turns) {
      const last = runs[runs.length - 1], key = [turn.status, turn.end, turn.reason, turn.reason ? "" : turn.did].join();
      if (last && last.key === key && (turn.reason || turn.did === "wrote nothing")) last.turns.push(turn);
      else runs.push({ key, turns: [turn] });
    }
    return html`<div class="table" role="group" aria-label="its turns, newest first">
      <div class="line of-agent heading" aria-hidden="true"><span>Tick</span><span>Ended</span><span>Did, or why not</span><span>Cost</span><span>Tokens</span></div>
      ${runs.map(({ turns }) => html`<${Run} turns=${turns} name=${value.name} />`)}</div>
      ${value.money.wrong ? html`<p class="wrong">${value.money.wrong}</p>` : null}`;
  }

  function Run({ turns, name }) {
    const newest = turns[0], oldest = turns[turns.length - 1];
    const sum = (of) => turns.reduce((total, turn) => total + (of(turn) || 0), 0);
    return html`<a class="line of-agent" data-line href=${Lemming.link("tick", { number: newest.tick, agent: name })}>
      <span>${turns.length > 1 ? `ticks ${oldest.tick}–${newest.tick}` : `tick ${newest.tick}`}</span><span><span class="pill end ${newest.status}">${words(newest.end || newest.status)}</span>${turns.length > 1 ? html` <small>${turns.length}×</small>` : null}</span>
      <span title=${newest.reason || newest.did}>${newest.reason || newest.did}</span>
      <span>${newest.cost_usd == null ? `${amount(sum((turn) => turn.credits))} cr` : dollars(sum((turn) => turn.cost_usd))}</span><span class="faint">${amount(sum((turn) => turn.tokens))}</span></a>`;
  }

  // Of the workspace's files one at a time is fetched; the prompt only where it is looked at.
  const asked = (route) => ({ name: route.name || "", ...(route.show === "prompt" && { prompt: 1 }) });
  Lemming.part("agent", { title: "Agent", hidden: true, under: "agents", params: asked, render: One });
})();
