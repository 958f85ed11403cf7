// How a device is paired that is not: by the code in the address, or one that is typed.
import { useState } from "preact/hooks";
import { pair } from "../wire/pages.js";
import { html } from "./html.js";
import { codeIn } from "./places.js";

/** Exchange a code for a cookie. @param {string} code */
export const pairWith = (code) => pair(code, deviceName());

/** What this device is called in the list of those that may come. */
function deviceName() {
  const agent = navigator.userAgent;
  const machine = [["iPhone", "iPhone"], ["iPad", "iPad"], ["Android", "Android"], ["Mac OS", "Mac"], ["Windows", "Windows"], ["CrOS", "Chromebook"], ["Linux", "Linux"]];
  const browser = [["Edg/", "Edge"], ["Firefox", "Firefox"], ["CriOS", "Chrome"], ["Chrome", "Chrome"], ["Safari", "Safari"]];
  /** @param {string[][]} list */
  const found = (list) => list.find(([sign]) => agent.includes(sign))?.[1];
  return [found(browser), found(machine)].filter(Boolean).join(" on ") || "a browser";
}

/** @param {{problem: string, done: () => void}} props */
export function SignIn({ problem, done }) {
  const [code, setCode] = useState("");
  const [told, setTold] = useState(problem);
  const [isBusy, setBusy] = useState(false);
  /** @param {Event} event */
  const send = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await pairWith(codeIn(new URL(code, "http://x").hash) || code.trim());
      done();
    } catch (error) {
      setTold(String(/** @type {Error} */ (error).message));
    } finally {
      setBusy(false);
    }
  };
  return html`<main class="sign-in" id="main">
    <span class="emblem" aria-hidden="true"></span>
    <h1>Pair this device</h1>
    <p><code>acphold serve</code> prints an address with a code in it, and so does <code>acphold token pair</code>. Open that address here, scan its picture, or type the code.</p>
    <form onSubmit=${send}>
      <label>Code<input value=${code} autocapitalize="characters" autocomplete="one-time-code" spellcheck=${false} required onInput=${(/** @type {any} */ event) => setCode(event.target.value)} /></label>
      <button type="submit" class="main" disabled=${isBusy || !code.trim()}>Pair</button>
    </form>
    ${told && html`<p class="bad" role="alert">${told}</p>`}
  </main>`;
}
