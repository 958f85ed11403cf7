// The patch of one file, as `acphold diff` writes it, as lines to draw; and whether one that an agent
// gives says only what its diffs show: see `presentation.diffs`.
import { asText, visible } from "./text.js";

/** @typedef {import("./diffs.js").Line} Line */

/**
 * Its lines; between two hunks stands one with the sign `@`. `before` and `after` are 0 where they
 * are not known.
 * @param {string} patch @param {boolean} [hasNumbers] @returns {Line[]}
 */
export function patchLines(patch, hasNumbers = true) {
  /** @type {Line[]} */
  const lines = [];
  let [one, other] = [0, 0];
  let isInside = false;
  for (const text of patch.split("\n")) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(text);
    const sign = text[0];
    if (hunk) {
      if (isInside) lines.push({ sign: "@", text: "", before: 0, after: 0 });
      isInside = true;
      [one, other] = [Number(hunk[1]), Number(hunk[2])];
    } else if (isInside && (sign === "+" || sign === "-" || sign === " ")) {
      const number = (/** @type {number} */ at, /** @type {string} */ unless) => (hasNumbers && sign !== unless ? at : 0);
      // A carriage return at its end is one of its line end; any other would move what is around it.
      const shown = visible(text.slice(1).replace(/\r$/, "").replaceAll("\r", "\u240d"));
      lines.push({ sign, text: shown, before: number(one, "+"), after: number(other, "-") });
      if (sign !== "+") one++;
      if (sign !== "-") other++;
    }
  }
  return lines;
}

/** Most characters of a unified diff that is looked at: of a long one only a part is in sight. */
const MOST = 50_000;

/** Whether a unified diff says only what these diffs show. @param {string} patch @param {Received[]} diffs */
export function isShown(patch, diffs) {
  const files = patch.length <= MOST && /^(Index: |--- )/.test(patch) ? filesOf(patch) : [];
  const paths = new Set(files.map(({ names }) => names[0]));
  return files.length > 0 && paths.size === files.length && files.every(({ names, pieces }) => diffs.some(({ path, oldText, newText }) => names.every((name) => name === path) && isAll(pieces, split(asText(oldText)), split(asText(newText)))));
}

/** @typedef {{at: number, lines: string[]}[]} Piece  the old lines and the new ones in their place, and where they begin */

/** Whether these pieces turn the old version into the new one. @param {Piece[]} pieces @param {string[]} old @param {string[]} young */
function isAll(pieces, old, young) {
  const ends = [[0, 0], ...pieces.map((piece) => piece.map(({ at, lines }) => at + lines.length))];
  return [...pieces, [{ at: old.length, lines: [] }, { at: young.length, lines: [] }]].every((piece, number) => {
    const [one, other] = [old, young].map((all, side) => ({ gap: all.slice(ends[number][side], piece[side].at), isSame: ends[number][side] <= piece[side].at && same(all.slice(piece[side].at, piece[side].at + piece[side].lines.length), piece[side].lines) }));
    return one.isSame && other.isSame && same(one.gap, other.gap);
  });
}

/** @param {string[]} one @param {string[]} other */
const same = (one, other) => one.length === other.length && one.every((text, at) => text === other[at]);

/** @param {string} text */
const split = (text) => (text ? text.replace(/\n$/, "").split("\n") : []);

const END = "\\ No newline at end of file";

/** The names of each file and its hunks; nothing if a line has no place in a patch. @param {string} patch */
function filesOf(patch) {
  /** @type {{names: string[], pieces: Piece[]}[]} */
  const found = [];
  const lines = split(patch);
  for (let at = 0; at < lines.length; ) {
    /** @type {string[]} */
    const names = [];
    for (const begin of [/^Index: /, /^=+$/, /^--- /, /^\+\+\+ /]) {
      if (!begin.test(lines[at])) continue;
      const name = lines[at++].replace(begin, "").replace(/\t+$/, "");
      if (name) names.push(name);
    }
    if (names.length < 2) return [];
    /** @type {Piece[]} */
    const pieces = [];
    for (let hunk; (hunk = /^@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@$/.exec(lines[at])); ) {
      at++;
      const [oldAt, oldCount, newAt, newCount] = hunk.slice(1).map((number) => Number(number ?? 1));
      const [old, young] = /** @type {string[][]} */ ([[], []]);
      for (; at < lines.length && (old.length < oldCount || young.length < newCount); at++) {
        const sign = lines[at][0];
        if (!"-+ ".includes(sign || "x") && lines[at] !== END) return [];
        if (sign === "-" || sign === " ") old.push(lines[at].slice(1));
        if (sign === "+" || sign === " ") young.push(lines[at].slice(1));
      }
      if (lines[at] === END) at++;
      pieces.push([{ at: oldAt - Number(oldCount > 0), lines: old }, { at: newAt - Number(newCount > 0), lines: young }]);
    }
    found.push({ names, pieces });
  }
  return found;
}
