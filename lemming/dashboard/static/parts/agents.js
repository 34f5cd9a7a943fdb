"use strict";
// The agents: what each does now or why not, its last words, when it is due, what it has spent.
(function () {
  const { html } = Lemming;
  const { useRef, useState, useEffect } = Lemming.hooks;
  const { Ago, Agent, Meter, Empty, Rows, amount } = Lemming.ui;
  const BLOCK = 50, HEIGHT = 76;

  const STATES = {
    working: "working", failing: "failing", broken: "broken", waits: "waiting", paused: "paused",
    out_of_credits: "out of credits", skipped: "no turn", due: "due", news: "due", begun: "interrupted",
    ended: "done", not_due: "not due", nothing_new: "idle", person: "person", channel: "channel",
  };

  function Agents({ value, params, header }) {
    const search = useRef(0);
    const [find, setFind] = useState(params.find || "");
    useEffect(() => {
      if (!document.activeElement.matches("[data-search]")) setFind(params.find || ""); // not while it is typed
    }, [params.find]);
    const change = (find) => {
      setFind(find);
      clearTimeout(search.current);
      search.current = setTimeout(() => Lemming.go("agents", { find }), 150);
    };
    const wanted = (first, count) => {
      const offset = Math.max(0, Math.floor((first - 10) / BLOCK) * BLOCK);
      const limit = Math.ceil((first + count + 10 - offset) / BLOCK) * BLOCK;
      if (offset !== Number(params.offset || 0) || limit !== Number(params.limit || BLOCK)) {
        const window_ = { find: params.find, offset: offset || "", limit: limit === BLOCK ? "" : limit };
        history.replaceState(null, "", Lemming.link("agents", window_));
        dispatchEvent(new HashChangeEvent("hashchange"));
      }
    };
    return html`<section class="agents">
      <div class="tools"><input data-search type="search" aria-label="find agents" placeholder="Find an agent  /"
        value=${find} onInput=${(event) => change(event.target.value)} />
        <span class="count" aria-live="polite">${amount(value.total)} ${value.total === 1 ? "agent" : "agents"}</span></div>
      ${value.capabilities.length ? html`<ul class="cards" aria-label="what capabilities say">${value.capabilities.map((each) => html`<${Said} said=${each} />`)}</ul>` : null}
      ${value.total ? html`<div class="row heads" aria-hidden="true"><span>Agent</span><span>Now</span><span class="words">Last words</span><span class="next">Next</span><span class="money">Credits</span></div><${Rows} label="agents" total=${value.total} first=${value.offset} rows=${value.rows} height=${HEIGHT}
        wanted=${wanted} row=${(each) => html`<${Row} agent=${each} tick=${value.tick} waiting=${header.waiting} />`} />`
        : html`<${Empty} title="No agents here">${params.find ? "None has this in its name or title." : "lemming agents new NAME makes one."}<//>`}
    </section>`;
  }

  // What one capability says: texts of its own code, shown as texts.
  function Said({ said }) {
    return html`<li class="card"><h3>${said.name}</h3><dl class="facts">${said.facts.map((each) => html`<div><dt>${each.about}</dt><dd dir="auto">${each.text}</dd></div>`)}</dl>
      ${said.left_out ? html`<p class="note">and ${amount(said.left_out)} more; <code>lemming status --json</code> has all</p>` : null}</li>`;
  }

  function Row({ agent, tick, waiting }) {
    const last = agent.last;
    const text = agent.state === "person" && waiting ? html`<a href=${Lemming.link("waiting")}>${waiting} ${waiting === 1 ? "thing waits" : "things wait"}</a>` : agent.text;
    return html`<article class="row" data-line tabindex="0" onKeyDown=${(event) => open(event, agent.name)}>
      <div class="id"><${Agent} name=${agent.name} /><span class="title">${agent.title}</span></div>
      <div class="doing"><span class="pill ${agent.state}">${STATES[agent.state] || agent.state}</span>
        <span class="text" title=${agent.text}>${text}${agent.since ? html`${text ? " · " : ""}<${Ago} at=${agent.since} since />` : null}</span></div>
      <blockquote class="words" dir="auto">${last ? html`${last.text || html`<i>${last.kind}</i>`} <small><a href=${Lemming.link("why", { target: last.file })} aria-label=${`why ${agent.name} said that`}>why?</a> · tick ${last.tick}</small>` : html`<i>nothing said yet</i>`}</blockquote>
      <div class="next">${due(agent, tick)}</div>
      <div class="money">${agent.credits == null ? null : html`${amount(agent.credits)}${agent.max_credits == null ? "" : html` <small>of ${amount(agent.max_credits)}</small>`}
        <${Meter} value=${agent.credits} max=${agent.max_credits} label=${`${amount(agent.credits)} of ${amount(agent.max_credits)} credits`} />`}</div>
    </article>`;
  }

  function open(event, name) {
    if (event.key === "Enter" && Lemming.parts.has("agent")) Lemming.go("agent", { name });
  }

  function due(agent, tick) {
    if (agent.next_at) return html`<${Ago} at=${agent.next_at} />`;
    if (agent.next_tick == null || agent.state === "person" || agent.state === "channel") return "–";
    return agent.next_tick <= tick ? "next tick" : `tick ${agent.next_tick}`;
  }

  Lemming.part("agents", { title: "Agents", key: "a", render: Agents });
})();
