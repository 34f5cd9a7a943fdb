"use strict";
// What several parts are made of: names, times, amounts, buttons, lists of which only a window is there.
(function () {
  const { html } = Lemming;
  const { useState, useEffect, useRef, useLayoutEffect } = Lemming.hooks;

  // --- time ---

  const clocks = new Set();
  setInterval(() => document.hidden || clocks.forEach((tick) => tick()), 1000);

  function useNow() {
    const [now, set] = useState(Lemming.now());
    useEffect(() => {
      const tick = () => set(Lemming.now());
      clocks.add(tick);
      return () => clocks.delete(tick);
    }, []);
    return now;
  }

  const UNITS = [["day", 86400, "days"], ["h", 3600, "h"], ["min", 60, "min"], ["s", 1, "s"]];

  function duration(seconds) {
    const whole = Math.max(0, Math.round(seconds));
    const [unit, size, units] = UNITS.find(([, each]) => whole >= each) || UNITS[3];
    const count = Math.floor(whole / size);
    return `${count} ${count === 1 ? unit : units}`;
  }

  const shortly = (moment) => new Date(moment).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  const dayOf = (moment) => new Date(moment).toLocaleDateString([], { dateStyle: "medium" });
  const LONG_AGO_S = 7 * 86400;

  // A moment as people say it: "just now", "in 3 min", "12 s ago", after a week the day; `since`: "for 12 s". The
  // whole moment is its title. A report does not know when it is read, and says the moment itself.
  function Ago({ at, since }) {
    const now = useNow();
    const moment = Date.parse(at);
    if (!at || Number.isNaN(moment)) return null;
    const seconds = (now - moment) / 1000, isLong = seconds > LONG_AGO_S;
    const plainly = since ? (isLong ? "since " + dayOf(moment) : "for " + duration(seconds))
      : seconds < -0.5 ? "in " + duration(-seconds) : seconds < 3 ? "just now" : isLong ? dayOf(moment) : duration(seconds) + " ago";
    const said = Lemming.page.is_report ? (since ? "since " : "") + shortly(moment) : plainly;
    return html`<time datetime=${at} title=${new Date(moment).toLocaleString()}>${said}</time>`;
  }

  // --- amounts ---

  function amount(number, digits) {
    if (number == null) return "–";
    return number.toLocaleString("en", { maximumFractionDigits: digits == null ? 2 : digits });
  }

  function dollars(number, unpriced) {
    if (number == null || (!number && unpriced)) return unpriced ? "no price" : "–";
    const digits = number && number < 0.1 ? 4 : 2;
    return "$" + number.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: digits }) + (unpriced ? "+" : "");
  }

  function Meter({ value, max, label }) {
    if (max == null || !(max > 0)) return null;
    const share = Math.min(1, value / max);
    const level = share >= 1 ? "full" : share >= 0.8 ? "high" : "low";
    return html`<span class="meter ${level}" role="img" aria-label=${label || `${amount(value)} of ${amount(max)}`}>
      <span style=${{ width: share * 100 + "%" }}></span></span>`;
  }

  // --- agents ---

  // The same hue for the same name, everywhere and always.
  function hue(name) {
    let found = 2166136261; // FNV-1a, and the golden angle so that near numbers are far apart
    for (const letter of name) found = Math.imul(found ^ letter.codePointAt(0), 16777619) >>> 0;
    return Math.round((found % 1000) * 137.508) % 360;
  }

  function initials(name) {
    const number = name.match(/\d+$/); // a00017 is told from a00018 by its end
    const words = name.split(/[-_]/).filter(Boolean);
    if (number && number[0].length > 1) return number[0].slice(-2);
    return (words.length > 1 ? words[0][0] + words[1][0] : name.slice(0, 2)).toUpperCase();
  }

  function Avatar({ name }) {
    return html`<span class="avatar" aria-hidden="true" style=${{ "--hue": String(hue(name)) }}>${initials(name)}</span>`;
  }

  function Agent({ name, plain }) {
    const label = html`<${Avatar} name=${name} /><span class="name">${name}</span>`;
    const isLink = !plain && Lemming.parts.has("agent");
    return isLink
      ? html`<a class="agent-name" href=${Lemming.link("agent", { name })}>${label}</a>`
      : html`<span class="agent-name">${label}</span>`;
  }

  // A field for the name of an agent, which is looked for as it is typed.
  function AgentField({ value, change, label, placeholder }) {
    const [names, setNames] = useState([]);
    const look = async (find) => {
      const found = await Lemming.load("agents", { find, limit: 12 }).catch(() => ({ rows: [] }));
      setNames(found.rows.map((row) => row.name));
    };
    const told = (event) => {
      change(event.target.value.trim());
      look(event.target.value.trim());
    };
    return html`<span class="field"><input aria-label=${label} placeholder=${placeholder} value=${value} list=${"names-" + label}
      autocomplete="off" spellcheck=${false} onFocus=${() => look(value)} onInput=${told} />
      <datalist id=${"names-" + label}>${names.map((name) => html`<option value=${name} />`)}</datalist></span>`;
  }

  // --- small things ---

  // A sentence in which commands stand between backticks.
  function Words({ text }) {
    return (text || "").split("`").map((part, place) => (place % 2 ? html`<code>${part}</code>` : part));
  }

  function Empty({ title, children }) {
    return html`<div class="empty"><p class="title">${title}</p><p>${children}</p></div>`;
  }

  function Failure({ error }) {
    if (!error) return null;
    return html`<div class="failure" role="alert"><strong>${error.message}</strong>
      ${error.where ? html` <code>${error.where}</code>` : null}${error.hint ? html`<p><${Words} text=${error.hint} /></p>` : null}</div>`;
  }

  // A button that does something once, and says what went wrong beside itself.
  function useAction() {
    const [state, set] = useState({ isBusy: false, error: null });
    const run = async (work) => {
      set({ isBusy: true, error: null });
      try {
        const result = await work();
        set({ isBusy: false, error: null });
        return result;
      } catch (error) {
        set({ isBusy: false, error });
        return undefined;
      }
    };
    return { ...state, run };
  }

  // Signs that are not seen, or change the order in which others are, as their numbers: what a person
  // approves is what stands there.
  const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e01ef}]/gu;

  function plain(text) {
    return String(text).replace(UNSEEN, (sign) => `⟨U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
  }

  function Diff({ text }) {
    const kind = { "+": "added", "-": "gone", "@": "place" };
    const lines = plain(text).split("\n");
    return html`<pre class="diff" tabindex="0" aria-label="what would change">${lines.map(
      (line) => html`<span class=${/^(\+\+\+|---)/.test(line) ? "place" : kind[line[0]] || ""}>${line + "\n"}</span>`,
    )}</pre>`;
  }

  // What is changed in a text, line by line, as a diff; empty where nothing is.
  function changes(before, after) {
    if (before === after) return "";
    const old = before.split("\n"), now = after.split("\n");
    let head = 0, tail = 0;
    while (head < Math.min(old.length, now.length) && old[head] === now[head]) head++;
    while (tail < Math.min(old.length, now.length) - head && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail++;
    const marked = (mark, lines) => lines.map((line) => mark + line);
    return [
      ...marked(" ", old.slice(Math.max(0, head - 3), head)),
      ...between(old.slice(head, old.length - tail), now.slice(head, now.length - tail)),
      ...marked(" ", old.slice(old.length - tail, old.length - tail + 3)),
    ].join("\n");
  }

  // The shortest change from some lines to others; of very many all are taken away and the others added.
  function between(old, now) {
    if (old.length * now.length > 250000) return [...old.map((line) => "-" + line), ...now.map((line) => "+" + line)];
    const common = Array.from({ length: old.length + 1 }, () => new Uint32Array(now.length + 1));
    for (let one = old.length - 1; one >= 0; one--)
      for (let other = now.length - 1; other >= 0; other--)
        common[one][other] = old[one] === now[other] ? common[one + 1][other + 1] + 1 : Math.max(common[one + 1][other], common[one][other + 1]);
    const lines = [];
    let one = 0, other = 0;
    while (one < old.length || other < now.length) {
      if (one < old.length && other < now.length && old[one] === now[other]) lines.push(" " + old[one++]), other++;
      else if (other >= now.length || (one < old.length && common[one + 1][other] >= common[one][other + 1])) lines.push("-" + old[one++]);
      else lines.push("+" + now[other++]);
    }
    return lines;
  }

  // What is typed somewhere: kept while other parts are looked at, until it is what it was at first.
  function useDraft(name, first) {
    const [, again] = useState(0);
    const value = Lemming.drafts.has(name) ? Lemming.drafts.get(name) : first;
    const set = (next) => {
      if (next === first || JSON.stringify(next) === JSON.stringify(first)) Lemming.drafts.delete(name);
      else Lemming.drafts.set(name, next);
      again((count) => count + 1);
    };
    return [value, set];
  }

  // Keys of the part that is shown, as long as it is.
  function useKeys(keys) {
    useLayoutEffect(() => {
      for (const [key, what] of Object.entries(keys)) Lemming.keys.set(key, what);
      return () => Object.keys(keys).forEach((key) => Lemming.keys.get(key) === keys[key] && Lemming.keys.delete(key));
    });
  }

  // Rows of one height, of which only those on the screen are there. `first` is the place of rows[0] among
  // all; `wanted` is called with the place of the first row on the screen.
  function Rows({ total, first, rows, height, row, wanted, label, role }) {
    const box = useRef(null);
    const ask = useRef(wanted);
    ask.current = wanted;
    useLayoutEffect(() => {
      const look = () => {
        const top = Math.max(0, -box.current.getBoundingClientRect().top);
        ask.current(Math.floor(top / height), Math.ceil(window.innerHeight / height) + 1);
      };
      look();
      addEventListener("scroll", look, { passive: true });
      addEventListener("resize", look);
      return () => {
        removeEventListener("scroll", look);
        removeEventListener("resize", look);
      };
    }, [height, total]);
    return html`<div class="rows" role=${role} ref=${box} aria-label=${label} style=${{ height: total * height + "px" }}>
      ${rows.map((each, place) => html`<div key=${each.name} role="presentation" data-place=${first + place + 1}
        style=${{ top: (first + place) * height + "px", height: height + "px" }}>${row(each)}</div>`)}</div>`;
  }

  // A declared screen as a table. The cells are those that the command prints; a click on a heading sorts by it.
  function Table({ table, first }) {
    const [sort, setSort] = useState([-1, 1]), [isAll, showAll] = useState(false);
    const [column, order] = sort, FIRST = first || 50;
    if (!table.rows.length) return html`${table.empty ? html`<p class="note"><${Words} text=${table.empty} /></p>` : html`<p class="note">No rows.</p>`}<${Notes} notes=${table.notes} />`;
    const key = (row) => (column < 0 ? 0 : table.values[row][column] ?? table.rows[row][column]);
    const places = table.rows.map((_, row) => row);
    if (column >= 0) places.sort((one, other) => order * (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : one - other));
    const shown = isAll ? places : places.slice(0, FIRST);
    return html`<div class="scroll" tabindex="0" role="group" aria-label=${table.title}><table class="list-table"><thead><tr>${table.columns.map((each, place) => html`<th scope="col" class=${each.is_number ? "number" : ""} title=${each.about} aria-sort=${place === column ? (order > 0 ? "ascending" : "descending") : undefined}><button type="button" class="plain" onClick=${() => setSort([place, place === column ? -order : 1])}>${each.header || html`<span class="sr">remark</span>`}</button></th>`)}</tr></thead>
      <tbody>${shown.map((row) => html`<tr key=${row} data-line tabindex="0">${table.columns.map((each, place) => html`<td class=${each.is_number ? "number" : ""} dir="auto"><${Cell} text=${table.rows[row][place]} value=${table.values[row][place]} shown=${each.shown} /></td>`)}</tr>`)}</tbody></table></div>
      ${places.length > FIRST ? html`<p><button type="button" class="plain" onClick=${() => showAll(!isAll)}>${isAll ? `only the first ${FIRST}` : `show ${amount(places.length - FIRST)} more`}</button></p>` : null}
      ${table.total > places.length ? html`<p class="note">${amount(table.total - places.length)} more; <code>${table.command}</code> lists all</p>` : null}<${Notes} notes=${table.notes} />`;
  }

  function Cell({ text, value, shown }) {
    if (value == null || value === "") return html`<${Words} text=${text} />`;
    if (shown === "agent") return html`<${Agent} name=${value} />${text.startsWith(value) ? text.slice(value.length) : ""}`;
    if (shown === "tick") return html`<a href=${Lemming.link("tick", { number: value })}>${text}</a>`;
    if (shown === "why") return html`<a href=${Lemming.link("why", { target: value })}>${text}</a>`;
    if (shown === "time") return html`<${Ago} at=${value} />`;
    return html`<${Words} text=${text} />`;
  }

  function Notes({ notes }) {
    return notes.map((note) => html`<p class=${note.is_warning ? "wrong" : "note"}><${Words} text=${note.text} /></p>`);
  }

  // The text of a message to a model, and the calls in it, one a line.
  function messageText(message) {
    const calls = (message.calls || []).map((call) => `${call.tool}(${JSON.stringify(call.args)})`);
    return [message.content, ...calls].filter(Boolean).join("\n");
  }

  Lemming.ui = {
    useNow, duration, Ago, amount, dollars, Meter, hue, Avatar, Agent, AgentField, Words, Empty, Failure, useAction, useDraft, useKeys, plain, changes, Diff, Rows, Table, messageText,
  };
})();
