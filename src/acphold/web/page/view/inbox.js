// The open questions of all sessions, which can be answered here.
import { useState } from "preact/hooks";
import { CUT } from "../model/tables.js";
import { agentName, baseName, called, line } from "../model/text.js";
import { ago } from "../model/times.js";
import { editMode } from "./choices.js";
import { Guard } from "./guard.js";
import { html } from "./html.js";
import { sessionPlace } from "./places.js";
import { Offer } from "./notices.js";
import { isOffering, Offers } from "./offers.js";
import { QuestionView } from "./question.js";
import { NewRules } from "./rules.js";

const LATER = "acphold later";

/** Questions that somebody has put off on this device. */
const putOff = () => /** @type {string[]} */ (JSON.parse(localStorage.getItem(LATER) ?? "[]"));

/** `isBrief` beside what is open, where a question would be too narrow to be read. @param {{desk: import("../model/desk.js").Desk, current?: string, isBrief?: boolean}} props */
export function Inbox({ desk, current, isBrief = false }) {
  const [later, setLater] = useState(putOff);
  // What the session that is open asks is asked beside it.
  const waiting = desk.inbox.value.filter((each) => each.sessionId !== current && !desk.hidden.value.has(each.sessionId));
  const isOther = (/** @type {string} */ id) => id !== current;
  const rules = isOffering(isOther) ? html`<${Offers} fits=${isOther} />` : html`<${NewRules} isOnline=${desk.server.isOnline} />`;
  if (waiting.length === 0) return html`<div class="inbox">${rules}</div>`;
  /** @param {string} id */
  const toggle = (id) => {
    const next = later.includes(id) ? later.filter((each) => each !== id) : [...later, id].slice(-200);
    localStorage.setItem(LATER, JSON.stringify(next));
    setLater(next);
  };
  const now = waiting.filter((each) => !later.includes(each.id));
  const others = waiting.filter((each) => later.includes(each.id));
  if (isBrief) {
    return html`<section class="inbox" aria-labelledby="waits"><h2 id="waits">Waiting for you${waiting.length > 1 ? html` <span>${waiting.length}</span>` : ""}</h2>
      <ul class="brief">${waiting.map((each) => html`<li key=${each.id}><a href=${sessionPlace(each.sessionId)}><b>${called(each.title)}</b> <span>${agentName(each.agentName)}: ${line(each.asks, CUT.part)}</span></a></li>`)}</ul>${rules}</section>`;
  }
  return html`<section class="inbox" aria-labelledby="waits">
    <h2 id="waits">Waiting for you${now.length > 1 ? html` <span>${now.length}</span>` : ""}</h2>
    <ul>${now.map((each) => html`<li key=${each.id}><${Guard}><${Waiting} desk=${desk} waiting=${each} later=${() => toggle(each.id)} /><//></li>`)}</ul>
    ${now.length > 0 ? html`<${Offer} />` : rules}
    ${others.length > 0 && html`<details><summary>Later <span>${others.length}</span></summary><ul>${others.map(
      (each) => html`<li key=${each.id}><button type="button" class="later" onClick=${() => toggle(each.id)}>${line(each.asks, CUT.part)} · ${called(each.title)}</button></li>`,
    )}</ul></details>`}
  </section>`;
}

/** @param {{desk: import("../model/desk.js").Desk, waiting: import("../model/desk.js").Waiting, later: () => void}} props */
function Waiting({ desk, waiting, later }) {
  const session = desk.session(waiting.sessionId);
  const asked = session.questions.value.find((each) => each.id === waiting.id);
  const who = agentName(waiting.agentName);
  return html`<${QuestionView} who=${who} cwd=${waiting.cwd} asked=${asked ?? waiting} call=${waiting.toolCall} shows=${waiting.shows} mode=${editMode(session)} later=${later} isNarrow isOpening=${!desk.server.isAway}
      answer=${asked && session.isAttached.value ? (/** @type {object} */ result) => session.answer(asked, result) : undefined} />
    <p class="of"><a href=${sessionPlace(waiting.sessionId)}>${called(waiting.title)}</a> · ${baseName(waiting.cwd)} · ${ago(waiting.at)}</p>`;
}
