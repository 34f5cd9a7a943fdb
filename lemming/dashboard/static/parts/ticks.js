"use strict";
// The ticks: a strip of the newest, what the tick under way does, and a line for each.
(function () {
  const { html } = Lemming;
  const { Ago, Empty, amount, dollars } = Lemming.ui;
  const { Strip, said, mark } = Lemming.charts;

  const ENDS = { done: "done", waiting: "waiting", failed: "failed", skipped: "no turn", running: "running", interrupted: "interrupted", damaged: "damaged" };

  function Ticks({ value, params }) {
    const ticks = value.ticks;
    if (!ticks.length)
      return html`<${Empty} title="No tick has run yet"><code>lemming run-once</code> runs one; this page shows it as it runs.<//>`;
    const unit = ticks.some((tick) => tick.cost_usd) ? "cost_usd" : "credits";
    const newest = ticks[ticks.length - 1];
    return html`<section class="ticks">
      <div class="tools"><a class="button" aria-disabled=${value.older ? undefined : "true"} href=${value.older ? Lemming.link("ticks", { before: ticks[0].tick }) : undefined}>← older</a>
        ${params.before ? html`<a class="button" href=${Lemming.link("ticks")}>newest</a>` : null}
        <span class="count">ticks ${ticks[0].tick} to ${newest.tick}</span>
        ${value.is_running ? html`<a class="button" href=${Lemming.link("tick", { number: newest.tick })}>watch tick ${newest.tick}</a>` : null}</div>
      <${Strip} ticks=${ticks} unit=${unit} />
      <div class="table" role="group" aria-label="ticks, newest first">
        <div class="line heading" aria-hidden="true"><span>Tick</span><span>Ended</span><span>When</span><span>Turns</span><span>Entries</span><span>Cost</span><span>Took</span></div>
        ${[...ticks].reverse().map((tick) => html`<${Line} key=${tick.tick} tick=${tick} />`)}</div></section>`;
  }

  const failures = (tick) => Object.entries(tick.ends).reduce((sum, [end, count]) => sum + (end.startsWith("failed") ? count : 0), 0);
  // A tick has failed where all of its turns have; else it says how many.
  const badly = (tick) => mark(tick) !== "failed" || failures(tick) === tick.turns;

  function Line({ tick }) {
    const ends = Object.entries(tick.ends).map(([end, count]) => `${count} ${end.split(":")[1].replace(/^waits$/, "waiting").replace(/_/g, " ")}`).join(", ");
    return html`<a class="line" data-line href=${Lemming.link("tick", { number: tick.tick })}>
      <span class="number">${tick.tick}${tick.quiet_before ? html`<small title="earlier ticks in which no agent ran"> +${tick.quiet_before} quiet</small>` : null}</span>
      <span><span class="pill end ${badly(tick) ? mark(tick) : "mixed"}">${badly(tick) ? ENDS[mark(tick)] : failures(tick) + " failed"}</span>${tick.starts > 1 ? html` <small>in ${tick.starts} attempts</small>` : null}</span>
      <span class="faint"><${Ago} at=${tick.at} /></span>
      <span title=${ends}>${tick.problem ? html`<small class="wrong">${tick.problem}</small>` : html`${tick.turns}${tick.turns === tick.planned ? "" : " of " + tick.planned}<span class="narrow"> ${tick.turns === 1 ? "turn" : "turns"}</span>${Object.keys(tick.ends).length > 1 || tick.turns !== tick.planned ? html`<small class="ends"> ${ends}</small>` : html`<small class="ends"> all ${ends.replace(/^\d+ /, "")}</small>`}`}</span>
      <span>${amount(tick.entries)}</span>
      <span>${tick.cost_usd == null ? amount(tick.credits) + " cr" : dollars(tick.cost_usd)}</span>
      <span class="faint">${said(tick.duration_ms)}</span></a>`;
  }

  Lemming.part("ticks", { title: "Ticks", key: "t", render: Ticks });
})();
