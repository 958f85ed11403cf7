// A question of an agent, drawn outside of the conversation: with a frame that no text can draw,
// and with controls that are never where a text of an agent is.
import { callOf, shown } from "../model/permission.js";
import { line } from "../model/text.js";
import { html } from "./html.js";
import { Later } from "./later.js";
import { Long } from "./long.js";
import { Arguments, Produced } from "./tool_call.js";

/** @typedef {import("../model/session.js").Asked} Asked */

/**
 * @param {{asked: {method: string, params: any, state?: string}, call?: any, shows?: import("../model/permission.js").Shows, who: string, answer?: (result: object) => void, later?: () => void}} props
 *   `shows` is what the server says of it, once that is there; `answer` is left out while it cannot be answered from here
 */
export function QuestionView({ asked, call, shows, who, answer, later }) {
  const { method, params } = asked;
  const isBusy = asked.state === "answering";
  return html`<section class="question" aria-label=${`${who} asks: ${line(params.toolCall?.title ?? call?.title ?? params.message, 80)}`} aria-busy=${isBusy}>
    <header><span class="lamp" aria-hidden="true"></span><h2>${who} asks</h2>${later && html`<button type="button" class="quiet" onClick=${later} disabled=${isBusy}>Later</button>`}</header>
    ${method === "session/request_permission"
      ? html`<${Permission} params=${params} call=${call} shows=${shows} answer=${answer} isBusy=${isBusy} />`
      : html`<${Later} name=${params.mode === "url" ? "PageView" : "FormView"} params=${params} answer=${answer} isBusy=${isBusy} />`}
    ${isBusy ? html`<p class="aside" role="status">Sending your answer…</p>` : !answer && html`<p class="aside" role="status">You can answer when the connection is back.</p>`}
  </section>`;
}

/** @param {{params: any, call?: any, shows?: import("../model/permission.js").Shows, answer?: (result: object) => void, isBusy: boolean}} props */
function Permission({ params, call, shows, answer, isBusy }) {
  const tool = callOf(params, call);
  const { title, arguments: given, options } = shows ?? shown(params, tool);
  const produced = (Array.isArray(tool.content) ? tool.content : []).filter((/** @type {any} */ each) => each);
  const allow = options.filter((each) => !each.kind.startsWith("reject"));
  const reject = options.filter((each) => each.kind.startsWith("reject"));
  // Our words first: what an agent calls its answer may say the opposite.
  /** @param {import("../model/permission.js").Offer} each */
  const button = ({ optionId, kind, words, name }) => html`<button type="button" class=${kind === "allow_once" ? "main" : ""} disabled=${isBusy || !answer}
    onClick=${() => answer?.({ outcome: { outcome: "selected", optionId } })}><span><b>${line(words, 60)}:</b> ${line(name, 120) || "(no name)"}</span></button>`;
  return html`<div class="what">
      <p class=${given.length === 0 ? "asks command" : "asks"}><${Long} text=${title || "A tool call"} /></p>
      <${Arguments} given=${given} />
      ${produced.map((/** @type {any} */ each) => html`<${Produced} content=${each} />`)}
    </div>
    <div class="options"><div class="allow">${allow.map(button)}</div><div class="reject">${reject.map(button)}</div></div>`;
}
