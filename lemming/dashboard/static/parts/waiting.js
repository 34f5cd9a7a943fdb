"use strict";
// What waits for a person: one card each, with what is needed, and the buttons that give it.
(function () {
  const { html } = Lemming;
  const { useState } = Lemming.hooks;
  const { Ago, Agent, Empty, Failure, Diff, plain, useAction } = Lemming.ui;

  const DONE = { approve: "Approved", deny: "Denied", answer: "Answered" };

  function Waiting({ value, header, page }) {
    const [done, setDone] = useState("");
    return html`<p class="notice" role="status">${done}${done && !header.engine ? html`; no engine runs, so start one: <code>lemming run-forever</code>` : null}</p>
      ${value.items.length ? html`<ol class="cards" aria-label="what waits for you">${value.items.map(
        (item) => html`<${Card} key=${item.identity + item.person} item=${item} page=${page} tell=${setDone} />`)}</ol>`
        : html`<${Empty} title="Nothing waits for you">Questions, approvals and forms of the agents come up here.<//>`}`;
  }

  function Card({ item, page, tell }) {
    const action = useAction();
    const act = async (name, said) => {
      const told = await action.run(() => Lemming.act(name, { id: item.identity, person: item.person, ...said }));
      if (told && told.told) tell(`${DONE.approve}. ${told.told.join(". ")}`);
      else if (told && told.beside) tell(`${DONE.approve}: it is made once these of the same turn are decided too: ${told.beside.join(", ")}`);
      else if (told) tell(`${DONE[said.refuse ? "deny" : said.word || "answer"]}: ${item.asker} goes on with it in its next turn`);
    };
    return html`<li class="card" data-line tabindex="0" aria-label=${item.line}>
      <p class="from"><${Agent} name=${item.asker} /> asks <${Agent} name=${item.person} plain />
        ${item.call ? html`<span>for approval to call <code class="tool">${plain(item.call.tool)}</code></span>` : html`<span>for ${item.needs}</span>`}
        <span class="when"><${Ago} at=${item.created_at} /> · tick ${item.tick} · ${item.at_deadline}</span></p>
      ${item.text && !item.call ? html`<p class="said" dir="auto">${item.text}</p>` : null}
      ${item.call ? html`<${Call} call=${item.call} />` : null}
      ${page.is_read_only ? html`<p class="note">This page only looks: <code>lemming answer ${item.id}</code></p>`
        : item.decides ? html`<${Decide} item=${item} act=${act} isBusy=${action.isBusy} />`
        : html`<${Answer} item=${item} act=${act} isBusy=${action.isBusy} />`}
      <${Failure} error=${action.error} />
    </li>`;
  }

  // All of the call, whatever it would write: a diff may be long, and is not what is made.
  function Call({ call }) {
    const bound = Object.entries(call.binds || {});
    return html`<div class="call"><p class="note">${call.why ? html`${plain(call.why)} · ` : null}<code>${call.gate || call.id}</code></p>
      <pre class="args" tabindex="0" aria-label="with what it would be called">${plain(JSON.stringify(call.args, null, 2))}</pre>
      ${call.diff ? html`<${Diff} text=${call.diff} />` : null}
      ${bound.length ? html`<p class="note">Bound to ${bound.map(([place, digest]) => html` <code title=${digest}>${plain(place)}${digest ? "" : " (not there)"}</code>`)}</p>` : null}
      ${call.notes ? html`<div class="note closely">Look closely:<ul>${call.notes.map((line) => html`<li>${plain(line)}</li>`)}</ul></div>` : null}
      ${call.unbound ? html`<div class="note">Not bound, and may change before it is made:<ul>${call.unbound.map((line) => html`<li>${plain(line)}</li>`)}</ul></div>` : null}</div>`;
  }

  function Decide({ item, act, isBusy }) {
    const [mode, setMode] = useState("");
    const [text, setText] = useState("");
    const [edits, setEdits] = useState({});
    const args = (item.call && item.call.args) || {};
    const changed = () => Object.fromEntries(Object.entries(edits).filter(([key, value]) => value !== shown(args[key])));
    if (mode === "edit")
      return html`<form class="form" onSubmit=${(event) => (event.preventDefault(), act("decide", { word: "approve", edits: changed() }))}>
        ${Object.entries(args).map(([key, value]) => html`<label><span>${key}</span>
          ${plain(shown(value)) === shown(value) ? null : html`<small class="wrong">it has signs that are not seen: ${plain(shown(value))}</small>`}
          <textarea rows=${Math.min(8, shown(value).split("\n").length)} onInput=${(event) => setEdits({ ...edits, [key]: event.target.value })}
            value=${key in edits ? edits[key] : shown(value)}></textarea></label>`)}
        <p class="buttons"><button class="primary" disabled=${isBusy}>Approve as edited</button>
          <button type="button" onClick=${() => setMode("")}>Back</button></p></form>`;
    if (mode)
      return html`<form class="form" onSubmit=${(event) => (event.preventDefault(), act("decide", { word: mode, text }))}>
        <label><span>${mode === "deny" ? "Why not (may be empty)" : "What it is told as the result"}</span>
          <textarea rows="3" required=${mode === "answer"} value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
        <p class="buttons"><button class=${mode === "deny" ? "danger" : "primary"} disabled=${isBusy}>${mode === "deny" ? "Deny" : "Answer"}</button>
          <button type="button" onClick=${() => setMode("")}>Back</button></p></form>`;
    return html`<p class="buttons">
      <button class="primary" disabled=${isBusy} onClick=${() => act("decide", { word: "approve" })}>Approve</button>
      ${item.call ? html`<button disabled=${isBusy} onClick=${() => setMode("edit")}>Edit…</button>` : null}
      <button class="danger" disabled=${isBusy} onClick=${() => setMode("deny")}>Deny…</button>
      ${item.call ? html`<button class="plain" disabled=${isBusy} onClick=${() => setMode("answer")}>Answer instead…</button>
        <button class="plain" disabled=${isBusy} title=${`${item.asker} may call ${item.call.tool} from now on, and this gate does not ask; others hold: ${item.call.gate}`}
          onClick=${() => act("decide", { word: "approve", always: true })}>Approve always</button>` : null}</p>`;
  }

  function shown(value) {
    return typeof value === "string" ? value : JSON.stringify(value);
  }

  function Answer({ item, act, isBusy }) {
    const [text, setText] = useState("");
    const [fields, setFields] = useState({});
    const said = item.fields.length ? { fields } : { text };
    return html`<form class="form" onSubmit=${(event) => (event.preventDefault(), act("answer", said))}>
      ${item.fields.length ? item.fields.map((field) => html`<${Field} field=${field} value=${fields[field.name] || ""}
          change=${(value) => setFields({ ...fields, [field.name]: value })} />`)
        : html`<label><span>Answer</span><textarea rows="3" required value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>`}
      <p class="buttons"><button class="primary" disabled=${isBusy}>Answer</button>
        <button type="button" class="danger" disabled=${isBusy} onClick=${() => act("answer", { refuse: true, text })}>Refuse</button></p></form>`;
  }

  function Field({ field, value, change }) {
    const told = (event) => change(event.target.value);
    const choice = field.form === "yes" ? ["yes", "no"] : field.choice;
    return html`<label><span>${field.name} <small>${field.about}${field.is_required ? "" : "; may be empty"}</small></span>
      ${choice ? html`<select required=${field.is_required} value=${value} onChange=${told}><option value=""></option>
          ${choice.map((each) => html`<option>${each}</option>`)}</select>`
        : field.form === "number" ? html`<input inputmode="decimal" required=${field.is_required} value=${value} onInput=${told} />`
        : html`<textarea rows="2" required=${field.is_required} value=${value} onInput=${told}></textarea>`}</label>`;
  }

  Lemming.part("waiting", { title: "Waiting", key: "w", render: Waiting });
})();
