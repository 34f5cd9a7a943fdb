"use strict";
// What waits for a person, as an inbox: a list, and one item whole: what is wanted, why, and what one decides.
(function () {
  const { html } = Lemming;
  const { useState, useEffect, useRef } = Lemming.hooks;
  const { Ago, Agent, Empty, Failure, Words, useAction, useKeys } = Lemming.ui;
  const { Call, Because, Decide, Answer, Expiry } = Lemming.deciding;

  const keyOf = (item) => item.identity + " " + item.person;
  // Items in the order in which they came: one that is decided keeps its place, so that none moves under a finger.
  const items = new Map();
  // By key: what became of it, in words, and the entry that can be taken back. What only passes (it was taken back,
  // or decided elsewhere) holds until the item is there again.
  const ends = new Map();

  function forgetOld() {
    for (const [key, item] of items) if (ends.has(key) || !Lemming.drafts.has("answer " + item.identity)) items.delete(key);
    ends.clear();
  }

  function Waiting({ value, params, header, page }) {
    const [, again] = useState(0);
    const [notice, tell] = useState("");
    const detail = useRef(null), isToFocus = useRef(false);
    // The key of the item that is selected here: a key or a decision moves it at once, the address follows. Whoever
    // changes the address (a link, the way back) selects by that.
    const selected = useRef(""), address = useRef("");
    const here = `${params.item || ""} ${params.of || ""}`;
    if (address.current !== here) {
      address.current = here;
      selected.current = "";
    }
    useEffect(() => forgetOld, []);
    const there = new Set(value.items.map(keyOf));
    for (const item of value.items) {
      items.set(keyOf(item), item);
      if (ends.has(keyOf(item)) && ends.get(keyOf(item)).passes) ends.delete(keyOf(item));
    }
    const all = [...items.values()];
    const isOpen = (item) => there.has(keyOf(item)) && !ends.has(keyOf(item));
    const open = all.filter(isOpen);
    const chosen = all.find((item) => keyOf(item) === selected.current) || all.find((item) => item.identity === params.item && (!params.of || item.person === params.of)) || open[0] || all[0];
    const go = (item) => {
      selected.current = keyOf(item);
      again((count) => count + 1);
      Lemming.go("waiting", { item: item.identity, of: value.people.length > 1 ? item.person : "" });
    };
    const step = (by) => {
      // From what is selected now, not from what was drawn last: keys may come faster than pictures.
      const place = all.findIndex((item) => keyOf(item) === selected.current);
      const next = all[Math.min(all.length - 1, Math.max(0, (place < 0 ? all.indexOf(chosen) : place) + by))];
      if (keyOf(next) !== selected.current) go(next);
    };
    const ended = (item, end) => {
      ends.set(keyOf(item), end);
      Lemming.drafts.delete("answer " + item.identity);
      tell(end.notice);
      const next = all.slice(all.indexOf(item) + 1).concat(all).find((other) => other !== item && isOpen(other));
      isToFocus.current = true;
      if (next) go(next);
      again((count) => count + 1);
    };
    const back = async (item) => {
      const end = item && ends.get(keyOf(item));
      if (!end || !end.entry) return;
      try {
        await Lemming.act("undo", { identity: end.entry, person: item.person });
        ends.set(keyOf(item), { words: "undone", entry: "", isOwn: true, passes: true });
        tell("Undone: it is waiting again");
        go(item);
      } catch (error) {
        tell(error.message);
      }
      again((count) => count + 1);
    };
    const last = [...ends].reverse().find(([, end]) => end.entry);
    useKeys({ j: () => step(1), k: () => step(-1), u: () => last && back(items.get(last[0])) });
    useEffect(() => {
      if (!isToFocus.current || !isOpen(chosen)) return;
      isToFocus.current = false;
      detail.current.focus();
    });
    if (!all.length) return html`<${Empty} title="Nothing waits for you">Questions, approvals and forms of the agents come up here.<//>`;
    return html`<p class="notice toast" role="status">${notice ? html`<span>${notice}${header.engine || !ends.size ? null : html`; no engine runs, so start one: <code>lemming run-forever</code>`}</span>` : null}</p>
      <section class=${"inbox" + (params.item ? " has-item" : "")}>
        <${Queue} all=${all} chosen=${chosen} isOpen=${isOpen} count=${open.length} people=${value.people} back=${page.is_read_only ? null : back} />
        <article class="item card" tabindex="-1" ref=${detail} key=${keyOf(chosen)} aria-label=${`${chosen.asker} ${chosen.wish}`}>
          <a class="to-list" href=${Lemming.link("waiting")}>← all ${all.length}</a>
          <${Item} item=${chosen} people=${value.people} because=${value.because && value.because.identity === chosen.identity ? value.because : null} patch=${value.patch && value.patch.identity === chosen.identity ? value.patch : null}
            isOpen=${isOpen(chosen)} end=${ends.get(keyOf(chosen))} note=${(end) => (ends.has(keyOf(chosen)) || ends.set(keyOf(chosen), { ...end, passes: true }), again((count) => count + 1))}
            page=${page} ended=${(end) => ended(chosen, end)} back=${() => back(chosen)} /></article></section>`;
  }

  const words = (item) => (item.subject && item.subject.entry ? item.subject.entry.text : item.call ? "" : item.text);

  function Queue({ all, chosen, isOpen, count, people, back }) {
    return html`<nav class="queue" aria-label="what waits for you"><p class="note">${count} ${count === 1 ? "waits" : "wait"} for you</p><ol>${all.map((item) => {
      const end = ends.get(keyOf(item));
      return html`<li key=${keyOf(item)} class=${isOpen(item) ? "open" : "over"}><a data-line aria-current=${item === chosen ? "true" : undefined} href=${Lemming.link("waiting", { item: item.identity, of: people.length > 1 ? item.person : "" })}>
        <span class="from"><${Agent} name=${item.asker} plain /><span class="when">${isOpen(item) ? html`<${Ago} at=${item.created_at} />` : (end && end.words) || "decided elsewhere"}</span></span>
        <span class="wish"><${Words} text=${item.wish} />${words(item) ? `: ${words(item)}` : ""}</span></a>
        ${end && end.entry && back ? html`<button type="button" class="plain" onClick=${() => back(item)}>Undo</button>` : null}</li>`;
    })}</ol></nav>`;
  }

  function Item({ item, people, because, patch, isOpen, end, note, page, ended, back }) {
    const action = useAction();
    const [, redraw] = useState(0); // comments on the patch are a draft that the buttons below tell of
    const act = async (name, said, words) => {
      const told = await action.run(() => Lemming.act(name, { id: item.identity, person: item.person, ...said }));
      if (!told) return;
      const beside = told.beside ? `: it is made once these of the same turn are decided too: ${told.beside.join(", ")}` : `: ${item.asker} goes on with it in its next turn`;
      const written = told.told ? `. ${told.told.join(". ")}` : beside;
      ended({ words, entry: told.told ? "" : told.identity, notice: words[0].toUpperCase() + words.slice(1) + written });
    };
    return html`<header><h3><${Agent} name=${item.asker} /> <span class="wish"><${Words} text=${patch ? `wants to ${patch.title}` : item.wish} /></span></h3>
        <p class="note"><${Ago} at=${item.created_at} /> · <a href=${Lemming.link("turn", { number: item.tick, agent: item.asker })}>the turn that asks, in tick ${item.tick}</a> · <${Expiry} expiry=${item.expiry} />
          ${people.length > 1 ? html` · asked of ${item.person}` : null}</p></header>
      ${isOpen ? null : html`<${Over} item=${item} end=${end} note=${note} back=${page.is_read_only ? null : back} />`}
      ${item.text && !item.call ? html`<p class="said" dir="auto">${item.text}</p>` : null}
      ${item.call ? html`<${Call} item=${item} patch=${patch} isOpen=${isOpen} redraw=${() => redraw((count) => count + 1)} />` : null}
      <${Because} item=${item} because=${because} />
      ${page.is_read_only ? html`<p class="note">This page is read-only: <code>lemming answer ${item.id}</code></p>`
        : item.decides ? html`<${Decide} item=${item} patch=${patch} act=${act} isBusy=${action.isBusy} isOpen=${isOpen} />`
        : html`<${Answer} item=${item} act=${act} isBusy=${action.isBusy} isOpen=${isOpen} />`}
      <${Failure} error=${action.error} />`;
  }

  // What became of it, in its place; decided elsewhere, it is looked up.
  function Over({ item, end, note, back }) {
    useEffect(() => {
      if (end) return;
      Lemming.load("feed", { thread: item.identity }).then((told) => {
        const last = told.entries.filter((entry) => entry.identity !== item.identity).pop();
        note({ words: last ? `${last.agent}: ${last.text || last.says}` : "closed", entry: "" });
      }, () => note({ words: "closed", entry: "" }));
    }, [end]);
    const typed = Lemming.drafts.has("answer " + item.identity);
    return html`<div class="notice over"><span><strong>${end && (end.entry || end.isOwn) ? "You decided this" : "This was decided elsewhere"}</strong>: ${end ? end.words : "…"}.
      ${typed ? " What you typed is kept below." : ""}</span><a href=${Lemming.link("feed", { thread: item.identity })}>related entries</a>
      ${end && end.entry && back ? html`<button type="button" onClick=${back}>Undo <kbd>u</kbd></button> <small>until the next tick begins</small>` : null}</div>`;
  }

  const KEYS = [["j  k", "next and previous item"], ["a", "approve, or answer"], ["e", "edit it first"], ["d", "deny, with a reason"], ["u", "undo, until the next tick begins"]];
  const asked = (route) => ({ ...(route.item && { item: route.item }) });
  Lemming.part("waiting", { title: "Waiting", key: "w", keys: KEYS, params: asked, isLocal: true, render: Waiting });
})();
