"use strict";
// What was said, newest first: threads of requests and answers, filters, search; and saying something oneself.
(function () {
  const { html } = Lemming;
  const { useState, useEffect, useRef } = Lemming.hooks;
  const { Ago, Agent, AgentField, Empty, Failure, useAction, useDraft, amount } = Lemming.ui;
  const KINDS = ["message", "report", "request", "response", "status"];

  function Feed({ value, params, header, page }) {
    const [older, setOlder] = useState({ of: "", entries: [], before: undefined });
    const action = useAction();
    const asked = JSON.stringify(params);
    const mine = older.of === asked ? older : { entries: [], before: undefined };
    const before = mine.before === undefined ? value.before : mine.before;
    const seen = new Set(value.entries.map((entry) => entry.identity));
    const entries = [...value.entries, ...mine.entries.filter((entry) => !seen.has(entry.identity))];
    const more = () => action.run(async () => {
      const next = await Lemming.load("feed", { ...params, before });
      setOlder({ of: asked, entries: [...mine.entries, ...next.entries], before: next.before });
    });
    return html`<section class="feed">
      ${page.is_read_only || params.thread || !value.people.length ? null : html`<${Write} header=${header} />`}
      <${Filters} params=${params} />
      ${entries.length ? html`<ol class="entries" aria-label="entries">${params.thread
        ? entries.map((entry) => html`<${Entry} key=${entry.identity} entry=${entry} isThread />`)
        : folded(entries).map((group) => (group.length === 1 ? html`<${Entry} key=${group[0].identity} entry=${group[0]} />` : html`<${Thread} key=${group[0].identity} group=${group} />`))}</ol>`
        : html`<${Empty} title="Nothing here">${before ? "Nothing among the newest entries fits." : "No entry fits."}<//>`}
      ${before ? html`<p class="buttons"><button disabled=${action.isBusy} onClick=${more}>Older entries</button></p>` : null}
      <${Failure} error=${action.error} /></section>`;
  }

  // Entries of the same request stand together, where the newest of them stands.
  function folded(entries) {
    const groups = new Map();
    for (const entry of entries) {
      const key = entry.request ? entry.request.identity : entry.identity;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(entry);
    }
    return [...groups.values()];
  }

  // A question with its newest answer below it; what was said between is folded.
  function Thread({ group }) {
    const [isOpen, setOpen] = useState(false);
    const oldest = [...group].reverse();
    const first = oldest.find((entry) => entry.request.is_this) || oldest[0];
    const rest = oldest.filter((entry) => entry !== first), last = rest[rest.length - 1], between = rest.slice(0, -1);
    return html`<li class="conversation"><ol><${Entry} entry=${first} />
      ${between.length && !isOpen ? html`<li class="between"><button class="plain" onClick=${() => setOpen(true)}>${amount(between.length)} between</button></li>` : between.map((entry) => html`<${Entry} key=${entry.identity} entry=${entry} isAnswer />`)}
      <${Entry} key=${last.identity} entry=${last} isAnswer /></ol></li>`;
  }

  function Filters({ params }) {
    const timer = useRef(0);
    const [by, setBy] = useState(params.agent || "");
    const choose = (name) => {
      setBy(name);
      clearTimeout(timer.current);
      timer.current = setTimeout(() => change({ agent: name }), 400);
    };
    const change = (more) => Lemming.go("feed", { ...params, thread: "", ...more });
    const [find, setFind] = useState(params.find || "");
    useEffect(() => {
      if (document.activeElement.matches("main input")) return; // not while it is typed
      setFind(params.find || "");
      setBy(params.agent || "");
    }, [params.find, params.agent]);
    const search = (event) => {
      const find = event.target.value;
      setFind(find);
      clearTimeout(timer.current);
      timer.current = setTimeout(() => change({ find }), 250);
    };
    if (params.thread)
      return html`<div class="tools"><a href=${Lemming.link("feed")}>← all entries</a><span class="count">one request, and all that was said for it</span></div>`;
    return html`<div class="tools"><input type="search" data-search aria-label="search entries" placeholder="Search  /" value=${find} onInput=${search} />
      <select aria-label="kind" value=${params.kind || ""} onChange=${(event) => change({ kind: event.target.value })}>
        <option value="">all kinds</option>${KINDS.map((kind) => html`<option>${kind}</option>`)}</select>
      <${AgentField} label="by" placeholder="by any agent" value=${by} change=${choose} /></div>`;
  }

  function Entry({ entry, isThread, isAnswer }) {
    const [isOpen, setOpen] = useState(false);
    const isLong = entry.text.length > 600 || entry.text.split("\n").length > 8;
    const request = entry.request;
    return html`<li class=${`entry ${entry.kind}${isAnswer ? " answer" : ""}`} data-line tabindex="0" style=${isThread && entry.depth ? { "--depth": entry.depth } : undefined}>
      <p class="from"><${Agent} name=${entry.agent} />${entry.to.length ? html`<span class="to"> → ${entry.to.join(", ")}</span>` : null}
        <span class="kind ${entry.kind}">${entry.kind}</span>${entry.trust ? html`<span class="trust ${entry.trust}" title="trust label">trust: ${entry.trust}</span>` : null}
        <span class="when"><a href=${Lemming.link("why", { target: entry.file })}>why?</a> · <a href=${Lemming.link("turn", { number: entry.tick, agent: entry.agent })}>tick ${entry.tick}</a> · <${Ago} at=${entry.at} /></span></p>
      ${entry.text ? html`<p class=${"said" + (isLong && !isOpen ? " cut" : "")} dir="auto">${entry.text}</p>` : null}
      ${isLong ? html`<button class="plain" onClick=${() => setOpen(!isOpen)} aria-expanded=${isOpen}>${isOpen ? "less" : `all of it (${amount(entry.chars)} characters)`}</button>` : null}
      ${entry.says ? html`<p class="says" dir="auto">${entry.says}</p>` : null}
      <details class="raw"><summary aria-label="as it is written">{ }</summary><pre tabindex="0">${JSON.stringify(entry.payload, null, 2)}</pre></details>
      ${request && !isThread && !isAnswer ? html`<p class="thread"><a href=${Lemming.link("feed", { thread: entry.identity })}>${said(request)}</a></p>` : null}
    </li>`;
  }

  function said(request) {
    const end = request.end ? `${request.end} in tick ${request.end_tick}` : `open: ${request.holders.join(", ") || "nobody"} has it`;
    return request.is_this ? end : `for “${request.text.slice(0, 80) || request.identity}” of ${request.asker} · ${end}`;
  }

  function Write({ header }) {
    const [text, setText] = useDraft("say", "");
    const [to, setTo] = useDraft("say to", "");
    const [done, setDone] = useState("");
    const action = useAction();
    const send = async (name) => {
      const said = await action.run(() => Lemming.act(name, { text, to }));
      if (said) {
        setText("");
        const what = name === "ask" ? `Asked ${to}: the answer comes below the question` : to ? `Sent to ${to}` : "Sent to everybody who reads you";
        setDone(header.engine ? what + "." : what + ". It is read once an engine runs: lemming run-once");
      }
    };
    return html`<form class="write" onSubmit=${(event) => (event.preventDefault(), send("send"))}>
      <textarea rows="2" aria-label="what to say" placeholder="Say something, or ask an agent" value=${text} onInput=${(event) => setText(event.target.value)} required></textarea>
      <div class="buttons"><${AgentField} label="to" placeholder="to everybody" value=${to} change=${setTo} />
        <button disabled=${action.isBusy || !text} title="a message: no answer is expected">Send</button>
        <button type="button" disabled=${action.isBusy || !text || !to} title="urgent: a running turn is shown it at its next step" onClick=${() => send("say")}>Say at once</button>
        <button type="button" class="primary" disabled=${action.isBusy || !text || !to} title="a request: the answer comes as a thread" onClick=${() => send("ask")}>Ask</button>
        <span class="note" role="status">${text && !to ? "Name an agent to ask it" : done}</span></div><${Failure} error=${action.error} /></form>`;
  }

  Lemming.part("feed", { title: "Feed", key: "f", render: Feed });
})();
