// What an edit changed, as hunks of lines.
import { SHOWN } from "./tables.js";
import { structuredPatch } from "diff";
import { asText, visible } from "./text.js";

/** @typedef {{sign: "+" | "-" | " " | "@", text: string, before: number, after: number}} Line */
/** @typedef {{lines: Line[], added: number, removed: number, isCut: boolean}} Changes */

const MOST_LINES = SHOWN.diffLines;
const MOST_CHARACTERS = 1_000_000;
const AROUND = 3;

/** @type {WeakMap<object, Changes>} */
const known = new WeakMap();

/** Of a `diff` of a tool call. @param {{path: string, oldText?: string | null, newText: string}} diff @returns {Changes} */
export function changes(diff) {
  let found = known.get(diff);
  if (!found) known.set(diff, (found = compared(asText(diff.oldText), asText(diff.newText))));
  return found;
}

/** Only the part that differs is looked at letter by letter, with a few lines around it. @param {string} before @param {string} after */
function compared(before, after) {
  const shorter = Math.min(before.length, after.length);
  let start = alike(shorter, (at, size) => before.startsWith(after.slice(at, at + size), at));
  const end = alike(shorter - start, (at, size) => before.endsWith(after.slice(after.length - at - size, after.length - at), before.length - at));
  for (let line = 0; line <= AROUND; line++) start = start > 0 ? before.lastIndexOf("\n", start - 1) : -1;
  start++;
  let ends = before.length - end;
  for (let line = 0; line <= AROUND; line++) ends = before.indexOf("\n", ends) + 1 || before.length;
  const parts = [before.slice(start, ends), after.slice(start, after.length - (before.length - ends))];
  const at = lineEnds(before.slice(0, start));
  if (parts[0].length + parts[1].length > MOST_CHARACTERS) return apart(parts[0], parts[1], at);
  return hunks(visible(parts[0]), visible(parts[1]), at);
}

/** How many characters are the same, compared in pieces. @param {number} most @param {(at: number, size: number) => boolean} same */
function alike(most, same) {
  let at = 0;
  for (let size = 1 << 16; size >= 1; size >>= 2) while (at + size <= most && same(at, size)) at += size;
  return at;
}

/** @param {string} text */
const lineEnds = (text) => {
  let count = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) count++;
  return count;
};

/** Two texts without a comparison, cut. @param {string} before @param {string} after @param {number} at @returns {Changes} */
function apart(before, after, at) {
  const [removed, added] = [before, after].map((text) => lineEnds(text) + (text === "" || text.endsWith("\n") ? 0 : 1));
  /** @param {string} text */
  const first = (text) => visible(text.slice(0, MOST_CHARACTERS)).split("\n", MOST_LINES / 2);
  /** @type {Line[]} */
  const lines = [
    ...first(before).map((text, place) => ({ sign: /** @type {const} */ ("-"), text, before: at + place + 1, after: 0 })),
    ...first(after).map((text, place) => ({ sign: /** @type {const} */ ("+"), text, before: 0, after: at + place + 1 })),
  ];
  return { lines, added, removed, isCut: added + removed > lines.length };
}

/** @param {string} before @param {string} after @param {number} at lines before both @returns {Changes} */
function hunks(before, after, at) {
  // Where two texts have little in common, comparing them takes long and says nothing.
  const patch = structuredPatch("", "", before, after, "", "", { context: AROUND, timeout: 100 });
  if (!patch) return apart(before, after, at);
  /** @type {Line[]} */
  const lines = [];
  let added = 0;
  let removed = 0;
  for (const hunk of patch.hunks) {
    let [one, other] = [at + hunk.oldStart, at + hunk.newStart];
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
