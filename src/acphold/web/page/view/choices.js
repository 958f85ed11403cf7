// Modes and options of an agent: what is chosen, on one button in the box where one writes, and all of
// them with their names in a sheet in front of the page.
import { useEffect, useRef, useState } from "preact/hooks";
import { ACCEPTS_EDITS, CUT } from "../model/tables.js";
import { asText, line } from "../model/text.js";
import { inFront } from "./dialog.js";
import { Guard } from "./guard.js";
import { html } from "./html.js";

/** @typedef {{name: string, kind: string, about?: string, value: string | boolean, choices?: [string, string][], choose: (value: any) => Promise<void>}} Choice  `kind` is its category; a switch has no `choices` */

/** Shown on the button: those of them that there are, else the first ones. */
const FIRST = ["mode", "model"];
const SHOWN = 2;

/** @param {import("../model/session.js").Session} session @returns {Choice[]} */
function choicesOf(session) {
  const { availableModes: modes, modeId, options = [] } = session.timeline.state;
  // Modes are an older way to say what the options say: where both are there, they are one choice.
  const isOption = (/** @type {Received} */ each) => each?.category === "mode" || each?.id === "mode";
  /** @type {Choice[]} */
  const older = modes && !listed(options).some(isOption)
    ? [{ name: "Mode", kind: "mode", value: asText(modeId), choices: listed(modes).map((each) => /** @type {[string, string]} */ ([asText(each?.id), asText(each?.name)])), choose: (value) => session.setMode(value) }] : [];
  return [...older, ...listed(options).filter(Boolean).map((each) => ({
    name: asText(each.name),
    kind: asText(each.category ?? each.id),
    about: asText(each.description),
    value: each.type === "boolean" ? each.currentValue === true : asText(each.currentValue),
    choices: each.type === "boolean" ? undefined
      : listed(each.options).flatMap((/** @type {Received} */ one) => one?.options ? listed(one.options) : [one]).map((/** @type {Received} */ one) => /** @type {[string, string]} */ ([asText(one?.value), asText(one?.name)])),
    choose: (/** @type {any} */ value) => session.setOption(each.id, value),
  }))];
}

/** The mode in which its agent accepts edits without a question, if it has one and is in another. @param {import("../model/session.js").Session} session @returns {{name: string, enter: () => Promise<void>} | null} */
export function editMode(session) {
  const mode = choicesOf(session).find((each) => each.kind === "mode" && each.choices);
  const found = mode?.choices?.find((words) => words.some((word) => ACCEPTS_EDITS.includes(word.toLowerCase().replace(/[\W_]/g, ""))));
  return mode && found && found[0] !== mode.value ? { name: found[1], enter: () => mode.choose(found[0]) } : null;
}

/** What an agent says may be anything. @param {unknown} found @returns {Received[]} */
const listed = (found) => (Array.isArray(found) ? found : []);

/** Its value in a person's words; of a switch its name. @param {Choice} choice */
const wordsOf = ({ name, value, choices }) =>
  choices ? choices.find(([id]) => id === value)?.[1] ?? asText(value) : `${name}: ${value ? "on" : "off"}`;

/** @param {{session: import("../model/session.js").Session}} props */
export function Choices({ session }) {
  void session.changes.value;  // another device, or the agent, may have chosen
  const all = choicesOf(session);
  if (all.length === 0) return null;
  const known = FIRST.flatMap((kind) => all.find((each) => each.kind === kind) ?? []);
  const words = (known.length ? known : all.slice(0, SHOWN)).map((each) => line(wordsOf(each), CUT.short)).join(" · ");
  return html`<div class="choices"><button type="button" class="quiet" aria-haspopup="dialog" aria-label=${`Options: ${words}`} onClick=${() => void inFront(Sheet, { session })}>${words}</button></div>`;
}

/** @param {{session: import("../model/session.js").Session, done: (answer?: unknown) => void}} props */
function Sheet({ session, done }) {
  void session.changes.value;
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => dialog.current?.showModal(), []);
  const isOff = session.server.link.value.state !== "online";
  /** @param {Choice} choice @param {string | boolean} value */
  const choose = ({ choose }, value) => choose(value).then(() => setProblem(""), (error) => setProblem(error.message));
  return html`<dialog ref=${dialog} class="sheet-below" aria-labelledby="options-title" onCancel=${(/** @type {Event} */ event) => (event.preventDefault(), done())} onClick=${(/** @type {Event} */ event) => event.target === dialog.current && done()}>
    <h2 id="options-title">Options</h2>
    ${choicesOf(session).map((each) => html`<${Guard}><${ChoiceView} choice=${each} isOff=${isOff} choose=${(/** @type {string | boolean} */ value) => void choose(each, value)} /><//>`)}
    ${problem && html`<p class="bad" role="alert">${line(problem)}</p>`}
    ${isOff && html`<p class="aside" role="status">You are offline.</p>`}
    <div class="choice"><button type="button" class="main" onClick=${() => done()}>Done</button></div>
  </dialog>`;
}

/** @param {{choice: Choice, isOff: boolean, choose: (value: string | boolean) => void}} props */
function ChoiceView({ choice: { name, about, value, choices }, isOff, choose }) {
  const title = line(name, CUT.name);
  return html`<div class="option">
    ${choices ? html`<label>${title}<select value=${value} disabled=${isOff} onChange=${(/** @type {On<HTMLSelectElement>} */ event) => choose(event.target.value)}>
      ${choices.map(([id, words]) => html`<option value=${id} selected=${id === value}>${line(words, CUT.name)}</option>`)}
    </select></label>` : html`<label class="check"><input type="checkbox" checked=${value} disabled=${isOff} onChange=${(/** @type {On<HTMLInputElement>} */ event) => choose(event.target.checked)} />${title}</label>`}
    ${about && html`<p class="aside">${line(about, CUT.part)}</p>`}
  </div>`;
}
