// Conversations that agents left on the server's disk, offered while nothing was imported yet.
import { useEffect, useState } from "preact/hooks";
import { agentName, counted } from "../model/text.js";
import { read } from "../wire/pages.js";
import { html } from "./html.js";

/** @typedef {{found: Record<string, number>, isAll: boolean, isRunning: boolean, problem: string | null}} Import */

/** How often an import that runs is looked at. */
const LOOK_MS = 1000;

/** Agents that are named. */
const NAMED = 3;

/** Set once somebody has said on this device that they want none. */
const DECLINED = "acphold import declined";

/** @param {{isOnline: boolean}} props */
export function Found({ isOnline }) {
  const [isDeclined, setDeclined] = useState(Boolean(localStorage.getItem(DECLINED)));
  const [begun, setBegun] = useState(0);
  const [told, setTold] = useState(/** @type {Import | null} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (!isOnline || isDeclined) return undefined;
    let isWanted = true;
    let pause = 0;
    const look = () =>
      void read("/import").then(
        (now) => {
          if (!isWanted) return;
          setTold(now);
          if (now.isRunning) pause = setTimeout(look, LOOK_MS);
        },
        () => {},
      );
    look();
    return () => (clearTimeout(pause), void (isWanted = false));
  }, [isOnline, isDeclined, begun]);
  if (isDeclined || !told) return null;
  if (told.isRunning) return html`<p class="offer found" role="status">Importing conversations…</p>`;
  const names = Object.keys(told.found).sort((one, other) => told.found[other] - told.found[one]);
  const number = names.reduce((sum, name) => sum + told.found[name], 0);
  if (number === 0) return null;
  const rest = names.length - NAMED;
  const of = names.slice(0, NAMED).map(agentName).join(", ") + (rest > 0 ? ` and ${counted(rest, "more agent")}` : "");
  const decline = () => {
    localStorage.setItem(DECLINED, "yes");
    setDeclined(true);
  };
  const begin = () => {
    setProblem("");
    read("/import", {}, { method: "POST" }).then(() => setBegun(begun + 1), (error) => setProblem(error.message));
  };
  const failed = problem || told.problem;
  return html`<p class="offer found" role="group" aria-label="Import"><button type="button" onClick=${begin}>Import ${told.isAll ? "" : "at least "}${counted(number, "conversation")} found here</button>
    <span>from ${of}</span><button type="button" class="quiet" onClick=${decline}>No, thanks</button>
    ${failed && html`<span role="alert">The import failed: ${failed}</span>`}</p>`;
}
