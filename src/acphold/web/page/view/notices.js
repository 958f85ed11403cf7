// The switch for notifications on this device, and what prevents them; one turn that it waits for.
import { useEffect, useState } from "preact/hooks";
import { noticesState, turnOff, turnOn, wish, wishes } from "../model/notices.js";
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
  return html`<p class="offer" role="group" aria-label="Notifications"><span>Get a notification when an agent asks, or is done?</span>
    <button type="button" onClick=${() => decide(turnOn)}>Notify me</button><button type="button" class="quiet" onClick=${() => decide(async () => {})}>No, thanks</button></p>`;
}

export function Notices() {
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [state, setState] = useState("");
  const [hasWords, setWords] = useState(false);
  useEffect(() => void noticesState().then(setState, () => {}), []);
  useEffect(() => void (state === "on" && wishes().then(({ words }) => setWords(words), () => {})), [state]);
  if (!state) return null;
  if (WHY_NOT[state]) return html`<p class="notices aside">${WHY_NOT[state]}</p>`;
  /** @param {() => Promise<unknown>} what @param {string} not */
  const act = async (what, not) => {
    setBusy(true);
    setProblem("");
    await what().catch((error) => setProblem(`${not}: ${error.message}`));
    setBusy(false);
  };
  const change = () => act(async () => {
    localStorage.setItem(DECIDED, "yes");
    setState(await (state === "on" ? turnOff() : turnOn()));
  }, `Notifications could not be turned ${state === "on" ? "off" : "on"}`);
  const changeWords = () => act(async () => {
    await wish({ words: !hasWords });
    setWords(!hasWords);
  }, "This could not be changed");
  return html`<p class="notices"><button type="button" class="quiet" disabled=${isBusy} aria-pressed=${state === "on"} onClick=${change}>${state === "on" ? "Notifications are on for this device" : "Notify me on this device"}</button>
    ${state === "on" && html`<label class="check"><input type="checkbox" checked=${hasWords} disabled=${isBusy} onChange=${changeWords} />With the agent’s last words when a turn is done</label>`}
    ${problem && html`<span role="alert">${problem}</span>`}</p>`;
}

/** Offers to tell when the turn that runs is done, where this device would not be told of it. @param {{session: import("../model/session.js").Session}} props */
export function TellMe({ session }) {
  const [problem, setProblem] = useState("");
  const [state, setState] = useState("");
  const [isWanted, setWanted] = useState(false);
  useEffect(() => {
    void noticesState().then(async (found) => {
      if (found === "on") setWanted((await wishes()).sessions.includes(session.id));
      setState(found);
    }, () => {});
  }, [session.id]);
  void session.changes.value;
  const author = session.timeline.items.findLast((each) => each.kind === "prompt")?.author ?? "";
  const isOurs = !author || author.startsWith("acphold");  // an editor's person sits at the editor
  if (problem) return html`<p class="offer bad" role="alert">${problem}</p>`;
  if (!(isWanted || state === "off" || (state === "on" && !isOurs)) || session.questions.value.length > 0) return null;
  const change = async () => {
    try {
      const now = state === "off" ? await turnOn() : state;
      if (WHY_NOT[now]) return setProblem(WHY_NOT[now]);
      await wish({ sessionId: session.id, tell: !isWanted });
      setState(now);
      setWanted(!isWanted);
    } catch (error) {
      setProblem(`It could not be noted: ${/** @type {Error} */ (error).message}`);
    }
  };
  return html`<p class="offer"><button type="button" class="quiet" aria-pressed=${isWanted} onClick=${change}>${isWanted ? "You will be told when it is done" : "Tell me when it is done"}</button></p>`;
}
