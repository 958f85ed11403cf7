// After a yes: the rules that would have allowed it, smallest reach first. The next tap makes one.
import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { CUT } from "../model/tables.js";
import { agentName, counted, line, pathLine } from "../model/text.js";
import { device } from "../wire/device.js";
import { read } from "../wire/pages.js";
import { isCalm, stir } from "./calm.js";
import { coded } from "./coded.js";
import { html } from "./html.js";
import { changeRule, day, spoken, UndoRule } from "./rule.js";

/** @typedef {{text: string, words: string, meaning: string, agent: string, folder: string, expiresAt: string | null}} RuleOffer */

/** How long what was made is shown, in ms. */
const SHOWN_MS = 20_000;

const DAY = 86_400_000;

/** The last question of each session that was allowed here. @type {import("@preact/signals").Signal<{session: string, question: string}[]>} */
const allowed = signal([]);

/** Kinds of calls for which rules were offered on this device: once is enough, until somebody asks for it. */
const OFFERED = "acphold rules offered";

/** A person has allowed this once, here. @param {string} session @param {string} question @param {string} kind @param {boolean} isRule  they want a rule */
export function hasAllowed(session, question, kind, isRule) {
  const offered = /** @type {string[]} */ (JSON.parse(localStorage.getItem(OFFERED) ?? "[]"));
  if (!device()?.scopes.includes("rules") || (!isRule && offered.includes(kind))) return;
  localStorage.setItem(OFFERED, JSON.stringify([...offered.slice(-20), kind]));
  allowed.value = [...allowed.value.filter((each) => each.session !== session), { session, question }];
}

/** @param {string} question */
const leave = (question) => (allowed.value = allowed.value.filter((each) => each.question !== question));

/** Whether one stands, or will in a moment, for one of these sessions. @param {(session: string) => boolean} fits */
export const isOffering = (fits) => allowed.value.some((each) => fits(each.session));

/** @param {{fits: (session: string) => boolean}} props  the sessions whose offers stand here */
export const Offers = ({ fits }) =>
  allowed.value.filter((each) => fits(each.session)).map((each) => html`<${OffersOf} key=${each.question} ...${each} />`);

/** @param {{session: string, question: string}} props */
function OffersOf({ session, question }) {
  const [offers, setOffers] = useState(/** @type {RuleOffer[]} */ ([]));
  const [made, setMade] = useState(/** @type {import("./rule.js").Rule[]} */ ([]));
  const [isForAll, setForAll] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    // Where nothing is offered nothing is said: the yes was given all the same.
    read("/rules/offers", { session, question }).then((told) => (told.offers.length > 0 ? setOffers(told.offers) : leave(question)), () => leave(question));
  }, []);
  const isThere = offers.length > 0;
  useLayoutEffect(() => void (isThere && stir()), [isThere]);
  useEffect(() => {
    if (made.length === 0) return undefined;
    const done = setTimeout(() => leave(question), SHOWN_MS);
    return () => clearTimeout(done);
  }, [made]);
  if (!isThere) return null;
  const close = html`<button type="button" class="quiet" onClick=${() => leave(question)}>${made.length > 0 ? "Close" : "No, keep asking"}</button>`;
  if (made.length > 0) {
    const isOver = made.every((each) => each.isEnded);
    return html`<section class="standing" aria-label="New rule"><p role="status">${isOver ? `${spoken(made)} revoked.` : html`<b>${spoken(made)}:</b> ${coded(line(made.map((each) => each.words).join(" and "), CUT.title))}`}</p>
      <div class="choice">${made.filter((each) => !each.isEnded).map((each) => html`<${UndoRule} number=${each.number} isOne=${made.length === 1} done=${() => setMade((was) => was.map((one) => (one === each ? { ...one, isEnded: true } : one)))} />`)}<a class="button" href="#/rules">All rules</a>${close}</div></section>`;
  }
  /** @param {RuleOffer} offer */
  const make = async ({ text }) => {
    setBusy(true);
    setProblem("");
    await changeRule("POST", "/rules", { sessionId: session, questionId: question, text, allAgents: isForAll }).then((rules) => setMade(rules), (error) => setProblem(error.message));
    setBusy(false);
  };
  const [{ agent, folder, expiresAt }] = offers;
  const days = Math.round((new Date(expiresAt ?? 0).getTime() - Date.now()) / DAY);
  return html`<section class="standing" aria-label="Allow it from now on">
    <ul>${offers.map((offer) => html`<li><button type="button" disabled=${isBusy || !isCalm.value} onClick=${() => make(offer)}>Always allow ${isForAll ? "every agent" : agentName(agent)} to ${coded(line(offer.words, CUT.offer))}${days > 0 && ` for ${counted(days, "day")}`}: ${coded(line(offer.meaning, CUT.offer))}</button></li>`)}</ul>
    <div class="choice"><details><summary>More</summary>
      <p>In ${pathLine(folder)}${expiresAt ? `, until ${day(expiresAt)}` : ""}. You can revoke it at any time.</p>
      ${agent && html`<label class="check"><input type="checkbox" checked=${isForAll} onChange=${(/** @type {On<HTMLInputElement>} */ event) => setForAll(event.target.checked)} />For every agent, not only ${agentName(agent)}</label>`}</details>${close}</div>
    ${problem && html`<p class="bad" role="alert">${line(problem, CUT.words)}</p>`}
  </section>`;
}
