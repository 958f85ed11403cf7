// An edit: one column on a narrow screen, two on a wide one.
import { changes } from "../model/diffs.js";
import { pathLine } from "../model/text.js";
import { OneColumn, useWide } from "./columns.js";
import { html } from "./html.js";
import { useSome } from "./pieces.js";
import { TwoColumns } from "./two_columns.js";

/** Lines that are drawn in one task. */
const AT_ONCE = 200;

/** @param {{diff: {path: string, oldText?: string | null, newText: string}}} props */
export function DiffView({ diff }) {
  const isWide = useWide();
  const { lines: all, isCut } = changes(diff);
  const lines = all.slice(0, useSome(all.length, AT_ONCE));
  return html`<figure class="diff" aria-busy=${lines.length < all.length || undefined}>
    <figcaption><span class="path">${pathLine(diff.path)}</span> <${Sum} diff=${diff} /></figcaption>
    ${all.length > 0 && html`<div class="lines" tabindex="0" role="group" aria-label=${`Changes in ${pathLine(diff.path)}`}>
      ${isWide && diff.oldText ? html`<${TwoColumns} lines=${lines} />` : html`<${OneColumn} lines=${lines} />`}
    </div>`}
    ${isCut && html`<p class="aside">The rest of this change is too long to show.</p>`}
  </figure>`;
}

/** How many lines it adds and removes, or that it does neither: see `presentation.diffs`. @param {{diff: {path: string, oldText?: string | null, newText: string}}} props */
export function Sum({ diff }) {
  const { added, removed } = changes(diff);
  const { oldText, newText } = diff;
  if (added + removed === 0) return html`<span class="sum aside">${!oldText && !newText ? "empty" : oldText === newText ? "no change" : "only line ends change"}</span>`;
  return html`<span class="sum">${added > 0 && html`<ins>+${added}</ins>`} ${removed > 0 && html`<del>−${removed}</del>`}</span>`;
}
