"use strict";
// What one person decides about one item: the call whole, why it waits, and the ways to answer.
(function () {
  const { html } = Lemming;
  const { useState, useEffect, useLayoutEffect, useRef } = Lemming.hooks;
  const { Patch, PatchEdit, commentLines } = Lemming.patch;
  const { Ago, Agent, Failure, Diff, plain, changes, amount, dollars, useAction, useDraft, useKeys } = Lemming.ui;

  const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));

  // All of the call, whatever it would write: a diff may be cut, and is not what is made.
  function Call({ item, patch, isOpen, redraw }) {
    const { call, subject } = item;
    const bound = Object.entries(call.binds || {});
    return html`<div class="call">
      ${call.notes ? html`<div class="note closely">Look closely:<ul>${call.notes.map((line) => html`<li>${plain(line)}</li>`)}</ul></div>` : null}
      ${call.diff && !item.has_patch ? html`<${Diff} text=${call.diff} />` : null}
      ${item.has_patch ? html`<${Patch} item=${item} patch=${patch} canComment=${isOpen && !Lemming.page.is_read_only} redraw=${redraw} />` : subject && subject.entry ? html`<${Entry} entry=${subject.entry} />` : subject && subject.spend ? html`<${Spend} spend=${subject.spend} />`
        : html`<dl class="args" aria-label="arguments of the call">${Object.entries(call.args).map(([name, value]) => html`<${Argument} name=${name} value=${value} diff=${call.diff} />`)}</dl>`}
      <p class="note">Asks because ${plain(call.why || "a gate asks for approval")}${subject ? null : html` · calls <code class="called">${plain(call.tool)}</code>`} · <code>${call.gate || call.id}</code>${bound.length ? html` · bound to ${bound.map(([place, digest]) => html` <code title=${digest}>${plain(place)}${digest ? "" : " (missing)"}</code>`)}` : null}</p>
      ${call.unbound ? html`<div class="note">Not bound, may change before the call runs:<ul>${call.unbound.map((line) => html`<li>${plain(line)}</li>`)}</ul></div>` : null}</div>`;
  }

  // A text of which the diff shows every line already is folded below it.
  function Argument({ name, value, diff }) {
    const text = plain(shown(value));
    if (!text.includes("\n") && text.length < 100) return html`<div><dt>${plain(name)}</dt><dd><code>${text}</code></dd></div>`;
    const whole = html`<pre tabindex="0">${text}</pre>`;
    return html`<div class="long"><dt>${plain(name)}</dt><dd>${isWholeIn(shown(value), diff) ? html`<details><summary>all of it is in the diff above; show it by itself</summary>${whole}</details>` : whole}</dd></div>`;
  }

  function isWholeIn(text, diff) {
    if (!diff || diff.split(/^@@ /m).length !== 2) return false;
    const after = diff.split("\n").filter((line) => /^[ +]/.test(line) && !line.startsWith("+++")).map((line) => line.slice(1));
    return after.join("\n").trimEnd() === text.trimEnd();
  }

  // An entry that is to be let in, or written: whole, as its readers would see it.
  function Entry({ entry }) {
    if (entry.missing) return html`<p class="note closely">${plain(entry.missing)}</p>`;
    return html`<section class="subject" aria-label="the entry"><p class="from"><${Agent} name=${entry.author} /> <span>${plain(entry.kind)} to ${entry.to.length ? plain(entry.to.join(", ")) : "all its readers"}</span>
        ${entry.at ? html`<span class="when"><${Ago} at=${entry.at} /></span>` : null}</p>
      ${entry.text ? html`<pre class="words" tabindex="0" dir="auto">${plain(entry.text)}</pre>` : null}
      ${entry.fields.length ? html`<dl class="args">${entry.fields.map(([name, value]) => html`<${Argument} name=${name} value=${value} />`)}</dl>` : null}
      ${entry.tags.length ? html`<p class="note">tags: ${plain(entry.tags.join(", "))}</p>` : null}
      ${entry.file ? html`<p class="note"><a href=${Lemming.link("why", { target: entry.file })}>where it came from</a> · <code>${entry.file}</code></p>` : null}</section>`;
  }

  const money = (unit, number) => (unit === "dollars" ? dollars(number) : `${amount(number)} ${number === 1 ? unit.replace(/s$/, "") : unit}`);

  // What is spent, what one more call can cost, and how many such calls the raise allows.
  function Spend({ spend }) {
    const { more, now } = spend, raise = now ? more[now.unit] : null;
    const calls = raise && now.call > 0 ? Math.floor((now.limit + raise - now.spent) / now.call) : null;
    return html`<section class="subject" aria-label="the amount"><p><strong>${Object.entries(more).map(([unit, number]) => "+" + money(unit, number)).join(" and ")}</strong>${now ? html` · ${amount(now.spent)} of ${money(now.unit, now.limit)} spent · a call can cost ${money(now.unit, now.call)}` : null}</p>
      ${calls == null ? null : html`<p class="note">+${money(now.unit, raise)} ${calls > 0 ? `allows ${amount(calls)} more ${calls === 1 ? "call" : "calls"}` : "is not enough for one more call"}${spend.of ? `, for ${spend.of}` : ""}</p>`}</section>`;
  }

  // When it is too late, as people say it, and what happens then.
  function Expiry({ expiry }) {
    if (!expiry || (expiry.ticks == null && !expiry.at)) return html`<span>waits until you decide</span>`;
    const inTicks = expiry.ticks == null ? null : expiry.ticks <= 1 ? "with this tick" : `in ${expiry.ticks} ticks`;
    return html`<span>expires ${inTicks}${inTicks && expiry.at ? " or " : null}${expiry.at ? html`<${Ago} at=${expiry.at} />` : null}${expiry.default == null ? null : `, then ${expiry.default} is taken as the answer`}</span>`;
  }

  const TRUSTED = { person: "a person", channel: "from outside", tool: "what a tool gave", agent: "an agent", unknown: "nobody here" };

  // What its turn had just read. That it read it is a fact; that it asks because of it is not known.
  function Because({ item, because }) {
    if (!because) return html`<section class="because"><h4>What the agent had just read</h4><p class="note"><a href=${Lemming.link("why", { target: item.file })}>where this came from</a></p></section>`;
    const quoted = because.lines.filter((line) => line.is_quoted);
    const lines = quoted.length ? quoted : because.lines, more = because.more + because.lines.length - lines.length;
    return html`<section class="because"><h4>${quoted.length ? "What it quotes" : "What the agent had just read"}</h4>
      ${lines.length ? html`<ol>${lines.map((line) => html`<li><span class="who">${line.speaks === "tool" ? html`<code>${line.author}</code>` : html`<${Agent} name=${line.author} />`} ${line.says} </span><q dir="auto">${line.text}</q> <span class="trust ${line.trust || line.speaks}">${line.trust ? "trust: " + line.trust : TRUSTED[line.speaks]}</span>
          ${line.file ? html` <a class="aside" href=${Lemming.link("why", { target: line.file })} title=${line.file}>why?</a>` : null}</li>`)}</ol>`
        : html`<p class="note">${because.wrong || "Nothing new. It ran because it was due."}</p>`}
      <p class="note">${because.notes ? html`its own note: <q dir="auto">${because.notes}</q> · ` : null}<a href=${Lemming.link("why", { target: item.file })}>${more ? `${more} more that it read` : "all that it read"}</a> · <a href=${Lemming.link("turn", { number: because.tick, agent: because.agent })}>its turn</a></p></section>`;
  }

  function Decide({ item, patch, act, isBusy, isOpen }) {
    const [mode, setMode] = useState("");
    const [draft, setDraft] = useDraft("answer " + item.identity, {});
    const args = (item.call && item.call.args) || {};
    const text = draft.text || "";
    const edits = Object.fromEntries(Object.entries(draft.edits || {}).filter(([key, value]) => value !== shown(args[key])));
    const type = (value) => setDraft(value ? { ...draft, text: value } : without(draft, "text"));
    const canEdit = item.call && item.call.tool !== "show"; // an entry of somebody else is let in as it is
    const isGone = Boolean(item.subject && item.subject.entry && item.subject.entry.missing) || (item.has_patch && (!patch || Boolean(patch.problem)));
    const comments = commentLines(draft.comments);
    const approve = () => !off && !isGone && act("decide", { word: "approve" }, "approved");
    const choose = (next) => () => isOpen && setMode(next);
    useKeys(mode || draft.edits || draft.contents ? {} : { a: approve, d: choose("deny"), ...(canEdit && { e: choose("edit") }) });
    const off = isBusy || !isOpen;
    if (mode === "always") return html`<${Always} item=${item} act=${act} isBusy=${off} back=${() => setMode("")} />`;
    if (item.has_patch && (mode === "edit" || (draft.contents && !mode)))
      return html`<${PatchEdit} item=${item} patch=${patch} draft=${draft} setDraft=${setDraft} act=${act} off=${off || isGone} back=${() => setMode("")} />`;
    if (mode === "edit" || (draft.edits && !mode))
      return html`<form class="form" onSubmit=${(event) => (event.preventDefault(), act("decide", { word: "approve", edits }, Object.keys(edits).length ? `approved, with ${Object.keys(edits).join(", ")} changed` : "approved"))}>
        ${editable(item).map(([key, label, asked, toEdit], place) => html`<${Edited} key=${label} name=${label} asked=${asked} isFirst=${!place} value=${key in edits ? typed(key, edits[key], label) : asked}
          change=${(next) => setDraft(next === asked ? without({ ...draft, edits: without(draft.edits, key) }, "") : { ...draft, edits: { ...draft.edits, [key]: toEdit(next) } })} />`)}
        <p class="buttons"><button class="primary" disabled=${off}>Approve as edited</button>
          <button type="button" onClick=${() => (setDraft({}), setMode(""))}>Back</button></p></form>`;
    if (mode)
      return html`<form class="form" onSubmit=${(event) => (event.preventDefault(), act("decide", { word: mode, text: mode === "deny" ? [text, ...comments].filter(Boolean).join("\n") : text }, mode === "deny" ? "denied" + (text ? `: ${text}` : "") : "answered instead"))}>
        <label><span>${mode === "deny" ? "Reason (the agent is told; may be empty)" : "What it is told as the result"}</span>
          <${Area} rows="3" required=${mode === "answer"} value=${text} change=${type} isFirst /></label>
        ${mode === "deny" && comments.length ? html`<div><small>and your comments on its lines:</small><pre>${comments.join("\n")}</pre></div>` : null}
        <p class="buttons"><button class=${mode === "deny" ? "danger" : "primary"} disabled=${off}>${mode === "deny" ? "Deny" : "Answer"}</button>
          <button type="button" onClick=${() => setMode("")}>Back</button></p></form>`;
    return html`<div class="buttons decide">
      <button class="primary" disabled=${off || isGone} onClick=${approve}>Approve <kbd>a</kbd></button>
      ${canEdit ? html`<button disabled=${off} onClick=${choose("edit")}>Edit… <kbd>e</kbd></button>` : null}
      <button class="danger" disabled=${off} onClick=${choose("deny")}>Deny${comments.length ? ` with ${comments.length} ${comments.length === 1 ? "comment" : "comments"}` : ""}… <kbd>d</kbd></button>
      ${item.call && !item.subject ? html`<details class="more-ways"><summary>Other ways</summary><p><button disabled=${off} onClick=${choose("answer")}>Give the result yourself…</button>
        <button disabled=${off} onClick=${choose("always")}>Stop asking about this…</button></p></details>` : null}</div>`;
  }

  // The fields of an edit, as [argument, label, text as asked, text typed -> argument]. Of an entry a person edits
  // its text, of a limit the amounts; everything else of them stays as it was asked for.
  function editable(item) {
    const args = item.call.args, payload = args.payload;
    const entry = item.subject && item.subject.entry;
    if (entry && entry.text) return [["payload", "text", payload.text, (text) => JSON.stringify({ ...payload, text })]];
    const same = (text) => text;
    return Object.entries(args).filter(([key]) => !(item.subject && item.subject.spend && key === "of")).map(([key, value]) => [key, key, shown(value), same]);
  }

  const typed = (key, edit, label) => (key === label ? edit : JSON.parse(edit)[label]);

  function without(value, key) {
    const rest = Object.fromEntries(Object.entries(value || {}).filter(([name, each]) => name !== key && !(name === "edits" && !Object.keys(each).length)));
    return rest;
  }

  function Area({ rows, required, value, change, isFirst }) {
    const box = useRef(null);
    useLayoutEffect(() => { // before the next key: it is typed here, and is none of the part's
      if (isFirst) box.current.focus();
    }, []);
    return html`<textarea ref=${box} rows=${rows} required=${required} value=${value} onInput=${(event) => change(event.target.value)}></textarea>`;
  }

  // An argument as it is edited, and what is changed in it beside what was asked for.
  function Edited({ name, asked, value, change, isFirst }) {
    const changed = changes(asked, value);
    return html`<label><span>${name}</span>
      ${plain(asked) === asked ? null : html`<small class="wrong">it has signs that are not seen: ${plain(asked)}</small>`}
      <${Area} rows=${Math.min(12, asked.split("\n").length)} value=${value} change=${change} isFirst=${isFirst} />
      ${changed ? html`<${Diff} text=${changed} />` : null}</label>`;
  }

  // The second step: what would stand in the settings, what that allows, and how it is taken back.
  function Always({ item, act, isBusy, back }) {
    const action = useAction();
    const [told, setTold] = useState(null);
    const box = useRef(null);
    useEffect(() => {
      action.run(() => Lemming.act("always", { id: item.identity })).then((said) => said && setTold(said.told));
      box.current.focus();
    }, []);
    return html`<section class="always" tabindex="-1" ref=${box} aria-label="stop asking about this"><h4>Stop asking ${item.asker} about ${item.call.tool}?</h4>
      ${told ? html`<ol>${told.map((line) => html`<li>${line}</li>`)}</ol>` : html`<p class="loading">…</p>`}<${Failure} error=${action.error} />
      <p class="buttons"><button type="button" onClick=${back}>Back</button>
        <button type="button" class="danger" disabled=${isBusy || !told} onClick=${() => act("decide", { word: "approve", always: true }, "approved, from now on without asking")}>Write this line, and approve</button></p></section>`;
  }

  function Answer({ item, act, isBusy, isOpen }) {
    const [draft, setDraft] = useDraft("answer " + item.identity, {});
    const form = useRef(null);
    const text = draft.text || "", fields = draft.fields || {};
    const said = item.fields.length ? { fields } : { text };
    const off = isBusy || !isOpen;
    const type = (value) => setDraft(value ? { ...draft, text: value } : without(draft, "text"));
    useKeys({ a: () => form.current.querySelector("input, textarea, select").focus() });
    return html`<form class="form" ref=${form} onSubmit=${(event) => (event.preventDefault(), act("answer", said, "answered"))}>
      ${item.fields.length ? item.fields.map((field) => html`<${Field} field=${field} value=${fields[field.name] || ""}
          change=${(value) => setDraft({ ...draft, fields: { ...fields, [field.name]: value } })} />`)
        : html`<label><span>Answer</span><textarea rows="3" required value=${text} onInput=${(event) => type(event.target.value)}></textarea></label>`}
      <p class="buttons"><button class="primary" disabled=${off}>Answer</button>
        <button type="button" class="danger" disabled=${off} onClick=${() => act("answer", { refuse: true, text }, "refused")}>Refuse</button></p></form>`;
  }

  const FEW = 6;

  function Field({ field, value, change }) {
    const told = (event) => change(event.target.value);
    const choice = field.form === "yes" ? ["yes", "no"] : field.choice;
    const about = html`<span>${field.title}${field.is_required ? null : html` <small>may be empty</small>`}</span>${field.about ? html`<small>${field.about}</small>` : null}`;
    if (choice && choice.length <= FEW)
      return html`<fieldset><legend>${about}</legend>${choice.map((each) => html`<label class="radio"><input type="radio" name=${field.name} required=${field.is_required} value=${each} checked=${value === each} onChange=${told} /> ${each}</label>`)}</fieldset>`;
    return html`<label>${about}
      ${choice ? html`<select required=${field.is_required} value=${value} onChange=${told}><option value=""></option>${choice.map((each) => html`<option>${each}</option>`)}</select>`
        : field.form === "number" ? html`<input inputmode="decimal" required=${field.is_required} value=${value} onInput=${told} />`
        : html`<textarea rows="2" required=${field.is_required} value=${value} onInput=${told}></textarea>`}</label>`;
  }

  Lemming.deciding = { Call, Because, Decide, Answer, Expiry };
})();
