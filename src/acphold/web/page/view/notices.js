// The switch for notifications on this device, and what prevents them.
import { useEffect, useState } from "preact/hooks";
import { noticesState, turnOff, turnOn } from "../model/notices.js";
import { html } from "./html.js";

/** @type {Record<string, string>} */
const WHY_NOT = {
  denied: "Notifications are blocked. Allow them in your browser's site settings.",
  insecure: "Notifications need HTTPS. `acphold help serve` explains how to get it.",
  "home screen": "Add this page to the home screen and open it there to get notifications.",
  unable: "This browser cannot show notifications. Commands in `[alerts]` of the settings file can notify you instead.",
};

/** Set once somebody has said on this device whether they want notifications. */
const DECIDED = "acphold notices decided";

/** Offers notifications at the first question, until somebody has decided. */
export function Offer() {
  const [problem, setProblem] = useState("");
  const [isOffered, setOffered] = useState(false);
  useEffect(() => void (localStorage.getItem(DECIDED) || noticesState().then((state) => setOffered(state === "off"), () => {})), []);
  if (problem) return html`<p class="offer bad" role="alert">${problem}</p>`;
  if (!isOffered) return null;
  /** @param {() => Promise<string | void>} what */
  const decide = async (what) => {
    localStorage.setItem(DECIDED, "yes");
    setOffered(false);
    await what().then((state) => setProblem(WHY_NOT[state ?? ""] ?? ""), (error) => setProblem(`Notifications could not be turned on: ${error.message}`));
  };
  return html`<p class="offer" role="group" aria-label="Notifications"><span>Get a notification when an agent asks?</span>
    <button type="button" onClick=${() => decide(turnOn)}>Notify me</button><button type="button" class="quiet" onClick=${() => decide(async () => {})}>No, thanks</button></p>`;
}

export function Notices() {
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [state, setState] = useState("");
  useEffect(() => void noticesState().then(setState, () => {}), []);
  if (!state) return null;
  if (WHY_NOT[state]) return html`<p class="notices aside">${WHY_NOT[state]}</p>`;
  const change = async () => {
    setBusy(true);
    setProblem("");
    localStorage.setItem(DECIDED, "yes");
    try {
      setState(await (state === "on" ? turnOff() : turnOn()));
    } catch (error) {
      setProblem(`Notifications could not be turned ${state === "on" ? "off" : "on"}: ${/** @type {Error} */ (error).message}`);
    }
    setBusy(false);
  };
  return html`<p class="notices"><button type="button" class="quiet" disabled=${isBusy} aria-pressed=${state === "on"} onClick=${change}>${state === "on" ? "Notifications are on for this device" : "Notify me on this device"}</button>
    ${problem && html`<span role="alert">${problem}</span>`}</p>`;
}
