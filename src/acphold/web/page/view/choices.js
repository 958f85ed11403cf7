// Modes and options of an agent, in the box where one writes.
import { useState } from "preact/hooks";
import { CUT } from "../model/tables.js";
import { asText, line } from "../model/text.js";
import { Guard } from "./guard.js";
import { html } from "./html.js";

/** @param {{session: import("../model/session.js").Session}} props */
export function Choices({ session }) {
  void session.changes.value;  // another device, or the agent, may have chosen
  const [problem, setProblem] = useState("");
  const { availableModes: modes, modeId, options = [] } = session.timeline.state;
  /** @param {Promise<void>} choosing */
  const tell = (choosing) => choosing.then(() => setProblem(""), (error) => setProblem(error.message));
  const isOff = session.server.link.value.state !== "online";
  // Modes are an older way to say what the options say: where both are there, they are one choice.
  const hasMode = options.some((each) => each?.category === "mode" || each?.id === "mode");
  if (!(modes && !hasMode) && options.length === 0) return null;
  return html`<div class="choices">
    ${modes && !hasMode && html`<${Choice} name="Mode" value=${modeId} isOff=${isOff}
      choices=${modes.map((each) => [each.id, each.name])} choose=${(/** @type {string} */ id) => tell(session.setMode(id))} />`}
    ${options.map((each) => html`<${Guard}><${Option} each=${each} isOff=${isOff} session=${session} tell=${tell} /><//>`)}
    ${problem && html`<span class="bad" role="alert">${line(problem)}</span>`}
  </div>`;
}

/** @param {{each: Received, isOff: boolean, session: import("../model/session.js").Session, tell: (choosing: Promise<void>) => void}} props */
function Option({ each, isOff, session, tell }) {
  if (each.type === "boolean") return html`<label class="check"><input type="checkbox" checked=${each.currentValue === true} disabled=${isOff} onChange=${(/** @type {On<HTMLInputElement>} */ event) => tell(session.setOption(each.id, event.target.checked))} />${line(each.name, CUT.short)}</label>`;
  return html`<${Choice} name=${line(each.name, CUT.short)} value=${asText(each.currentValue)} isOff=${isOff}
    choices=${(each.options ?? []).flatMap((/** @type {Received} */ one) => one.options ?? [one]).map((/** @type {Received} */ one) => [asText(one.value), one.name])}
    choose=${(/** @type {string} */ value) => tell(session.setOption(each.id, value))} />`;
}

/** @param {{name: string, value: string, isOff: boolean, choices: [string, string][], choose: (value: string) => void}} props */
function Choice({ name, value, isOff, choices, choose }) {
  return html`<label class="choice"><span class="away">${name}</span><select title=${name} value=${value} disabled=${isOff} onChange=${(/** @type {On<HTMLSelectElement>} */ event) => choose(event.target.value)}>
    ${choices.map(([id, title]) => html`<option value=${id} selected=${id === value}>${line(title, CUT.name)}</option>`)}
  </select></label>`;
}
