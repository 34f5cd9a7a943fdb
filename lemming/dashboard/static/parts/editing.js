"use strict";
// A file of people's as it is typed: checked, tried on the past, saved; with its values as fields beside it.
(function () {
  const { html } = Lemming;
  const { useState, useEffect, useRef } = Lemming.hooks;
  const { Agent, Failure, Words, useAction, useDraft, amount, dollars } = Lemming.ui;

  // A file as it stands, with its values as fields beside it: `saved` is {file, text, sha256, problems, wrong}, `fields`
  // a component that is given {text, change}, `counts` says what becomes of it once it is saved.
  function Editor({ saved, page, label, fields, counts }) {
    const draft = "file " + saved.file;
    const [text, setText] = useDraft(draft, saved.text);
    const [base, setBase] = useState({ text: saved.text, sha256: saved.sha256 });
    const [told, setTold] = useState(null);
    const box = useRef(null);
    const action = useAction();
    const isChanged = text !== base.text, hasMoved = saved.sha256 !== base.sha256;
    useEffect(() => {
      if (hasMoved && !isChanged) take();
    }, [saved.sha256]);
    const take = () => {
      Lemming.drafts.delete(draft);
      setText(saved.text);
      setBase({ text: saved.text, sha256: saved.sha256 });
      setTold(null);
    };
    const save = async () => {
      const answer = await action.run(() => Lemming.act("save", { file: saved.file, text, was: base.sha256 }));
      if (!answer) return;
      setTold(answer);
      if (answer.is_saved) {
        setBase({ text, sha256: answer.sha256 });
        Lemming.drafts.delete(draft);
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
      <div class="beside"><${fields} text=${text} change=${page.is_read_only ? null : setText} /><div>
      <textarea ref=${box} class="code" spellcheck="false" rows=${rows} aria-label=${label} readonly=${page.is_read_only} value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${keys} aria-describedby="problems"></textarea>
      <ul id="problems" class="problems" aria-live="polite">${problems.map((problem) => html`<li class=${problem.severity}><button type="button" class="plain" onClick=${() => goTo(problem)}>${problem.line ? `line ${problem.line}${problem.column ? `, column ${problem.column}` : ""}` : "the file"}</button>
        <span>${problem.message}${problem.hint ? html`<small> ${problem.hint}</small>` : null}</span></li>`)}</ul></div></div>
      ${(told && told.is_stale) || (hasMoved && isChanged) ? html`<div class="failure" role="alert"><strong>The file has changed on the disk since you began.</strong><p>Nothing was written. <button type="button" class="plain" onClick=${take}>Take what is there now</button> (what you typed is lost; copy it first)</p></div>` : null}
      ${told && !told.is_saved && !told.is_stale ? html`<p class="wrong" role="alert">Not saved: fix the problems above first.</p>` : null}
      ${page.is_read_only ? html`<p class="note">This page is read-only.</p>` : html`<div class="buttons"><button class="primary" disabled=${!isChanged || action.isBusy} onClick=${save} title="Ctrl+S">Save</button>
        <button disabled=${!isChanged} onClick=${() => (setText(base.text), setTold(null))}>Undo</button>
        <${Try} file=${saved.file} text=${text} isChanged=${isChanged} /><span class="note"><${Words} text=${counts} /></span></div>`}
      <${Failure} error=${action.error} /></div>`;
  }

  // --- what would have been different ---

  // Two steps: what it would cost, without asking anybody; then the last ticks again, in a fork.
  function Try({ file, text, isChanged }) {
    const [found, setFound] = useState(null);
    const action = useAction();
    useEffect(() => setFound(null), [text]);
    const run = async (isDry) => {
      const told = await action.run(() => Lemming.act("try", { file, text, is_dry: isDry }));
      if (told) setFound(told);
    };
    return html`<button disabled=${!isChanged || action.isBusy} onClick=${() => run(true)}>${action.isBusy ? "trying…" : "Try on the last 10 ticks"}</button>
      ${found || action.error ? html`<section class="tried card" role="status" aria-label="what would have been different"><${Failure} error=${action.error} />
        ${found ? html`<${Tried} found=${found} go=${() => run(false)} isBusy=${action.isBusy} />` : null}</section>` : null}`;
  }

  const count = (number, noun) => `${amount(number)} ${noun}${number === 1 ? "" : "s"}`;
  const FEW = 8, CHANGES = { new: "would have been written too", gone: "would not have been written", changed: "would have been another one" };

  // How a turn ended, "word: reason", as people say it.
  const plainly = (end) => (end ? end.replace(/^[a-z_]+/, (word) => word.replace(/_/g, " ")) : "without a turn");

  function Tried({ found, go, isBusy }) {
    const span = found.last <= found.first ? `tick ${found.first}` : `ticks ${found.first} to ${found.last}`;
    const stopped = found.stopped_by ? html`<p class="wrong">${found.last < found.first ? "It did not get through one tick" : `It went no further than tick ${found.last}`}: <${Words} text=${found.stopped_by} /></p>` : null;
    const whose = found.asked_of.slice(0, FEW).map(([name, times]) => `${name} ${amount(times)}`).join(", ") + (found.asked_of.length > FEW ? " …" : "");
    const caveat = found.caveat ? html`<p class="wrong"><strong>${found.is_alike ? "That cannot be told" : "Not all of that can be told"}: ${found.caveat}.</strong></p>` : null;
    const held = found.not_made.length ? html`<p class="note">Calls that are not made in a rehearsal: ${found.not_made.join("; ")}</p>` : null;
    if (found.is_dry)
      return html`${stopped}<p><strong>${span}: at least ${count(found.asked, "question")} of ${amount(found.asked + found.reused)} would change.</strong> Asking them costs ${found.at_most_usd == null ? "an unknown amount" : `at most ${dollars(found.at_most_usd)}`}.</p>
        <p class="note">questions by agent: ${whose}</p>${caveat}
        <p class="buttons"><button class="primary" disabled=${isBusy} onClick=${go}>Ask them, in a fork that is thrown away</button></p>`;
    const paid = found.asked ? `${count(found.calls, "call")} made${found.cost_usd == null ? "" : `, ${dollars(found.cost_usd)}`}; ${count(found.reused, "answer")} from the record` : "no model had to be asked, so this cost nothing";
    const total = found.entries.length + found.left_out;
    const parts = [total ? `${amount(total)} ${total === 1 ? "entry" : "entries"}` : "", found.ends.length ? `${count(found.ends.length, "turn")}'s end`.replace(/s's end$/, "s' ends") : "", found.files.length ? count(found.files.length, "file") : ""].filter(Boolean);
    return html`${stopped}${caveat}
      ${!found.is_alike ? html`<p><strong>${span}: ${parts.join(", ")} would have been different.</strong></p>` : found.caveat || found.stopped_by ? null : html`<p><strong>${span}: no differences.</strong></p>`}
      <p class="note">${paid}</p>${held}
      ${found.entries.map((entry) => html`<div><p class="from"><${Agent} name=${entry.agent} /><span class="kind ${entry.kind}">${entry.kind}</span><span class="faint">tick ${entry.tick}, ${CHANGES[entry.change]}</span></p>${entry.says ? html`<details><summary>${entry.says}</summary><${Lemming.ui.Diff} text=${entry.diff} /></details>` : html`<${Lemming.ui.Diff} text=${entry.diff} />`}</div>`)}
      ${found.left_out ? html`<p class="note">and ${amount(found.left_out)} more entries</p>` : null}
      ${found.ends.map((end) => html`<p><a href=${Lemming.link("turn", { number: end.tick, agent: end.agent })}>tick ${end.tick}, ${end.agent}</a>: ended ${plainly(end.before)}, and would have ended ${plainly(end.after)}</p>`)}
      ${found.files.length ? html`<p class="note">other files: ${found.files.join(", ")}</p>` : null}`;
  }

  // --- values as fields, beside the file ---

  function parsed(text) {
    try {
      return JSON.parse(text);
    } catch {
      return undefined;
    }
  }

  const at = (plain, path) => path.reduce((found, key) => (found && typeof found === "object" ? found[key] : undefined), plain);
  const NO_JSON = html`<p class="note">While the file is no JSON, its values cannot be shown as fields.</p>`;

  // `fields`: [path, title, form] with form "text", "long", "number", or a list of choices. What the file has not stands nowhere.
  function Fields({ fields, text, change, label }) {
    const plain = parsed(text);
    if (plain === undefined) return NO_JSON;
    const there = fields.map(([path, title, form]) => [path, title, form, at(plain, path)]).filter(([, , , value]) => typeof value === "string" || typeof value === "number");
    const set = (path, form) => (event) => {
      const typed = event.target.value, value = form === "number" ? Number(typed) : typed;
      if (form !== "number" || (typed.trim() && Number.isFinite(value))) change(replaced(text, path, JSON.stringify(value)));
    };
    return html`<div class="form" role="group" aria-label=${label || "values of the file"}>${there.map(([path, title, form, value]) => html`<label key=${path.join()} class=${"value-" + path[path.length - 1]}><span>${title}</span>${form === "long"
      ? html`<textarea rows="8" readonly=${!change} value=${value} onInput=${set(path, form)}></textarea>`
      : Array.isArray(form) ? html`<select disabled=${!change} value=${value} onChange=${set(path, form)}>${(form.includes(value) ? form : [value, ...form]).map((each) => html`<option value=${each}>${each}</option>`)}</select>`
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
        let count = 0;
        for (skip(); text[at] !== "}" && text[at] !== "]"; skip()) {
          let key = count++;
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

  Lemming.editing = { Editor, Fields, NO_JSON, parsed, replaced };
})();
