// Sessions as rows of a list.
import { agentName, baseName, called } from "../model/text.js";
import { ago, exactly } from "../model/times.js";
import { html } from "./html.js";
import { sessionPlace } from "./places.js";

/** @typedef {import("../wire/pages.js").Row} Row */

const OUTCOMES = /** @type {Record<string, string>} */ ({ limited: "ended at a limit", refused: "refused", failed: "failed", interrupted: "broke off" });

/** How a session stands, in one word: a colour alone says nothing to who cannot see it. @param {Row | undefined} row @returns {[string, string]} */
export function standing(row) {
  const state = row?.live?.state;
  if (state === "waiting") return ["waiting", "waits for you"];
  if (state === "running") return ["running", "works"];
  if (row?.unseen) return ["unseen", OUTCOMES[row.outcome ?? ""] ?? "done since you looked"];
  if (row?.outcome && OUTCOMES[row.outcome]) return ["failed", OUTCOMES[row.outcome]];
  return state === "live" ? ["live", "open"] : ["rest", ""];
}

/** @param {{row: Row | undefined}} props */
export function State({ row }) {
  const [kind, words] = standing(row);
  return html`<span class=${`state ${kind}`}>${words && html`<span class="words">${words}</span>`}</span>`;
}

/** @param {{row: Row, isCurrent?: boolean}} props */
export function RowView({ row, isCurrent = false }) {
  const [kind, words] = standing(row);
  return html`<li><a class=${`session ${kind}`} href=${sessionPlace(row.sessionId)} aria-current=${isCurrent ? "page" : undefined}>
    <span class="title">${called(row.title)}</span>
    <span class="about"><span class=${`state ${kind}`}></span>${words && html`<span class="words">${words}</span>`}<span class="agent">${agentName(row.agent)}</span>
      <time datetime=${row.updatedAt} title=${exactly(row.updatedAt)}>${ago(row.updatedAt)}</time></span>
  </a></li>`;
}

/** By project, the one with something live first, then the one that changed last. @param {Row[]} rows @returns {{cwd: string, name: string, rows: Row[]}[]} */
export function byProject(rows) {
  /** @type {Map<string, Row[]>} */
  const groups = new Map();
  for (const row of rows) groups.set(row.cwd, [...(groups.get(row.cwd) ?? []), row]);
  const order = ["waiting", "running", "unseen", "live", "failed", "rest"];
  /** @param {Row} row */
  const rank = (row) => Math.min(3, order.indexOf(standing(row)[0]));
  const sorted = [...groups].map(([cwd, its]) => ({ cwd, name: baseName(cwd), rows: its.toSorted((a, b) => rank(a) - rank(b)) }));
  return sorted.toSorted((a, b) => rank(a.rows[0]) - rank(b.rows[0]));
}
