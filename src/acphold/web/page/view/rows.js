// Sessions as rows of a list.
import { standing, waits } from "../model/rows.js";
import { CUT } from "../model/tables.js";
import { agentName, called, line } from "../model/text.js";
import { ago, exactly } from "../model/times.js";
import { html } from "./html.js";
import { memo } from "./memo.js";
import { sessionPlace } from "./places.js";

/** @typedef {import("../wire/pages.js").Row} Row */

/** @param {{row: Row | undefined}} props */
export function State({ row }) {
  const [kind, words] = standing(row);
  return html`<span class=${`state ${kind}`}>${words && html`<span class="words">${words}</span>`}</span>`;
}

/** `depth` is more than 0 below its origin, and `of` what that is called where it stands elsewhere; `apart` tells it from others of its name. */
export const RowView = memo((/** @type {{row: Row, now: number, isCurrent: boolean, depth: number, of: string, apart: string}} */ { row, now, isCurrent, depth, of, apart }) => {
  const fork = depth > 0 ? "fork" : of && `fork of ${line(of, CUT.short)}`;
  const [kind, words] = standing(row);
  return html`<li class=${depth ? `fork-${Math.min(3, depth)}` : undefined}><a class=${`session ${kind}`} data-archived=${row.archived} href=${sessionPlace(row.sessionId)} aria-current=${isCurrent ? "page" : undefined}>
    <span class="title">${called(row.title)}</span>
    <span class="about"><span class=${`state ${kind}`}></span>${words && html`<span class="words">${words}</span>`}${row.queued > 0 && html`<span class="words">${waits(row)}</span>`}${row.ruled > 0 && html`<span class="words">${row.ruled} auto-allowed</span>`}${(fork || apart) && html`<span class=${depth > 0 || !fork ? "words" : "words of"}>${fork}${fork && apart && " · "}${apart}</span>`}<span class="agent">${agentName(row.agentName)}</span>
      <time datetime=${row.updatedAt} title=${exactly(row.updatedAt)}>${ago(row.updatedAt, now)}</time></span>
  </a></li>`;
});
