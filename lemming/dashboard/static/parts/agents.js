"use strict";
// The agents: what each does now or why not, its last words, when it is due, what it has spent.
(function () {
  const { html } = Lemming;
  const { useRef, useState, useEffect } = Lemming.hooks;
  const { Ago, Agent, Meter, Empty, Rows, Words, amount } = Lemming.ui;
  const BLOCK = 50, FEW = 12;
  const GROUPS = { people: "people", waiting: "waiting", working: "working", failing: "failing", idle: "idle", paused: "paused" };
  const SORTS = [["", "by status"], ["name", "by name"], ["spent", "by spending"], ["last", "by last turn"]];

  // The head counts what waits for all people, or for the one who looks: of several it is nobody's own count.
  function Agents({ value, params, header, page }) {
    const search = useRef(0);
    const kept = { group: params.group, sort: params.sort };
    const isFew = value.lately.length > 0 || (value.total <= FEW && !params.group && !params.find);
    const height = useHeight(isFew);
    const [find, setFind] = useState(params.find || "");
    useEffect(() => {
      if (!document.activeElement.matches("[data-search]")) setFind(params.find || ""); // not while it is typed
    }, [params.find]);
    const change = (find) => {
      setFind(find);
      clearTimeout(search.current);
      search.current = setTimeout(() => Lemming.go("agents", { ...kept, find }), 150);
    };
    const wanted = (first, count) => {
      const offset = Math.max(0, Math.floor((first - 10) / BLOCK) * BLOCK);
      const limit = Math.ceil((first + count + 10 - offset) / BLOCK) * BLOCK;
      if (offset !== Number(params.offset || 0) || limit !== Number(params.limit || BLOCK)) {
        const window_ = { ...kept, find: params.find, offset: offset || "", limit: limit === BLOCK ? "" : limit };
        history.replaceState(null, "", Lemming.link("agents", window_));
        dispatchEvent(new HashChangeEvent("hashchange"));
      }
    };
    return html`<section class=${"agents" + (isFew ? " few" : "")}>
      <div class="tools"><input data-search type="search" aria-label="find agents" placeholder="Find an agent  /"
        value=${find} onInput=${(event) => change(event.target.value)} />
        <span class="chips" role="group" aria-label="which agents">${Object.entries(GROUPS).filter(([group]) => value.counts[group] || params.group === group).map(([group, name]) => html`<button type="button" class="chip of-${group}" aria-pressed=${params.group === group}
          onClick=${() => Lemming.go("agents", { ...kept, find: params.find, group: params.group === group ? "" : group })}>${name} <strong>${amount(value.counts[group])}</strong></button>`)}</span>
        ${isFew ? null : html`<select aria-label="in which order" value=${params.sort || ""} onChange=${(event) => Lemming.go("agents", { ...kept, find: params.find, sort: event.target.value })}>${SORTS.map(([sort, name]) => html`<option value=${sort}>${name}</option>`)}</select>`}
        <span class="count" aria-live="polite">${amount(value.total)} ${value.total === 1 ? "agent" : "agents"}</span></div>
      ${value.total ? html`<div role="table" aria-label="agents" aria-rowcount=${value.total + 1}><div class="row heads" role="row">${["Agent", "Now", isFew ? "Last entry" : "Reason, or last entry", "Next", "Credits"].map((name, place) => html`<span role="columnheader" class=${["", "", "words", "next", "money"][place]}>${name}</span>`)}</div><${Rows} role="rowgroup" label="agents" total=${value.total} first=${value.offset} rows=${value.rows} height=${height}
        wanted=${wanted} row=${(each) => html`<${Row} agent=${each} waiting=${value.counts.people === 1 || page.person === each.name ? header.waiting : 0} />`} /></div>`
        : html`<${Empty} title="No agents">${params.find || params.group ? "No agent matches." : "lemming agents new NAME creates one."}<//>`}
      ${value.lately.length ? html`<h3>Latest entries <small><a href=${Lemming.link("feed")}>all entries</a></small></h3><ol class="lately">${value.lately.map((entry) => html`<li key=${entry.identity}><${Agent} name=${entry.agent} />${entry.to.length ? html`<span class="faint">→ ${entry.to.join(", ")}</span>` : null} <span class="what">${entry.text || entry.says}</span> <span class="when"><a href=${Lemming.link("why", { target: entry.file })} aria-label=${`why? What ${entry.agent} said in tick ${entry.tick}`}>why?</a> · <${Ago} at=${entry.at} /></span></li>`)}</ol>` : null}
      ${value.capabilities.length ? html`<ul class="cards capabilities" aria-label="what capabilities say">${value.capabilities.map((each) => html`<${Said} said=${each} />`)}</ul>` : null}
    </section>`;
  }

  // Rows are one line high, of few agents two; on a phone what one does stands below its name.
  function useHeight(isFew) {
    const narrow = window.matchMedia("(max-width: 640px)");
    const [isNarrow, set] = useState(narrow.matches);
    useEffect(() => {
      const look = () => set(narrow.matches);
      narrow.addEventListener("change", look);
      return () => narrow.removeEventListener("change", look);
    }, []);
    return isNarrow || isFew ? 60 : 36;
  }

  // What one capability says: texts of its own code, shown as texts.
  function Said({ said }) {
    return html`<li class="card"><h3>${said.name}</h3><dl class="facts">${said.facts.map((each) => html`<div><dt>${each.about}</dt><dd dir="auto">${each.text}</dd></div>`)}</dl>
      ${said.left_out ? html`<p class="note">and ${amount(said.left_out)} more; <code>lemming status --json</code> has all</p>` : null}</li>`;
  }

  const TELLS = ["failing", "broken", "skipped", "out_of_credits", "waits", "working", "paused", "begun"]; // its reason says more than its last words

  function Row({ agent, waiting }) {
    const last = agent.last;
    const waitsForYou = agent.group === "waiting" || (agent.state === "person" && waiting);
    const state = html`<span class="pill ${agent.state}">${agent.label}</span>`;
    const since = agent.since ? html` · <${Ago} at=${agent.since} since />` : null;
    return html`<div class="row" role="row" data-line tabindex="0" aria-label=${`${agent.name}: ${agent.label}`} onKeyDown=${(event) => open(event, agent.name)}>
      <div class="id" role="cell"><${Agent} name=${agent.name} /><span class="title">${agent.title}</span></div>
      <div class="doing" role="cell">${waitsForYou ? html`<a href=${Lemming.link("waiting")}>${state}</a>` : state}</div>
      <div class="words" role="cell" dir="auto">${agent.state === "person" && waiting ? html`<a href=${Lemming.link("waiting")}>${waiting} ${waiting === 1 ? "item waits" : "items wait"} for a decision</a>`
        : TELLS.includes(agent.state) && agent.text ? html`<span class="reason" title=${agent.text}><${Words} text=${agent.text} />${since}</span>`
        : last ? html`${last.text} <small><a href=${Lemming.link("why", { target: last.file })} aria-label=${`why? What ${agent.name} said last`}>why?</a> · tick ${last.tick}</small>` : html`<i>no entries yet</i>`}</div>
      <div class="next" role="cell">${agent.next_at ? html`<${Ago} at=${agent.next_at} />` : agent.next || "–"}</div>
      <div class="money" role="cell">${agent.credits == null || agent.state === "person" ? null : html`${amount(agent.credits)}${agent.max_credits == null ? "" : html` <small>of ${amount(agent.max_credits)}</small>`}
        <${Meter} value=${agent.credits} max=${agent.max_credits} label=${`${amount(agent.credits)} of ${amount(agent.max_credits)} credits`} />`}</div>
    </div>`;
  }

  function open(event, name) {
    if (event.key === "Enter" && event.target === event.currentTarget) Lemming.go("agent", { name });
  }

  Lemming.part("agents", { title: "Agents", key: "a", render: Agents });
})();
