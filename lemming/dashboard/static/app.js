"use strict";
// The frame of the page: the head, the menu, the part that is shown, and the keyboard.
(function () {
  const { html } = Lemming;
  const { useState, useEffect, useRef } = Lemming.hooks;
  const { Ago, amount, dollars, Meter, Failure, Words } = Lemming.ui;

  // Said only as far as it is true: without a kept token no restart lets this tab in again.
  const lost = () => (Lemming.page.is_kept ? "this comes back by itself once `lemming dash --keep-token` runs again" : "start `lemming dash` again and open the address that it prints; with `--keep-token` tabs come back by themselves");
  const STATES = {
    working: "working",
    idle: "idle",
    stopped: "not running",
    paused: "paused",
    interrupted: "interrupted",
    broken: "broken",
    report: "report",
  };

  function Head({ header, isLost }) {
    const troubles = header.troubles || [], isKnown = Boolean(header.state);
    const name = (header.org || "").split("/").filter(Boolean).pop() || "LeMMing";
    const state = isLost ? "lost" : header.state;
    const needs = isLost ? "connection lost" : state === "broken" || state === "interrupted" ? `${state}: ${header.why}` : header.waiting ? `${header.waiting} waiting for you` : "";
    return html`<header class="head"><p class="sr" role="status">${needs}</p>
      <div class="who"><h1 title=${header.org}>${name}</h1>${header.purpose ? html`<span class="purpose" title=${header.purpose}>${header.purpose}</span>` : null}</div>
      <div class="state ${state}">
        <span class="dot" aria-hidden="true"></span>
        <span><strong>${isLost ? "connection lost" : STATES[state] || "…"}</strong>
        <span class="why"><${Words} text=${isLost ? lost() : header.why} />${state === "broken" ? html` <a href=${Lemming.link("settings")}>the settings</a>` : null}</span></span>
      </div>
      <dl class="facts">
        <div class="less"><dt>tick</dt><dd>${header.tick == null ? "–" : header.tick}</dd></div>
        ${header.next_at ? html`<div><dt>next</dt><dd><${Ago} at=${header.next_at} /></dd></div>` : null}
        <div class=${header.waiting ? "calls" : ""}><dt>waiting<span class="roomy"> for you</span></dt>
          <dd><a href=${Lemming.link("waiting")}>${header.waiting == null ? (header.state === "broken" ? "–" : "…") : header.waiting}</a></dd></div>
        ${header.spent ? html`<${Spent} spent=${header.spent} />` : null}
        <div class=${troubles.length ? "wrong" : ""}><dt>health</dt>
          <dd>${troubles.length ? html`<${Troubles} troubles=${troubles} />` : !isKnown || header.findings == null ? "…" : header.findings ? html`<a href=${Lemming.link("findings")}>${header.findings} ${header.findings === 1 ? "finding" : "findings"}</a>` : header.can_tell ? "well" : html`<a href=${Lemming.link("findings")}>too few ticks to tell</a>`}</dd></div>
      </dl>
    </header>`;
  }

  function Spent({ spent }) {
    const unit = spent.credits === 1 ? "credit" : "credits";
    const of = spent.max == null ? `${unit} without a limit` : spent.used_up === spent.credits ? `of ${amount(spent.max)} credits` : `${unit}, ${amount(spent.used_up)} used up of ${amount(spent.max)}`;
    return html`<div class="less"><dt>spent</dt><dd>${amount(spent.credits)} <small>${of}, ${dollars(spent.dollars, spent.unpriced)}</small>
      <${Meter} value=${spent.used_up} max=${spent.max} label="share of the credits that is used up" /></dd></div>`;
  }

  // A moment in the text is said beside it, as people say it.
  const plain = (text) => text.replace(/ \(\d{4}-[\d:TZ.-]+\)/, "").replace(/\b[A-Z]\w*(?:Error|Timeout)\((['"])(.*?)\1\)/g, "$2");

  function Troubles({ troubles }) {
    const box = useRef(null);
    useEffect(() => {
      const close = (event) => {
        const isInside = event.type === "pointerdown" && box.current.contains(event.target);
        if (!isInside && (event.type !== "keydown" || event.key === "Escape")) box.current.open = false;
      };
      const kinds = ["pointerdown", "keydown", "hashchange"];
      kinds.forEach((kind) => addEventListener(kind, close));
      return () => kinds.forEach((kind) => removeEventListener(kind, close));
    }, []);
    return html`<details class="troubles" ref=${box}><summary>${troubles.length} ${troubles.length === 1 ? "trouble" : "troubles"}</summary>
      <ul>${troubles.map((each) => html`<li><strong>${each.about}</strong> <${Words} text=${plain(each.text)} />${each.since ? html` · <${Ago} at=${each.since} since />` : null}${each.fix ? html`<p class="fix"><${Words} text=${each.fix} /></p>` : null}</li>`)}</ul>
    </details>`;
  }

  const isInMenu = (part) => !part.hidden && !(part.name === "settings" && Lemming.page.is_report);

  function Menu({ now, counts }) {
    return html`<nav class="menu" aria-label="parts of the page"><ul>${[...Lemming.parts.values()]
      .filter(isInMenu)
      .map((part) => html`<li><a href=${Lemming.link(part.name)} aria-current=${part.name === now ? "page" : undefined}
        title=${"g " + part.key}>${part.title}${counts[part.name] ? html` <span class="badge">${counts[part.name]}<span class="sr"> ${part.name === "waiting" ? "waiting" : "found"}</span></span>` : null}</a></li>`)}
      <li class="last"><button type="button" class="plain" onClick=${() => help(true)} title="?">Keys</button></li></ul></nav>`;
  }

  function Help({ part }) {
    const rows = [
      ...(part.keys || []),
      ["1 … 9", "the parts in their order"],
      ...[...Lemming.parts.values()].filter((part) => part.key).map((part) => ["g " + part.key, part.title]),
      ["j  k", "next and previous line"],
      ["Enter", "open it"],
      ["/", "search"],
      ["Esc", "leave a field, close"],
      ["?", "this list"],
    ];
    return html`<dialog id="help" aria-label="keys"><h2>Keys</h2>
      <dl>${rows.map(([key, what]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl>
      <form method="dialog"><button>Close</button></form></dialog>`;
  }

  function help(isShown) {
    const dialog = document.getElementById("help");
    if (isShown && !dialog.open) dialog.showModal();
    else dialog.close();
  }

  function App() {
    const [route, setRoute] = useState(Lemming.route());
    const [state, setState] = useState({ part: "", header: {}, page: Lemming.page });
    const [isLost, setLost] = useState(false);
    const part = Lemming.parts.get(route.part);
    const asked = JSON.stringify([part.view, part.params(route.params)]);
    useEffect(() => {
      const follow = () => setRoute(Lemming.route());
      follow(); // the address may have changed since the first look
      addEventListener("hashchange", follow);
      return () => removeEventListener("hashchange", follow);
    }, []);
    useEffect(() => {
      const [view, params] = JSON.parse(asked);
      return Lemming.source.watch(view, params, (told) => {
        Lemming.page = told.page || Lemming.page;
        setState({ ...told, part: part.name, asked, params: route.params });
      }, setLost);
    }, [asked]);
    useEffect(() => {
      const waits = state.header.waiting ? `(${state.header.waiting}) ` : "";
      const name = (state.header.org || "").split("/").filter(Boolean).pop();
      document.title = waits + part.title + (name ? " · " + name : "") + " · LeMMing";
    });
    const isHere = state.part === part.name, isBehind = isHere && state.asked !== asked && !part.isLocal;
    const params = state.asked === asked || part.isLocal ? route.params : state.params; // those that the value is of
    return html`<a class="skip" href="#main" onClick=${skip}>to the content</a>
      <${Land} waiting=${state.header.waiting} />
      <${Head} header=${state.header} isLost=${isLost} />
      <${Menu} now=${part.under || part.name} counts=${{ waiting: state.header.waiting, findings: state.header.findings }} />
      <main id="main" class=${"part-" + (part.looks || part.name) + (isBehind ? " behind" : "")} aria-busy=${isBehind} tabindex="-1"><h2 class="sr">${part.title}</h2>
        ${isBehind ? html`<p class="loading over" role="status">reading the files…</p>` : null}
        ${state.page.left_out ? html`<p class="note">Not in this report: ${state.page.left_out}.</p>` : null}
        ${isHere && state.error ? html`${part.ask ? html`<${part.ask} params=${params} />` : null}<${Failure} error=${state.error} />` : null}
        ${isHere && state.view ? html`<${part.render} key=${part.name} value=${state.view} params=${params}
          header=${state.header} page=${state.page} />` : isHere && state.error ? null : html`<p class="loading">reading the files…</p>`}
      </main><${Help} part=${part} /><${Going} />`;
  }

  // Who opens the page without saying at what lands where something waits; who has done something stays.
  let hasLanded = false;
  for (const kind of ["hashchange", "keydown", "pointerdown"]) addEventListener(kind, () => (hasLanded = true));

  function Land({ waiting }) {
    useEffect(() => {
      if (hasLanded || location.hash || waiting == null) return;
      hasLanded = true;
      if (waiting) Lemming.go("waiting");
    }, [waiting]);
    return null;
  }

  function skip(event) {
    event.preventDefault();
    document.getElementById("main").focus();
  }

  // --- keyboard ---

  const GOING_MS = 3000;
  let isGoing = false, givesUp = 0;
  let showGoing = () => {};

  // A letter that waits for another says so, and gives up.
  function going(is) {
    isGoing = is;
    showGoing(is);
    clearTimeout(givesUp);
    if (is) givesUp = setTimeout(() => going(false), GOING_MS);
  }

  function Going() {
    const [is, set] = useState(false);
    useEffect(() => (showGoing = set), []);
    return is ? html`<p class="going" role="status"><kbd>g</kbd> and then: ${[...Lemming.parts.values()].filter((part) => part.key).map((part) => `${part.key} ${part.title}`).join(", ")}</p>` : null;
  }

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.closest && event.target.closest("input, textarea, select, [contenteditable]");
    if (typing) {
      if (event.key === "Escape") typing.blur();
      return;
    }
    if (document.querySelector("dialog[open]") && event.key !== "?") return;
    if (event.repeat && Lemming.keys.has(event.key)) return; // a key that is held decides once
    if (press(event.key)) event.preventDefault();
  });

  // Does what a key stands for; returns whether it stands for anything.
  function press(key) {
    const shown = [...Lemming.parts.values()].filter(isInMenu);
    if (isGoing) {
      going(false);
      const part = [...Lemming.parts.values()].find((each) => each.key === key);
      if (part) Lemming.go(part.name);
      return Boolean(part);
    }
    if (Lemming.keys.has(key)) return Lemming.keys.get(key)(), true;
    if (/^[1-9]$/.test(key) && shown[key - 1]) return Lemming.go(shown[key - 1].name), true;
    if (key === "g") return going(true), true;
    if (key === "?") return help(!document.getElementById("help").open), true;
    if (key === "j" || key === "k") return move(key === "j" ? 1 : -1);
    if (key !== "/") return false;
    const search = document.querySelector("[data-search]");
    if (search) search.focus();
    else Lemming.go("agents");
    return true;
  }

  function move(step) {
    const lines = [...document.querySelectorAll("[data-line]")];
    const place = lines.indexOf(document.activeElement.closest("[data-line]"));
    const next = lines[place < 0 ? (step > 0 ? 0 : lines.length - 1) : Math.min(lines.length - 1, Math.max(0, place + step))];
    if (next) {
      next.focus();
      next.scrollIntoView({ block: "nearest" });
    }
    return true;
  }

  preact.render(html`<${App} />`, document.getElementById("app"));
})();
