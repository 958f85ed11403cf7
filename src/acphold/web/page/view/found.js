// Conversations that agents left on the server's disk, offered while nothing was imported yet; and
// later those that are not current here, with the reasons.
import { useEffect, useState } from "preact/hooks";
import { agentName, counted } from "../model/text.js";
import { read } from "../wire/pages.js";
import { html } from "./html.js";

/** @typedef {{found: Record<string, number>, isAll: boolean, left: Record<string, Record<string, number>>, isRunning: boolean, problem: string | null}} Import */

/** How often an import that runs is looked at. */
const LOOK_MS = 1000;

/** Agents that are named. */
const NAMED = 3;

/** Set once somebody has said on this device that they want none. */
const DECLINED = "acphold import declined";

/** @param {Record<string, number>} numbers */
const sum = (numbers) => Object.values(numbers).reduce((one, other) => one + other, 0);

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
  const isLeft = Object.keys(told.left).length > 0;
  const numbers = isLeft ? Object.fromEntries(Object.entries(told.left).map(([name, why]) => [name, sum(why)])) : told.found;
  const names = Object.keys(numbers).sort((one, other) => numbers[other] - numbers[one]);
  const number = sum(numbers);
  if (number === 0) return null;
  const rest = names.length - NAMED;
  const why = (/** @type {string} */ name) => (isLeft ? ` (${Object.entries(told.left[name]).map(([reason, count]) => `${reason} ${count}`).join(", ")})` : "");
  const of = names.slice(0, NAMED).map((name) => agentName(name) + why(name)).join(", ") + (rest > 0 ? ` and ${counted(rest, "more agent")}` : "");
  const decline = () => {
    localStorage.setItem(DECLINED, "yes");
    setDeclined(true);
  };
  const begin = () => {
    setProblem("");
    read("/import", {}, { method: "POST" }).then(() => setBegun(begun + 1), (error) => setProblem(error.message));
  };
  const failed = problem || told.problem;
  return html`<p class="offer found" role="group" aria-label="Import"><button type="button" onClick=${begin}>Import ${told.isAll ? "" : "at least "}${counted(number, "conversation")} ${isLeft ? "not current" : "found"} here</button>
    <span>from ${of}</span><button type="button" class="quiet" onClick=${decline}>No, thanks</button>
    ${failed && html`<span role="alert">The import failed: ${failed}</span>`}</p>`;
}
