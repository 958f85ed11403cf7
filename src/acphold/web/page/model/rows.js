// How sessions stand, and in what order they are listed.
import { baseName } from "./text.js";

/** @typedef {import("../wire/pages.js").Row} Row */

const OUTCOMES = /** @type {Record<string, string>} */ ({ limited: "ended at a limit", refused: "refused", failed: "failed", interrupted: "broke off" });

/** How a session stands, for its colour and in words: a colour alone says nothing to who cannot see it. @param {Row | undefined} row @returns {[string, string]} */
export function standing(row) {
  const state = row?.live?.state;
  if (state === "waiting") return ["waiting", "waits for you"];
  if (state === "running") return ["running", "works"];
  const ended = OUTCOMES[row?.outcome ?? ""];
  if (ended) return [row?.unseen ? "unseen failed" : "failed", ended];
  if (row?.unseen) return ["unseen", "done since you looked"];
  return state === "live" ? ["live", "open"] : ["rest", ""];
}

/** By project, the one with something live first, then the one that changed last. @param {Row[]} rows @returns {{cwd: string, name: string, rows: Row[]}[]} */
export function byProject(rows) {
  /** @type {Map<string, Row[]>} */
  const groups = new Map();
  for (const row of rows) groups.set(row.cwd, [...(groups.get(row.cwd) ?? []), row]);
  const order = ["waiting", "running", "unseen", "live", "failed", "rest"];
  /** @param {Row} row */
  const rank = (row) => Math.min(3, order.indexOf(standing(row)[0].split(" ")[0]));
  const sorted = [...groups].map(([cwd, its]) => ({ cwd, name: baseName(cwd), rows: its.toSorted((a, b) => rank(a) - rank(b)) }));
  return sorted.toSorted((a, b) => rank(a.rows[0]) - rank(b.rows[0]));
}
