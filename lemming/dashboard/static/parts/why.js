"use strict";
// Why something was written: from a sentence back to the turn that wrote it, what that could see, and so on.
(function () {
  const { html } = Lemming;
  const { useState } = Lemming.hooks;
  const { Agent, Empty, Failure, useAction, amount } = Lemming.ui;
  const ENDS = 10;

  function Why({ value, params }) {
    const [isAll, showAll] = useState(false);
    const target = value.target;
    const by = value.sources.filter((each) => each.by === "person"), other = value.sources.filter((each) => each.by !== "person");
    return html`<section class="why">
      <${Search} key=${params.target} params=${params} />
      ${value.is_found ? null : html`<p class="note">Nothing in this tree contains “${value.grep}”; go further back.</p>`}
      <div class="cards sides"><div class="card"><h3>Where this came from</h3><ul class="tree root"><${Thing} thing=${target} isOpen /></ul>
        ${value.unreadable_ticks.length ? html`<p class="wrong">The journals of ticks ${value.unreadable_ticks.join(", ")} cannot be read.</p>` : null}</div>
      <aside class="card"><h3>In the end</h3>
        ${value.sources.length ? html`<p class="note">What people wrote, or nobody's turn is known to have written:</p>` : html`<p class="note">${target.written_in ? "Everything in this tree was written by turns; go further back for what those saw." : "No turn wrote it, so there is nothing behind it."}</p>`}
        <ul class="list">${[...by, ...other].slice(0, isAll ? undefined : ENDS).map((each) => html`<li><${Name} thing=${each} /> <span class="said" dir="auto">${each.text.slice(0, 240)}${each.text.length > 240 ? " …" : ""}</span> <small>${each.remark || "written by a person"}; seen by ${each.seen_by} in <a href=${Lemming.link("turn", { number: each.seen_in, agent: each.seen_by })}>tick ${each.seen_in}</a></small></li>`)}</ul>
        ${value.sources.length > ENDS && !isAll ? html`<button class="plain" onClick=${() => showAll(true)}>${value.sources.length - ENDS} more</button>` : null}
        ${value.trust ? html`<h4>Less trusted because of its origin</h4><ol class="list">${value.trust.map((step) => html`<li><strong>${step.what}</strong>: ${step.trust}${step.because ? `, of ${step.agent}'s turn in tick ${step.tick}, because of ${step.because}` : ""}</li>`)}</ol>` : null}
        <p class="note">This tells what a turn could see and what it wrote. It does not claim that the one caused the other.</p></aside></div></section>`;
  }

  function Search({ params }) {
    const [target, setTarget] = useState(params.target || "");
    const go = (event) => {
      event.preventDefault();
      if (target.trim()) Lemming.go("why", { ...params, target: target.trim() });
    };
    return html`<form class="tools" onSubmit=${go}><input class="wide" data-search type="search" aria-label="an entry's id, a file, or agent/memory/key" placeholder="an entry's id, a file, or agent/memory/key" value=${target} onInput=${(event) => setTarget(event.target.value)} /><button>Why?</button>
      ${Lemming.page.is_report ? null : html`<label class="count">back <select aria-label="how many turns back" value=${params.depth || "2"} onChange=${(event) => Lemming.go("why", { ...params, depth: event.target.value })}>${["1", "2", "3", "5", "10"].map((each) => html`<option>${each}</option>`)}</select> turns</label>`}</form>`;
  }

  function Name({ thing }) {
    const name = thing.what === "entry" ? "" : thing.name;
    return html`<span class="kind of-${thing.what}">${thing.what}</span>${thing.author ? html` <${Agent} name=${thing.author} />` : null}${name ? html` <code>${name.slice(0, 160)}</code>` : null}`;
  }

  // A thing with the turn behind it. What is told elsewhere, or lies further back, is fetched when asked for.
  function Thing({ thing, isOpen }) {
    const [deeper, setDeeper] = useState(null);
    const action = useAction();
    const found = deeper || thing;
    const further = async () => {
      const told = await action.run(() => Lemming.load("why", { target: thing.path || thing.name, depth: 1 }));
      if (told) setDeeper(told.target);
    };
    const place = thing.written_in && { number: thing.written_in.tick, agent: thing.written_in.agent };
    return html`<li class="thing" data-line tabindex="0"><p class="from"><${Name} thing=${thing} />
        ${place ? html`<a class="aside" href=${Lemming.link("tick", place)}>tick ${place.number}</a>` : null}
        ${thing.remark ? html`<span class="trust ${thing.by}">${thing.remark}</span>` : null}${thing.is_new ? null : html`<small>known already</small>`}</p>
      ${thing.text ? html`<p class=${"said clamp" + (thing.what === "file" ? " of-file" : "")} tabindex="0" dir="auto">${thing.text.slice(0, 1200)}${thing.chars > 1200 ? html` <small>… ${amount(thing.chars)} characters</small>` : null}</p>` : null}
      ${found.turn ? html`<${Turn} turn=${found.turn} isOpen=${isOpen} />`
        : thing.cut && place && (thing.path || thing.what === "entry") ? html`<button class="plain" disabled=${action.isBusy} onClick=${further}>${thing.cut === "told" ? "its turn is shown elsewhere in this tree; show it here" : "further back"}</button>` : null}
      <${Failure} error=${action.error} /></li>`;
  }

  const FEW = 6;

  function Turn({ turn, isOpen }) {
    const [isAll, setAll] = useState(false);
    const age = (seen) => (seen.written_in ? -seen.written_in.tick : 0);
    const known = turn.saw.filter((seen) => !seen.is_new).sort((one, other) => age(one) - age(other));
    const ordered = [...turn.saw.filter((seen) => seen.is_new), ...known];
    const shown = isAll ? ordered : ordered.slice(0, Math.max(FEW, turn.saw.filter((seen) => seen.is_new).length > 20 ? 20 : FEW));
    return html`<details class="turn-of" open=${isOpen || undefined}><summary>written by <strong>${turn.agent}</strong> in tick ${turn.tick}, which could see ${turn.saw.length ? html`${turn.saw.length} ${turn.saw.length === 1 ? "thing" : "things"}` : "nothing but its instructions"} <a class="aside" href=${Lemming.link("turn", { number: turn.tick, agent: turn.agent })}>the turn whole</a></summary>
      <ul class="tree">${shown.map((seen, place) => html`<${Thing} key=${seen.name + place} thing=${seen} isOpen=${isOpen && shown.length < 4} />`)}
        ${ordered.length > shown.length ? html`<li><button class="plain" onClick=${() => setAll(true)}>${ordered.length - shown.length} more that it could see</button></li>` : null}</ul></details>`;
  }

  // Without a target there is nothing to show but the question.
  function Page(props) {
    if (props.value.target) return html`<${Why} ...${props} />`;
    return html`<section class="why"><${Search} params=${props.params} /><${Empty} title="From any sentence back to where it came from">Give an entry's id, a file of the organisation, or agent/memory/key; or follow “why?” beside an entry.<//></section>`;
  }

  Lemming.part("why", { title: "Why", key: "y", render: Page, ask: Search });
})();
