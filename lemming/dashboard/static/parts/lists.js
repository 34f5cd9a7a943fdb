"use strict";
// All declared lists: the same columns and cells as the commands print, each with the parameters of its query.
(function () {
  const { html } = Lemming;
  const { AgentField, Empty, Table, Words } = Lemming.ui;

  function Lists({ value, params }) {
    const go = (more) => Lemming.go("lists", { ...params, ...more });
    return html`<section class="lists">
      <div class="tools"><select aria-label="list" value=${value.name} onChange=${(event) => Lemming.go("lists", { screen: event.target.value })}>
          ${value.screens.map((screen) => html`<option value=${screen.name}>${screen.title}</option>`)}</select>
        ${value.parameters.map((field) => html`<${Field} key=${value.name + field.name} field=${field} value=${params[field.name] || ""} change=${(next) => go({ [field.name]: next })} />`)}
        <span class="count"><code>${value.command}</code></span></div>
      ${value.is_complete ? html`<${Table} table=${value} />` : html`<${Empty} title="Nothing chosen">${value.parameters.filter((field) => field.is_required).map((field) => html`<${Words} text=${field.about} /> `)}<//>`}
    </section>`;
  }

  // A parameter of the query: an agent, a yes or no, or a text. It asks once the field is left.
  function Field({ field, value, change }) {
    const [typed, set] = Lemming.hooks.useState(value);
    if (field.is_choice) return html`<label title=${field.about}><input type="checkbox" checked=${Boolean(value)} onChange=${(event) => change(event.target.checked ? "1" : "")} /> ${field.name}</label>`;
    if (field.is_agent) return html`<span onChange=${() => change(typed)}><${AgentField} label=${field.name} placeholder=${field.about} value=${typed} change=${set} /></span>`;
    return html`<input aria-label=${field.name} placeholder=${field.about} title=${field.about} value=${typed} onInput=${(event) => set(event.target.value)} onChange=${() => change(typed)} />`;
  }

  Lemming.part("lists", { title: "Lists", key: "l", view: "screen", render: Lists });
})();
