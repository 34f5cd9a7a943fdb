"use strict";
// The past: what each tick changed, how two differ, and a fork that goes on from one.
(function () {
  const { html } = Lemming;
  const { useState, useEffect, useRef } = Lemming.hooks;
  const { Agent, AgentField, Empty, Failure, useAction, amount } = Lemming.ui;
  const MARK = { added: "+", modified: "±", deleted: "−" };

  function Past({ value, params, page }) {
    const last = value.next_tick - 1;
    const isTwo = value.old != null, now = value.new ?? last;
    const go = (more) => Lemming.go("past", { ...params, ...more });
    const byHand = page.is_report ? null : html`<${OfAgent} agent=${value.agent} choose=${(agent) => go({ agent })} />`;
    return html`<section class="past">
      <div class="scrub card"><${Slider} label=${isTwo ? "from after tick" : "tick"} value=${isTwo ? value.old : now} last=${last} choose=${(at) => go(isTwo ? { old: String(at) } : { new: String(at) })} />
        ${isTwo ? html`<${Slider} label="to after tick" value=${now} last=${last} choose=${(at) => go({ new: String(at) })} />` : null}
        <div class="buttons">${isTwo ? html`<button onClick=${() => Lemming.go("past", { new: now, agent: params.agent })}>Only one tick</button>`
            : page.is_report ? null : html`<button onClick=${() => go({ old: String(Math.max(0, now - 1)), new: String(now) })}>Compare two ticks</button>`}
          ${isTwo ? null : html`<a class="button" href=${Lemming.link("tick", { number: now })}>the tick itself</a>`}
          ${byHand}${page.is_read_only ? null : html`<${Fork} at=${isTwo ? value.old : now} />`}</div></div>
      <h3>${isTwo ? `What is different after tick ${now} than after tick ${value.old}` : `What tick ${now} changed`}${value.agent ? ` in ${value.agent}'s folder` : ""}</h3>
      ${value.remark ? html`<p class="note">${value.remark}</p>` : null}
      ${value.files.length ? html`<${Files} key=${`${value.old} ${value.new} ${value.agent}`} value=${value} />` : html`<${Empty} title=${isTwo ? "No differences" : "This tick changed no file"}>${isTwo ? "The files are equal." : "No agent ran, or no agent wrote anything."}<//>`}</section>`;
  }

  // Whose files: it asks once a name stands there, not at each letter.
  function OfAgent({ agent, choose }) {
    const [typed, set] = useState(agent);
    useEffect(() => set(agent), [agent]);
    return html`<span class="by-agent" onChange=${() => choose(typed)}><${AgentField} label="only files of one agent" placeholder="only one agent's files" value=${typed} change=${set} /></span>`;
  }

  // A range with its number beside it; it asks once it has rested.
  function Slider({ label, value, last, choose }) {
    const [at, set] = useState(value);
    const timer = useRef(0);
    useEffect(() => set(value), [value]);
    const move = (next) => {
      const tick = Math.min(last, Math.max(0, Number(next) || 0));
      set(tick);
      clearTimeout(timer.current);
      timer.current = setTimeout(() => choose(tick), 200);
    };
    return html`<div class="slider"><label><span>${label}</span><input type="range" min="0" max=${last} value=${at} onInput=${(event) => move(event.target.value)} /></label>
      <button type="button" aria-label="one tick earlier" disabled=${at <= 0} onClick=${() => move(at - 1)}>‹</button>
      <input class="number" type="number" min="0" max=${last} value=${at} aria-label=${label} onChange=${(event) => move(event.target.value)} />
      <button type="button" aria-label="one tick later" disabled=${at >= last} onClick=${() => move(at + 1)}>›</button></div>`;
  }

  const FIRST = 40;
  const OF_AGENT = /^agents\/([^/]+)\/(.*)$/, KEPT_BY_ENGINE = /^(tick\.json|\.lemming\/.*|logs\/.*|agents\/[^/]+\/turns\.jsonl)$/;

  // By agent: what it said, what it remembers, which files it wrote; what the engine keeps for itself comes last.
  function Files({ value }) {
    const [isAll, showAll] = useState(false);
    const texts = textsOf(value), groups = new Map(), kept = [];
    for (const file of value.files) {
      const name = (OF_AGENT.exec(file.path) || [])[1] || "";
      if (KEPT_BY_ENGINE.test(file.path)) kept.push(file);
      else groups.set(name, [...(groups.get(name) || []), file]);
    }
    const names = [...groups.keys()].sort((one, other) => (one === "") - (other === "") || (one < other ? -1 : 1));
    const shown = isAll ? names : names.slice(0, FIRST), few = value.files.length - kept.length <= 3;
    const one = (file, place) => html`<${File} key=${file.path} file=${file} name=${place} text=${texts.get(file.path)} isCut=${value.chars > value.diff.length} isOpen=${few} />`;
    return html`<div class="files">${shown.map((name) => html`<section key=${name} class="whose"><h4>${name ? html`<${Agent} name=${name} />` : "everybody's files"}</h4><ul>${groups.get(name).map((file) => one(file, name ? OF_AGENT.exec(file.path)[2] : file.path))}</ul></section>`)}
      ${names.length > shown.length ? html`<p><button type="button" class="plain" onClick=${() => showAll(true)}>${amount(names.length - shown.length)} more agents</button></p>` : null}
      ${kept.length ? html`<details class="kept"><summary>and ${amount(kept.length)} ${kept.length === 1 ? "file" : "files"} that the engine keeps</summary><ul>${kept.slice(0, 5 * FIRST).map((file) => one(file, file.path))}</ul></details>` : null}</div>`;
  }

  function textsOf(value) {
    const texts = new Map();
    for (const part of value.diff.split(/^(?=diff --git )/m)) {
      const found = /^diff --git a\/(.*?) b\/(.*)$/m.exec(part);
      if (found) texts.set(found[2], part.replace(/^diff --git.*\n(?:index.*\n|new file.*\n|deleted file.*\n|old mode.*\n|new mode.*\n)*/, ""));
    }
    return texts;
  }

  // What an entry says and a memory holds stands there at once; how a file differs is opened.
  function File({ file, name, text, isCut, isOpen }) {
    const said = file.change === "deleted" ? null : file.said, noun = /^(outbox|memory)\//.exec(name);
    const label = said ? html`<span class="kind ${said.kind}">${said.kind}</span> <span class="says" dir="auto">${said.says}</span>` : html`<code>${name}</code>`;
    return html`<li><details open=${(isOpen && !said) || undefined}><summary data-line><span class=${"mark " + file.change} title=${file.change}>${MARK[file.change] || "?"}</span>${label}
        <small>${said && noun ? "" : file.added == null ? "no text" : html`${file.added ? html`<span class="plus">+${file.added}</span> ` : null}${file.removed ? html`<span class="minus">−${file.removed}</span>` : null}`}</small></summary>
        ${said ? html`<p class="note"><code>${file.path}</code></p>` : null}
        ${text != null ? html`<${Lemming.ui.Diff} text=${text} />` : html`<p class="note">${isCut ? "Its text is not shown: there is too much. " : ""}<code>lemming diff</code> shows it.</p>`}
        <p><${Lemming.ui.Why} target=${file.path} /></p></details></li>`;
  }

  function Fork({ at }) {
    const [isOpen, open] = useState(false);
    const [folder, setFolder] = useState("");
    const [made, setMade] = useState(null);
    const action = useAction();
    const make = async (event) => {
      event.preventDefault();
      const told = await action.run(() => Lemming.act("fork", { at: String(at), folder: folder.trim() }));
      if (told) setMade(told);
    };
    if (made)
      return html`<p class="note" role="status">Made <code>${made.folder}</code>, as after tick ${made.at}. <code>lemming -C ${made.folder} run-once</code> runs tick ${made.next_tick}. ${made.remark}</p>`;
    if (!isOpen) return html`<button onClick=${() => open(true)}>Fork from tick ${at}…</button>`;
    return html`<form class="inline" onSubmit=${make}><label>a new folder beside this one <input required pattern="[A-Za-z0-9][A-Za-z0-9._\\-]*" maxlength="64" placeholder="what-if" value=${folder} onInput=${(event) => setFolder(event.target.value)} /></label>
      <button class="primary" disabled=${action.isBusy || !folder.trim()}>Fork from tick ${at}</button><button type="button" class="plain" onClick=${() => open(false)}>not now</button><${Failure} error=${action.error} /></form>`;
  }

  // Where two cannot be compared, one can still be looked at.
  function One({ params }) {
    return html`<p class="tools"><a class="button" href=${Lemming.link("past", { new: params.new || params.old, agent: params.agent })}>Only one tick</a></p>`;
  }

  Lemming.part("past", { title: "History", key: "h", render: Past, ask: One });
})();
