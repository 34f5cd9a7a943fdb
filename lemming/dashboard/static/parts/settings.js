"use strict";
// The settings: gates and all else of config/org.json, the lines of config/models.json, to be edited and tried.
(function () {
  const { html } = Lemming;
  const { Editor, Fields, NO_JSON, parsed, replaced } = Lemming.editing;

  const FILES = { org: "Organisation and gates", models: "Models" };
  const PLACES = ["in", "call", "result", "out", "spend"];
  const DEEDS = ["pass", "block", "stop", "warn", "rewrite", "ask"];
  const NEW_GATE = { at: "call", tool: "shell", then: "ask", because: "a person looks first" };

  function Settings({ value, params, page }) {
    const shown = params.file || "org";
    return html`<section class="settings"><nav class="tabs" aria-label="files of settings"><ul>${Object.entries(FILES).map(([file, title]) => html`<li><a aria-current=${file === shown ? "page" : undefined} href=${Lemming.link("settings", { file: file === "org" ? "" : file })}>${title}</a></li>`)}</ul></nav>
      <${Editor} key=${value.file} saved=${value} page=${page} label=${value.file} fields=${shown === "models" ? Models : Organisation} counts="It is checked as \`lemming validate\` does and counts from the next tick." /></section>`;
  }

  // --- gates ---

  const WHERE = { in: "what an agent is shown", call: "calls", result: "what calls gave", out: "what agents write", spend: "what is spent" };
  const DOES = { pass: "let it pass", block: "block it", stop: "stop the turn", warn: "note it", rewrite: "rewrite it", ask: "ask a person" };

  // What a gate does, as far as a sentence holds it; the rest stands in the file.
  function sentence(gate) {
    if (!gate || typeof gate !== "object") return "";
    const tools = [].concat(gate.tool || gate.class || []).join(", ");
    const most = ["credits", "dollars", "calls", "tokens"].filter((key) => gate[key] != null).map((key) => `${gate[key]} ${key}`).join(", ");
    const of = most ? `${most} per ${gate.per || "turn"}${gate.window ? ` in ${gate.window}` : ""}` : `${WHERE[gate.at] || gate.at}${tools ? ` of ${tools}` : ""}`;
    return `${of}${gate.when ? ", under a condition" : ""}: ${DOES[gate.then] || gate.then}`;
  }

  function Organisation({ text, change }) {
    const plain = parsed(text);
    if (plain === undefined && text.trim()) return NO_JSON;
    const gates = plain && Array.isArray(plain.gates) ? plain.gates : [];
    const put = (next) => change(withGates(text, plain, next));
    return html`<div class="groups"><${Fields} fields=${[[["purpose"], "What it is for", "text"]]} text=${text} change=${change} />
      <h3>Gates <small>asked in this order</small></h3>
      ${gates.map((gate, place) => html`<fieldset key=${place} class="group"><legend>${sentence(gate)}</legend>
        <${Fields} text=${text} change=${change} label=${`gate ${place + 1}`} fields=${[[["gates", place, "at"], "Applies to", PLACES], [["gates", place, "then"], "Then", DEEDS], [["gates", place, "tool"], "Tool", "text"], ...["credits", "dollars", "calls", "tokens"].map((key) => [["gates", place, key], `Limit: ${key}`, "number"]), [["gates", place, "because"], "Because", "text"]]} />
        ${change ? html`<button type="button" class="plain" onClick=${() => put(gates.filter((_, other) => other !== place))}>Remove this gate</button>` : null}</fieldset>`)}
      ${gates.length ? null : html`<p class="note">No gates: every call that resumes permit is allowed.</p>`}
      ${change ? html`<button type="button" onClick=${() => put([...gates, NEW_GATE])}>Add a gate</button>` : null}</div>`;
  }

  // The text of the settings with other gates: all else stays as it was typed.
  function withGates(text, plain, gates) {
    const list = JSON.stringify(gates, null, 2).replace(/\n/g, "\n  ");
    if (plain && Array.isArray(plain.gates)) return replaced(text, ["gates"], list);
    if (!plain || typeof plain !== "object" || !Object.keys(plain).length) return `{\n  "gates": ${list}\n}\n`;
    return text.replace("{", `{\n  "gates": ${list},`);
  }

  // --- lines of models ---

  const OF_A_LINE = [
    ["provider", "Provider", "text"], ["model", "Model", "text"], ["temperature", "Temperature", "number"], ["max_output_tokens", "Longest answer, in tokens", "number"],
    ["per_call", "Credits a call", "number"], ["usd_per_million_input_tokens", "Dollars per million tokens in", "number"], ["usd_per_million_output_tokens", "Dollars per million tokens out", "number"],
  ];

  function Models({ text, change }) {
    const plain = parsed(text);
    if (plain === undefined) return NO_JSON;
    return html`<div class="groups">${Object.keys(plain || {}).map((key) => html`<fieldset key=${key} class="group"><legend>${key}</legend>
      <${Fields} text=${text} change=${change} label=${`the line ${key}`} fields=${OF_A_LINE.map(([name, title, form]) => [[key, name], title, form])} /></fieldset>`)}</div>`;
  }

  const asked = ({ file }) => ({ ...(file && { file }) });
  Lemming.part("settings", { title: "Settings", key: "s", params: asked, render: Settings });
})();
