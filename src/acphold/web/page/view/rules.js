// All standing answers of the person, with what each allows; and the switch for all of them.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { CUT } from "../model/tables.js";
import { agentName, counted, line, pathLine } from "../model/text.js";
import { exactly, moment } from "../model/times.js";
import { device } from "../wire/device.js";
import { read } from "../wire/pages.js";
import { coded } from "./coded.js";
import { html } from "./html.js";
import { changeRule, day } from "./rule.js";

/** @typedef {import("./rule.js").Rule} Rule */

/** Rules that were made elsewhere, and that nobody has looked at yet on another device: any program could have made them. @type {import("@preact/signals").Signal<Rule[]>} */
const unseen = signal([]);

/** Whether it was made on this device. @param {Rule} rule */
const isOwn = (rule) => rule.madeWith.endsWith(`(${device()?.id})`);

export function Rules() {
  const [rules, setRules] = useState(/** @type {Rule[] | null} */ (null));
  const [problem, setProblem] = useState("");
  const [status, setStatus] = useState("");
  const [isBusy, setBusy] = useState(false);
  const title = useRef(/** @type {HTMLElement | null} */ (null));
  const scopes = device()?.scopes ?? [];
  const mayRevoke = scopes.includes("answer");
  useEffect(() => {
    read("/rules").then(
      (found) => {
        setRules(found.rules);
        unseen.value = [];
        const shown = found.rules.filter((/** @type {Rule} */ each) => each.isNew && !isOwn(each));
        if (shown.length > 0 && mayRevoke) void changeRule("POST", "/rules/seen", { numbers: shown.map((/** @type {Rule} */ each) => each.number) }).catch(() => {});
      },
      (error) => setProblem(error.message),
    );
  }, []);
  /** @param {() => Promise<unknown>} what */
  const act = async (what) => {
    setBusy(true);
    setProblem("");
    await what().catch((error) => setProblem(error.message));
    setBusy(false);
  };
  const answering = (rules ?? []).filter((each) => !each.asks && !each.isOver);  // those that ask do so while rules are off, too
  const isOff = answering.length > 0 && answering.every((each) => each.isOff || each.waits);
  const waiting = answering.filter((each) => each.waits);
  /** @param {"on" | "off"} state  "on" accepts those that wait, too */
  const turn = (state) =>
    act(async () => {
      setRules(await changeRule("POST", `/rules/${state}`));
      setStatus(state === "on" ? "Rules are on." : "Rules are off. Agents ask you every question.");
    });
  /** @param {Rule} rule */
  const remove = (rule) =>
    act(async () => {
      await changeRule("DELETE", `/rules/${rule.number}`);
      setRules((was) => (was ?? []).filter((each) => each !== rule));
      setStatus(`Rule ${rule.number} revoked.`);
      title.current?.focus();
    });
  return html`<main class="plain rules" id="main" tabindex="-1">
    <header class="bar"><a class="back" href="#/" aria-label="All sessions"></a><h1 ref=${title} tabindex="-1">Rules</h1></header>
    <p class="aside">Rules allow matching requests for you, one at a time. If acphold is unsure, it asks you.</p>
    ${problem && html`<p class="bad" role="alert">${line(problem, CUT.words)}</p>`}
    <p class="away" role="status">${status}</p>
    ${rules && rules.length > 0 && html`<label class="check"><input type="checkbox" role="switch" checked=${!isOff} disabled=${isBusy || !(isOff ? scopes.includes("rules") : mayRevoke)} onChange=${() => turn(isOff ? "on" : "off")} />${isOff ? "Rules are off" : "Rules are on"}</label>`}
    ${waiting.length > 0 && html`<p class="offer"><span>${counted(waiting.length, "rule")} made in another journal or on another machine ${waiting.length > 1 ? "wait" : "waits"} until you accept ${waiting.length > 1 ? "them" : "it"} here.</span> <button type="button" disabled=${isBusy || !scopes.includes("rules")} onClick=${() => turn("on")}>Use here</button></p>`}
    ${rules?.length === 0 && html`<p class="empty">No rules. When you allow a command once, the page offers to allow it from now on.</p>`}
    <ul class="rule-list">${(rules ?? []).map((rule) => html`<li key=${rule.number} class=${(rule.isOff && !rule.asks) || rule.waits || rule.isOver ? "off" : ""}>
      <h2><span class="aside">${rule.number}</span> ${coded(line(rule.words, CUT.long))}${[rule.isNew && "new", rule.isOver && "ended", rule.isOff && !rule.asks && "off", rule.waits && "waits", rule.watches && "only watches"].map((mark) => mark && html` <span class="mark-of">${mark}</span>`)}</h2>
      <p><code>${line(rule.text, CUT.long)}</code>: ${coded(line(rule.meaning, CUT.long))}</p>
      <p class="aside">${rule.folder ? `in ${pathLine(rule.folder)}` : "everywhere"} · ${rule.agent ? agentName(rule.agent) : "every agent"} · ${rule.sessionId ? "one session" : rule.expiresAt ? `until ${day(rule.expiresAt)}` : "until revoked"} · ${rule.uses > 0 ? html`used ${counted(rule.uses, "time")}, last <time datetime=${rule.usedAt} title=${exactly(rule.usedAt ?? 0)}>${moment(rule.usedAt ?? 0)}</time>` : "never used"}</p>
      <p class="aside">made <time datetime=${rule.madeAt} title=${exactly(rule.madeAt)}>${day(rule.madeAt)}</time>${rule.madeWith && ` with ${isOwn(rule) ? "this device" : line(rule.madeWith.replace(/ \([0-9a-f]+\)$/, ""), CUT.name)}`}</p>
      ${(rule.asks ? scopes.includes("rules") : mayRevoke) && html`<button type="button" class="bad" disabled=${isBusy} aria-label=${`Revoke rule ${rule.number}`} onClick=${() => remove(rule)}>Revoke</button>`}
    </li>`)}</ul>
    <p class="aside">Rules cannot stop an agent that does not ask, or that lies. A rule that allows tests runs code from the folder: anyone who can edit files there can run anything with it.</p>
  </main>`;
}

/** Tells of new rules. @param {{isOnline: boolean}} props */
export function NewRules({ isOnline }) {
  useEffect(() => {
    if (isOnline) read("/rules").then((told) => void (unseen.value = told.rules.filter((/** @type {Rule} */ each) => each.isNew && !isOwn(each))), () => {});
  }, [isOnline]);
  const rules = unseen.value;
  if (rules.length === 0) return null;
  return html`<p class="offer" role="status"><span>${rules.length > 1 ? `${rules.length} new rules were made elsewhere.` : html`A new rule was made elsewhere: <code>${line(rules[0].text, CUT.brief)}</code>`}</span> <a class="button" href="#/rules">Review ${rules.length > 1 ? "them" : "it"}</a></p>`;
}
