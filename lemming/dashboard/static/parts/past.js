"use strict";
// The past: what each tick changed, how two differ, and a fork that goes on from one.
(function () {
  const { html } = Lemming;
  const { useState, useEffect, useRef } = Lemming.hooks;
  const { Empty, Failure, useAction, amount } = Lemming.ui;
  const MARK = { added: "+", modified: "±", deleted: "−" };

  function Past({ value, params, page }) {
    const last = value.next_tick - 1;
    const isTwo = value.old != null;
    const go = (more) => Lemming.go("past", { ...params, ...more });
    return html`<section class="past">
      <div class="scrub card"><${Slider} label=${isTwo ? "after tick" : "what tick"} value=${isTwo ? value.old : value.new} last=${last} choose=${(at) => go(isTwo ? { old: String(at) } : { new: String(at) })} />
        ${isTwo ? html`<${Slider} label="against tick" value=${value.new ?? last} last=${last} choose=${(at) => go({ new: String(at) })} />` : null}
        <div class="buttons">${isTwo ? html`<button onClick=${() => Lemming.go("past", { new: value.new ?? last, agent: params.agent })}>Only one tick</button>`
            : page.is_report ? null : html`<button onClick=${() => go({ old: String(Math.max(0, value.new - 1)), new: String(value.new) })}>Compare two ticks</button>`}
          ${isTwo ? null : html`<a class="button" href=${Lemming.link("tick", { number: value.new })}>the tick itself</a>`}
          <input aria-label="only files of one agent" placeholder="only one agent's files" value=${params.agent || ""} onChange=${(event) => go({ agent: event.target.value.trim() })} />
          ${page.is_read_only ? null : html`<${Fork} at=${isTwo ? value.old : value.new} />`}</div></div>
      <h3>${isTwo ? `From tick ${value.old} to ${value.new == null ? "now" : "tick " + value.new}` : `What tick ${value.new} changed`}${value.files.length ? html` <small>${amount(value.files.length)} ${value.files.length === 1 ? "file" : "files"}</small>` : null}</h3>
      ${value.remark ? html`<p class="note">${value.remark}</p>` : null}
      ${value.files.length ? html`<${Files} value=${value} />` : html`<${Empty} title="Nothing">${isTwo ? "The files are alike." : "This tick changed no file."}<//>`}</section>`;
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

  function Files({ value }) {
    const texts = new Map(), cut = value.chars > value.diff.length;
    for (const part of value.diff.split(/^(?=diff --git )/m)) {
      const found = /^diff --git a\/(.*?) b\/(.*)$/m.exec(part);
      if (found) texts.set(found[2], part.replace(/^diff --git.*\n(?:index.*\n|new file.*\n|deleted file.*\n|old mode.*\n|new mode.*\n)*/, ""));
    }
    return html`<div class="files">${value.files.map((file) => html`<details key=${file.path} open=${value.files.length <= 3 || undefined}><summary data-line><span class=${"mark " + file.change} title=${file.change}>${MARK[file.change] || "?"}</span><code>${file.path}</code>
        <small>${file.added == null ? "no text" : html`${file.added ? html`<span class="plus">+${file.added}</span> ` : null}${file.removed ? html`<span class="minus">−${file.removed}</span>` : null}`}</small></summary>
        ${texts.has(file.path) ? html`<${Lemming.ui.Diff} text=${texts.get(file.path)} />` : html`<p class="note">${cut ? "Its text is not shown: there is too much. " : ""}<code>lemming diff</code> shows it.</p>`}
        <p><${Lemming.ui.Why} target=${file.path} /></p></details>`)}</div>`;
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

  Lemming.part("past", { title: "History", key: "h", render: Past });
})();
