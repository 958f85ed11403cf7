// Where there is nothing to be shown: what a person can do about that.
import { wordTable } from "../model/text.js";
import { html } from "./html.js";

const NONE = wordTable({ live: "No agent has a session open.", waiting: "Nothing is waiting for you.", unseen: "Nothing has finished since you last looked." });

/** No session in the list; what to do about it, or the `hits` of a search, may stand beside it. @param {{filter: string, hits: number | null, isSearch: boolean, isOnly: boolean, isBesideNews: boolean}} props */
export function Empty({ filter, hits, isSearch, isOnly, isBesideNews }) {
  if (isSearch && hits !== 0) return hits && isBesideNews && !filter && html`<p class="empty aside">No title has all of these words.</p>`;
  if (isSearch) return html`<p class="empty">No ${filter === "archived" ? "archived " : ""}session matches by title, agent or folder.</p>`;
  if (isOnly) return html`<p class="empty">No ${filter === "archived" ? "archived " : ""}session matches the filters above.</p>`;
  if (filter === "archived") return html`<p class="empty">No archived sessions. To archive one, use its menu, or swipe it to the left on a touch screen.</p>`;
  if (filter) return html`<p class="empty">${NONE[filter]} Choose “All” to see every session.</p>`;
  if (isBesideNews) return html`<p class="empty">No sessions yet.</p>`;
  return html`<div class="empty"><p>No sessions yet. <a href="#/new">Start one here</a>, or on the server:</p>
    <ul><li><code>acphold setup</code> connects your editor’s agents</li><li><code>acphold import</code> imports your agents’ earlier conversations</li></ul></div>`;
}

/** A conversation in which nothing was said. */
export const EmptyConversation = () => html`<p class="empty">No messages yet. Write to the agent below; type <code>/</code> for its commands, <code>@</code> for files.</p>`;
