// What came of a question, in the conversation. An open one is asked outside of it.
import { useState } from "preact/hooks";
import { HOW, inClient } from "../model/decisions.js";
import { CUT } from "../model/tables.js";
import { line, sentence } from "../model/text.js";
import { device } from "../wire/device.js";
import { coded, words } from "./coded.js";
import { html } from "./html.js";
import { UndoRule } from "./rule.js";

/** `isBelow` the call that it is about, which need not be said again. @param {{item: import("../model/timeline.js").Question, version: number, isBelow?: boolean}} props */
export function DecisionView({ item, isBelow = false }) {
  const { answer, params } = item;
  const asked = isBelow ? "" : line(params.toolCall?.title ?? params.message ?? "", CUT.title);
  const shown = asked && params.toolCall?.kind === "execute" && !asked.includes("`") ? html`<code>${words(asked)}</code>` : coded(asked);
  if (!answer) return html`<p class="decision open"><b>Asks</b> ${asked ? shown : "for permission"}</p>`;
  const chosen = answer.result?.outcome?.optionId;
  const option = params.options?.find((/** @type {Received} */ each) => each.optionId === chosen);
  const how = HOW[option?.kind ?? answer.result?.action ?? answer.outcome] ?? (chosen === undefined ? line(answer.outcome) : "Answered");
  const isStopped = answer.outcome === "cancelled";
  const isRefusal = /^reject|decline|cancel/.test(option?.kind ?? answer.result?.action ?? answer.outcome ?? "");
  return html`<p class=${`decision ${isRefusal ? "refused" : ""}`}><b>${sentence(how)}${isStopped && asked ? ":" : ""}</b> ${option && !HOW[option.kind] ? line(option.name) : ""} ${shown}${isStopped && " (stopped)"} ${answer.rule ? html`<${ByRules} rule=${answer.rule} />` : answer.client?.name && html`<span>${inClient(answer.client.name)}</span>`}</p>`;
}

/** The rules that gave an answer, for the person whose they are: to others they say nothing. @param {{rule: Received}} props */
function ByRules({ rule: { numbers, user } }) {
  const [ended, setEnded] = useState(/** @type {number[]} */ ([]));
  const known = device();
  if (user !== (known?.user ?? "") || !Array.isArray(numbers)) return null;
  const own = numbers.filter(Number.isInteger);
  return html`<span class="by-rules">by your <a href="#/rules">${own.length > 1 ? "rules" : "rule"} ${own.join(" and ")}</a>${own.map((number) => {
    if (ended.includes(number)) return html` <span role="status">· ${own.length > 1 ? number : ""} revoked</span>`;
    return known?.scopes.includes("answer") && html` <${UndoRule} number=${number} isOne=${own.length === 1} done=${() => setEnded((was) => [...was, number])} />`;
  })}</span>`;
}
