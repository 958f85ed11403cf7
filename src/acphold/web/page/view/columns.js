// The lines of an edit in one column, and whether there is room for two; that for two panes as well.
import { useEffect, useState } from "preact/hooks";
import { wordTable } from "../model/text.js";
import { html } from "./html.js";

const wide = matchMedia("(min-width: 80rem)");

/** Where the list and what is open stand side by side; see style/paper.css. */
export const panes = matchMedia("(min-width: 56rem)");

/** True where there is room for two columns. */
export function useWide(room = wide) {
  const [isWide, setWide] = useState(room.matches);
  useEffect(() => {
    const look = () => setWide(room.matches);
    look();  // it may have changed since it was drawn
    room.addEventListener("change", look);
    return () => room.removeEventListener("change", look);
  }, []);
  return isWide;
}

/** Classes of lines, by their signs. */
export const NAMES = wordTable({ "+": "added", "-": "removed", "@": "skipped" });

/** @param {{lines: import("../model/diffs.js").Line[]}} props */
export function OneColumn({ lines }) {
  return html`<table><tbody>${lines.map(
    (each) => html`<tr class=${NAMES[each.sign]}>
      <td class="number" aria-hidden="true">${each.after || each.before || ""}</td><td class="sign">${each.sign === "@" ? "" : each.sign}</td><td>${each.text || "\n"}</td>
    </tr>`,
  )}</tbody></table>`;
}
