// Whether this device is told of what waits, and what is in the way of it.
import { useEffect, useState } from "preact/hooks";
import { look, turnOff, turnOn } from "../model/notices.js";
import { html } from "./html.js";

/** @type {Record<string, string>} */
const WHY_NOT = {
  denied: "Notifications are blocked. Allow them in your browser's site settings.",
  insecure: "Notifications need HTTPS: `acphold help serve` says how this page gets it.",
  "home screen": "Add this page to the home screen and open it there to get notifications.",
  unable: "This browser cannot show notifications; commands in `[alerts]` can tell you instead.",
};

export function Notices() {
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [state, setState] = useState("");
  useEffect(() => void look().then(setState, () => {}), []);
  if (!state) return null;
  if (WHY_NOT[state]) return html`<p class="notices aside">${WHY_NOT[state]}</p>`;
  const change = async () => {
    setBusy(true);
    setProblem("");
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
