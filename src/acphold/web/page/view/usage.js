// What agents reported, as a picture: by day, by agent, by model, by project.
import { useEffect, useState } from "preact/hooks";
import { CUT } from "../model/tables.js";
import { baseName, counted, line } from "../model/text.js";
import { dayOf } from "../model/times.js";
import { bars, share } from "../model/usage.js";
import { read } from "../wire/pages.js";
import { html } from "./html.js";

/** @typedef {{day?: string, agent?: string, agentName?: string, model?: string | null, folder?: string, sessions: number, totalTokens: number | null, cost: Record<string, number> | null}} Sum */

const DAYS = 30;
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });

export function Usage() {
  const [sums, setSums] = useState(/** @type {Record<string, Sum[]> | null} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const since = new Date(Date.now() - DAYS * 86_400_000).toISOString().slice(0, 10);
    Promise.all(["day", "agent", "folder", "model"].map((by) => read("/usage", { by, since }))).then(
      ([day, agent, folder, model]) => setSums({ day: day.sums, agent: agent.sums, folder: folder.sums, model: model.sums }),
      (error) => setProblem(error.message),
    );
  }, []);
  const days = sums && lastDays(sums.day);
  return html`<main class="plain usage" id="main" tabindex="0">
    <header class="bar"><a class="back" href="#/" aria-label="All sessions"></a><h1>Usage, last ${DAYS} days</h1></header>
    ${problem && html`<p class="empty" role="alert">${problem}</p>`}
    ${!sums && !problem && html`<p class="empty aside">Loading…</p>`}
    ${days && html`<${Days} days=${days} />`}
    ${sums && html`<${Bars} title="by agent" sums=${sums.agent} name=${(/** @type {Sum} */ sum) => line(sum.agentName ?? sum.agent, CUT.name)} />
      <${Bars} title="by model" sums=${sums.model} name=${(/** @type {Sum} */ sum) => line(sum.model, CUT.name) || "Model not reported"} />
      ${sums.model.every((sum) => !sum.model) && html`<p class="aside">No agent reported a model. acphold knows it only for imported conversations.</p>`}
      <${Bars} title="by project" sums=${sums.folder} name=${(/** @type {Sum} */ sum) => baseName(sum.folder ?? "")} />
      <${Bars} title="by day" sums=${sums.day} name=${(/** @type {Sum} */ sum) => dated(sum)} most=${DAYS} />`}
  </main>`;
}

/** Each of the last days, also those without anything. @param {Sum[]} sums @returns {Sum[]} */
function lastDays(sums) {
  const known = new Map(sums.map((sum) => [sum.day, sum]));
  return Array.from({ length: DAYS }, (_, at) => {
    const then = new Date();
    then.setDate(then.getDate() - (DAYS - 1 - at));
    const day = `${then.getFullYear()}-${String(then.getMonth() + 1).padStart(2, "0")}-${String(then.getDate()).padStart(2, "0")}`;
    return known.get(day) ?? { day, sessions: 0, totalTokens: null, cost: null };
  });
}

/** @param {Sum} sum */
const dated = ({ day }) => dayOf(`${day}T00:00`);

/** @param {Sum} sum */
const cost = (sum) => Object.entries(sum.cost ?? {}).map(([currency, amount]) => {
  // Agents report it, so it may be any word.
  const how = /^[A-Z]{3}$/.test(currency) ? /** @type {const} */ ({ style: "currency", currency }) : {};
  return `${new Intl.NumberFormat(undefined, how).format(amount)}${how.style ? "" : ` ${line(currency, CUT.code)}`}`;
});

/** @param {Sum} sum */
const summary = (sum) => [sum.totalTokens === null ? "no tokens reported" : `${short.format(sum.totalTokens)} tokens`, ...cost(sum)].join(" · ");

/** What a picture shows of sums: where no agent tells its tokens, the sessions are what there is to see. @param {Sum[]} sums */
function scale(sums) {
  const hasTokens = sums.some((sum) => sum.totalTokens);
  const values = sums.map((sum) => (hasTokens ? (sum.totalTokens ?? 0) : sum.sessions));
  return { hasTokens, values, ...bars(values) };
}

/** @param {{days: Sum[]}} props */
function Days({ days }) {
  const { hasTokens, values, lengths, isCut, longest } = scale(days);
  const cut = values.filter(isCut);
  return html`<figure class="days">
    <figcaption>${hasTokens ? "Tokens" : "Sessions"} per day, at most ${short.format(Math.max(...values))}${cut.length > 0 && `. Columns with a gap are shortened; the tallest other one is ${short.format(longest)}.`}</figcaption>
    <ol>${days.map((day, at) => html`<li title=${`${dated(day)}: ${counted(day.sessions, "session")}, ${summary(day)}`}><span class=${`column ${isCut(values[at]) ? "cut" : ""}`} style=${{ height: `${lengths[at]}%` }}></span><span class="away">${dated(day)}: ${counted(day.sessions, "session")}, ${summary(day)}</span></li>`)}</ol>
    <p class="aside ends"><span>${dated(days[0])}</span><span>today</span></p>
  </figure>`;
}

/** @param {{title: string, sums: Sum[], name: (sum: Sum) => string, most?: number}} props */
function Bars({ title, sums, name, most = 12 }) {
  const shown = sums.slice(0, most);
  const { hasTokens, values, lengths, isCut, longest } = scale(shown);
  const all = sums.reduce((sum, each) => sum + (hasTokens ? (each.totalTokens ?? 0) : each.sessions), 0);
  const cut = values.filter(isCut);
  return sums.length > 0 && html`<section><h2>${hasTokens ? "Tokens" : "Sessions"} ${title}</h2>
    ${cut.length > 0 && html`<p class="aside">Bars with a gap are shortened: the longest is ${short.format(cut[0])}, the longest other one ${short.format(longest)}.</p>`}
    <ul class="bars">${shown.map(
      (sum, at) => html`<li><span class="what">${name(sum)}</span>
        <span class="number">${hasTokens ? (sum.totalTokens === null ? "–" : short.format(sum.totalTokens)) : sum.sessions}</span><span class="number">${share(values[at], all)}</span>
        ${values[at] > 0 && html`<span class=${`row ${isCut(values[at]) ? "cut" : ""}`} style=${{ width: `${lengths[at]}%` }}></span>`}
        <span class="aside">${[...(hasTokens ? [counted(sum.sessions, "session")] : []), ...(hasTokens && sum.totalTokens === null ? ["no tokens reported"] : []), ...cost(sum)].join(" · ")}</span></li>`,
    )}</ul>
    ${sums.length > most && html`<p class="aside">${counted(sums.length - most, "more", "more")} in <code>acphold usage</code>.</p>`}</section>`;
}
