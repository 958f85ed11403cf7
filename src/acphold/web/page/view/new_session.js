// A new session: with which agent, in which folder.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { go, sessionPlace } from "./places.js";

/** @param {{desk: import("../model/desk.js").Desk}} props */
export function NewSession({ desk }) {
  const agents = desk.server.agents.value;
  const folders = [...new Set(desk.listed.value.map((row) => row.cwd))].slice(0, 30);
  const [agent, setAgent] = useState("");
  const [cwd, setCwd] = useState("");
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  /** @param {Event} event */
  const begin = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const session = await desk.begin(agent || agents[0], cwd || folders[0]);
      go(sessionPlace(session.id));
    } catch (error) {
      setProblem(String(/** @type {Error} */ (error).message));
      setBusy(false);
    }
  };
  return html`<main class="plain" id="main" tabindex="-1">
    <header class="bar"><a class="back" href="#/" aria-label="All sessions"></a><h1>New session</h1></header>
    <form onSubmit=${begin}>
      <label>Agent<select value=${agent || agents[0]} onChange=${(/** @type {On<HTMLInputElement>} */ event) => setAgent(event.target.value)}>${agents.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      <label>Folder on the server<input list="folders" value=${cwd} placeholder=${folders[0] ?? "/home/you/project"} required=${folders.length === 0} pattern="/.*" title="An absolute path" onInput=${(/** @type {On<HTMLInputElement>} */ event) => setCwd(event.target.value)} /></label>
      <datalist id="folders">${folders.map((each) => html`<option value=${each}></option>`)}</datalist>
      <button type="submit" class="main" disabled=${isBusy || !desk.server.isHere}>${isBusy ? "Starting the agent…" : "Begin"}</button>
    </form>
    ${problem && html`<p class="bad" role="alert">${problem}</p>`}
  </main>`;
}
