// Questions that are forms to fill in, by their schema, or pages to open (spec v1, elicitation).
import { useState } from "preact/hooks";
import { exact, line, visible } from "../model/text.js";
import { html } from "./html.js";
import { Long } from "./long.js";
import { Whole } from "./whole.js";

/** @typedef {{id: string, params: Received, answer?: (result: object) => void, isBusy: boolean}} Props  `id` is the question's */

/** What was typed into forms that are not sent yet, by question: one that is put off, or asked again over a new connection, still has it. @type {Map<string, Record<string, Received>>} */
const typed = new Map();

/** @param {Props} props */
export function FormView({ id, params, answer, isBusy }) {
  const schema = params.requestedSchema ?? {};
  const fields = Object.entries(schema.properties ?? {});
  const [values, setValues] = useState(() => typed.get(id) ?? Object.fromEntries(fields.map(([name, field]) => [name, /** @type {Received} */ (field).default])));
  /** @param {string} name @param {Received} value */
  const set = (name, value) => {
    const next = { ...values, ...typed.get(id), [name]: value };
    typed.set(id, next);
    setValues(next);
  };
  const [missing, setMissing] = useState("");
  /** @param {Event} event */
  const send = (event) => {
    event.preventDefault();
    const wanted = (schema.required ?? []).find((/** @type {string} */ name) => values[name] === undefined || values[name] === "");
    setMissing(wanted ?? "");
    if (wanted) return;
    const content = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined && value !== ""));
    answer?.({ action: "accept", content });
  };
  return html`<form onSubmit=${send}>
    <${Whole}><div class="what form"><p class="asks"><${Long} text=${params.message} /></p>
    ${fields.map(([name, field]) => html`<${Field} key=${name} name=${name} field=${field} value=${values[name]} isMissing=${missing === name}
      isRequired=${(schema.required ?? []).includes(name)} set=${(/** @type {Received} */ value) => set(name, value)} />`)}</div><//>
    <div class="options"><div class="row">
      <button type="submit" class="main" disabled=${isBusy || !answer}>Send</button>
      <button type="button" class="no" disabled=${isBusy || !answer} onClick=${() => answer?.({ action: "decline" })}>Decline</button></div>
    </div>
  </form>`;
}

/** @param {{name: string, field: Received, value: Received, isMissing: boolean, isRequired: boolean, set: (value: Received) => void}} props */
function Field({ name, field, value, isMissing, isRequired, set }) {
  const label = html`<span class="label">${line(field.title ?? name)}${isRequired ? "" : html` <span class="aside">optional</span>`}</span>
    ${field.description && html`<span class="aside">${visible(field.description)}</span>`}
    ${isMissing && html`<span class="bad" role="alert">This field is required.</span>`}`;
  const choices = choicesOf(field.type === "array" ? (field.items ?? {}) : field);
  if (field.type === "boolean") {
    return html`<label class="check"><input type="checkbox" checked=${value === true} onChange=${(/** @type {On<HTMLInputElement>} */ event) => set(event.target.checked)} />${label}</label>`;
  }
  if (choices) {
    const isMany = field.type === "array";
    const chosen = isMany ? (value ?? []) : [value];
    /** @param {string} choice @param {boolean} isOn */
    const pick = (choice, isOn) => set(!isMany ? choice : isOn ? [...chosen, choice] : chosen.filter((/** @type {string} */ each) => each !== choice));
    return html`<fieldset><legend>${label}</legend>${choices.map(
      ([choice, title]) => html`<label class="check"><input type=${isMany ? "checkbox" : "radio"} name=${name} checked=${chosen.includes(choice)}
        onChange=${(/** @type {On<HTMLInputElement>} */ event) => pick(choice, event.target.checked)} /><span>${line(title)}</span></label>`,
    )}</fieldset>`;
  }
  const isNumber = field.type === "number" || field.type === "integer";
  /** @param {On<HTMLInputElement>} event */
  const type = (event) => set(isNumber ? (event.target.value === "" ? undefined : Number(event.target.value)) : event.target.value);
  const kind = isNumber ? "number" : ({ email: "email", uri: "url", date: "date" }[/** @type {string} */ (field.format)] ?? "text");
  return html`<label>${label}<input type=${kind} value=${value ?? ""} step=${field.type === "integer" ? 1 : "any"} min=${field.minimum} max=${field.maximum}
    minlength=${field.minLength} maxlength=${field.maxLength} onInput=${type} /></label>`;
}

/** The choices of a field, by value and title; undefined for one that is no choice. @param {Received} field @returns {[string, string][] | undefined} */
function choicesOf(field) {
  const titled = field.oneOf ?? field.anyOf;
  if (titled) return titled.map((/** @type {Received} */ each) => [each.const, each.title ?? each.const]);
  return field.enum?.map((/** @type {string} */ each, /** @type {number} */ at) => [each, field.enumNames?.[at] ?? each]);
}

/** @param {Props} props */
export function PageView({ params, answer, isBusy }) {
  let url;
  try {
    url = new URL(params.url);
  } catch {
    url = null;
  }
  const isWeb = url !== null && ["http:", "https:"].includes(url.protocol);
  return html`<div class="what">
    <p class="asks"><${Long} text=${params.message} /></p>
    <p>The agent asks you to open <b>${url?.host}</b>:</p><pre class="command" tabindex="0">${exact(params.url)}</pre>
    <div class="options"><div class="row">
      ${isWeb && url && html`<a class="button main" href=${url.href} target="_blank" rel="noopener noreferrer" onClick=${() => answer?.({ action: "accept" })}>Open ${url.host}</a>`}
      <button type="button" class="no" disabled=${isBusy || !answer} onClick=${() => answer?.({ action: "decline" })}>Decline</button></div>
    </div>
  </div>`;
}
