// An edit: one column on a narrow screen, two on a wide one.
import { useEffect, useState } from "preact/hooks";
import { changes } from "../model/diffs.js";
import { line } from "../model/text.js";
import { html } from "./html.js";
import { Later } from "./later.js";
import { useSome } from "./pieces.js";

/** Lines that are drawn in one task. */
const AT_ONCE = 200;

const wide = matchMedia("(min-width: 80rem)");

/** @param {{diff: {path: string, oldText?: string | null, newText: string}, isOneColumn?: boolean}} props */
export function DiffView({ diff, isOneColumn = false }) {
  const [isWide, setWide] = useState(wide.matches);
  useEffect(() => {
    const look = () => setWide(wide.matches);
    look();  // it may have changed since it was drawn
    wide.addEventListener("change", look);
    return () => wide.removeEventListener("change", look);
  }, []);
  const { lines: all, isCut } = changes(diff);
  const lines = all.slice(0, useSome(all.length, AT_ONCE));
  return html`<figure class="diff" aria-busy=${lines.length < all.length || undefined}>
    <figcaption><span class="path">${line(diff.path, 400)}</span> <${Sum} diff=${diff} /></figcaption>
    <div class="lines" tabindex="0" role="group" aria-label=${`Changes of ${line(diff.path)}`}>
      ${isWide && !isOneColumn && diff.oldText ? html`<${Later} name="TwoColumns" lines=${lines} />` : html`<${OneColumn} lines=${lines} />`}
    </div>
    ${isCut && html`<p class="aside">There is more than fits here.</p>`}
  </figure>`;
}

/** @param {{diff: {path: string, oldText?: string | null, newText: string}}} props */
export function Sum({ diff }) {
  const { added, removed } = changes(diff);
  return html`<span class="sum">${added > 0 && html`<ins>+${added}</ins>`} ${removed > 0 && html`<del>−${removed}</del>`}</span>`;
}

const NAMES = /** @type {Record<string, string>} */ ({ "+": "added", "-": "removed", " ": "" });

/** @param {{lines: import("../model/diffs.js").Line[]}} props */
function OneColumn({ lines }) {
  return html`<table><tbody>${lines.map(
    (each) => html`<tr class=${NAMES[each.sign]}>
      <td class="number" aria-hidden="true">${each.after || each.before}</td><td class="sign">${each.sign}</td><td>${each.text || "\n"}</td>
    </tr>`,
  )}</tbody></table>`;
}
