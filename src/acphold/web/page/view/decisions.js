// What was decided, and by whom: the history of the inbox.
import { useEffect, useState } from "preact/hooks";
import { HOW, inClient } from "../model/decisions.js";
import { CUT } from "../model/tables.js";
import { called, line, sentence } from "../model/text.js";
import { exactly, moment } from "../model/times.js";
import { read } from "../wire/pages.js";
import { coded } from "./coded.js";
import { html } from "./html.js";
import { sessionPlace } from "./places.js";

export function Decisions() {
  const [found, setFound] = useState(/** @type {Received[] | null} */ (null));
  const [cursor, setCursor] = useState("");
  const [problem, setProblem] = useState("");
  /** @param {string} [from] */
  const more = (from) =>
    read("/inbox/history", { cursor: from }).then(
      (page) => (setFound((was) => [...(from ? (was ?? []) : []), ...page.decisions]), setCursor(page.nextCursor ?? "")),
      (error) => setProblem(error.message),
    );
  useEffect(() => void more(), []);
  return html`<main class="plain decisions" id="main" tabindex="-1">
    <header class="bar"><a class="back" href="#/" aria-label="All sessions"></a><h1>Decisions</h1></header>
    ${problem && html`<p class="empty" role="alert">${problem}</p>`}
    ${found?.length === 0 && html`<p class="empty">No questions yet. When an agent asks whether it may, its question and your answer stand here.</p>`}
    <ul>${(found ?? []).map((each) => html`<li key=${each.id}><a class="session" href=${sessionPlace(each.sessionId, each.seq)}>
      <span class="title"><b>${sentence(HOW[each.how] ?? line(each.how, CUT.name))}${each.how === "cancelled" ? ":" : ""}</b> ${coded(line(each.asks.replaceAll(`${each.cwd}/`, ""), CUT.title))}${each.how === "cancelled" && " (stopped)"}</span>
      <span class="about"><span>${called(each.title)}${each.client ? ` · ${each.rules?.length ? `by ${line(each.client, CUT.short)}` : inClient(each.client)}` : ""}</span><time datetime=${each.answeredAt} title=${exactly(each.answeredAt)}>${moment(each.answeredAt)}</time></span></a></li>`)}</ul>
    ${cursor && html`<button type="button" onClick=${() => more(cursor)}>Show more</button>`}
  </main>`;
}
