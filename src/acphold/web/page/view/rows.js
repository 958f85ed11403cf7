// Sessions as rows of a list.
import { isFork, lastWords, standing, waits } from "../model/rows.js";
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

/** `depth` is more than 0 below its origin, of which it is the fork with this `number`. `choose` while rows are chosen: then `isChosen` says if it is. */
export const RowView = memo((/** @type {{row: Row, now: number, isCurrent: boolean, depth: number, number: number, isChosen?: boolean, choose?: (row: Row, isRange: boolean) => void}} */ { row, now, isCurrent, depth, number, isChosen, choose }) => {
  const [kind, words] = standing(row);
  const inside = html`
    <span class="title">${called(row.title)}</span>
    <span class="about"><span class=${`state ${kind}`}></span>${words && html`<span class="words">${words}</span>`}${row.queued > 0 && html`<span class="words">${waits(row)}</span>`}${row.ruled > 0 && html`<span class="words">${row.ruled} auto-allowed</span>`}${(depth > 0 || isFork(row)) && html`<span class="words">fork${number > 0 && ` ${number}`}</span>`}${row.tags?.length ? html`<span class="tags">${row.tags.map((each) => `#${line(each, CUT.short)}`).join(" ")}</span>` : ""}<span class="last">${lastWords(row)}</span><span class="agent">${agentName(row.agentName)}</span>
      <time datetime=${row.updatedAt} title=${exactly(row.updatedAt)}>${ago(row.updatedAt, now)}</time></span>`;
  return html`<li class=${depth ? `fork-${Math.min(3, depth)}` : undefined}>${choose
    ? html`<label class=${`session ${kind}`} data-id=${row.sessionId}><input type="checkbox" checked=${isChosen} onClick=${(/** @type {MouseEvent} */ event) => choose(row, event.shiftKey)} />${inside}</label>`
    : html`<a class=${`session ${kind}`} data-archived=${row.archived} href=${sessionPlace(row.sessionId)} aria-current=${isCurrent ? "page" : undefined}>${inside}</a>`}</li>`;
});
