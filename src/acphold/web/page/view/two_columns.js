// An edit where there is room for two columns: what was, and what is.
import { NAMES } from "./columns.js";
import { html } from "./html.js";

/** @typedef {import("../model/diffs.js").Line} Line */

/** @param {{lines: Line[]}} props */
export function TwoColumns({ lines }) {
  /** @param {Line | null} side @param {"before" | "after"} which */
  const half = (side, which) => html`<td class="number" aria-hidden="true">${side?.[which] || ""}</td>
    <td class=${`half ${side ? NAMES[side.sign] : "none"}`}>${side?.text || "\n"}</td>`;
  return html`<table class="two"><tbody>${sideBySide(lines).map(
    ([before, after]) => html`<tr>${half(before, "before")}${half(after, "after")}</tr>`,
  )}</tbody></table>`;
}

/** Its lines as rows. @param {Line[]} lines @returns {[Line | null, Line | null][]} */
function sideBySide(lines) {
  /** @type {[Line | null, Line | null][]} */
  const rows = [];
  /** @type {Line[]} */
  let gone = [];
  const flush = () => {
    for (const line of gone) rows.push([line, null]);
    gone = [];
  };
  for (const line of lines) {
    if (line.sign === "-") gone.push(line);
    else if (line.sign === "+") rows.push([gone.shift() ?? null, line]);
    else {
      flush();
      rows.push([line, line]);
    }
  }
  flush();
  return rows;
}
