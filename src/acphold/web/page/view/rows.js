// Sessions as rows of a list.
import { standing } from "../model/rows.js";
import { agentName, called } from "../model/text.js";
import { ago, exactly } from "../model/times.js";
import { html } from "./html.js";
import { sessionPlace } from "./places.js";

/** @typedef {import("../wire/pages.js").Row} Row */

/** @param {{row: Row | undefined}} props */
export function State({ row }) {
  const [kind, words] = standing(row);
  return html`<span class=${`state ${kind}`}>${words && html`<span class="words">${words}</span>`}</span>`;
}

/** @param {{row: Row, isCurrent?: boolean}} props */
export function RowView({ row, isCurrent = false }) {
  const [kind, words] = standing(row);
  return html`<li><a class=${`session ${kind}`} href=${sessionPlace(row.sessionId)} aria-current=${isCurrent ? "page" : undefined}>
    <span class="title">${called(row.title)}</span>
    <span class="about"><span class=${`state ${kind}`}></span>${words && html`<span class="words">${words}</span>`}<span class="agent">${agentName(row.agent)}</span>
      <time datetime=${row.updatedAt} title=${exactly(row.updatedAt)}>${ago(row.updatedAt)}</time></span>
  </a></li>`;
}
