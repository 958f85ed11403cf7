// The patch of one file, as `acphold diff` writes it, as lines to draw.
import { visible } from "./text.js";

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
