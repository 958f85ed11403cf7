// What an edit changed, as hunks of lines.
import { SHOWN } from "./tables.js";
import { structuredPatch } from "diff";
import { visible } from "./text.js";

/** @typedef {{sign: "+" | "-" | " " | "@", text: string, before: number, after: number}} Line */
/** @typedef {{lines: Line[], added: number, removed: number, isCut: boolean}} Changes */

const MOST_LINES = SHOWN.diffLines;

/** @type {WeakMap<object, Changes>} */
const known = new WeakMap();

/** Of a `diff` of a tool call. @param {{path: string, oldText?: string | null, newText: string}} diff @returns {Changes} */
export function changes(diff) {
  let found = known.get(diff);
  if (!found) known.set(diff, (found = compared(visible(diff.oldText ?? ""), visible(diff.newText ?? ""))));
  return found;
}

/** @param {string} before @param {string} after @returns {Changes} */
function compared(before, after) {
  // Where two texts have little in common, comparing them takes long and says nothing.
  const patch = structuredPatch("", "", before, after, "", "", { context: 3, timeout: 100 });
  /** @type {Line[]} */
  const lines = [];
  let added = 0;
  let removed = 0;
  if (!patch) {
    const old = before.split("\n");
    const young = after.split("\n");
    [removed, added] = [old.length, young.length];
    old.slice(0, MOST_LINES / 2).forEach((text, at) => lines.push({ sign: "-", text, before: at + 1, after: 0 }));
    young.slice(0, MOST_LINES / 2).forEach((text, at) => lines.push({ sign: "+", text, before: 0, after: at + 1 }));
    return { lines, added, removed, isCut: old.length + young.length > lines.length };
  }
  for (const hunk of patch.hunks) {
    let [one, other] = [hunk.oldStart, hunk.newStart];
    for (const text of hunk.lines) {
      const sign = text[0];
      if (sign === "+") added++;
      else if (sign === "-") removed++;
      else if (sign !== " ") continue;  // "\ No newline at end of file"
      if (lines.length < MOST_LINES) lines.push({ sign, text: text.slice(1), before: sign === "+" ? 0 : one, after: sign === "-" ? 0 : other });
      if (sign !== "+") one++;
      if (sign !== "-") other++;
    }
  }
  return { lines, added, removed, isCut: added + removed > lines.length };
}
