// What agents reported, as a picture: by day, by agent, by project.
import { useEffect, useState } from "preact/hooks";
import { baseName, counted, line } from "../model/text.js";
import { read } from "../wire/pages.js";
import { html } from "./html.js";

/** @typedef {{day?: string, agent?: string, folder?: string, sessions: number, totalTokens: number | null, cost: Record<string, number> | null}} Sum */

const DAYS = 30;
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });

export function Usage() {
  const [sums, setSums] = useState(/** @type {Record<string, Sum[]> | null} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const since = new Date(Date.now() - DAYS * 86_400_000).toISOString().slice(0, 10);
    Promise.all(["day", "agent", "folder"].map((by) => read("/usage", { by, since }))).then(
      ([day, agent, folder]) => setSums({ day: day.sums, agent: agent.sums, folder: folder.sums }),
      (error) => setProblem(error.message),
    );
  }, []);
  const days = sums && lastDays(sums.day);
  return html`<main class="plain usage" id="main" tabindex="-1">
    <header class="bar"><a class="back" href="#/" aria-label="All sessions"></a><h1>Usage, ${DAYS} days</h1></header>
    ${problem && html`<p class="empty" role="alert">${problem}</p>`}
    ${!sums && !problem && html`<p class="empty aside">Adding up…</p>`}
    ${days && html`<${Days} days=${days} />`}
    ${sums && html`<${Bars} title="By agent" sums=${sums.agent} name=${(/** @type {Sum} */ sum) => line(sum.agent, 60)} /><${Bars} title="By project" sums=${sums.folder} name=${(/** @type {Sum} */ sum) => baseName(sum.folder ?? "")} />`}
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
const told = (sum) => {
  const cost = Object.entries(sum.cost ?? {}).map(([currency, amount]) => new Intl.NumberFormat(undefined, { style: "currency", currency }).format(amount));
  return [sum.totalTokens === null ? "no tokens reported" : `${short.format(sum.totalTokens)} tokens`, ...cost].join(" · ");
};

/** What a picture shows of sums: where no agent tells its tokens, the sessions are what there is to see. @param {Sum[]} sums */
function scale(sums) {
  const isTold = sums.some((sum) => sum.totalTokens);
  /** @param {Sum} sum */
  const height = (sum) => (isTold ? (sum.totalTokens ?? 0) : sum.sessions);
  return { isTold, height, most: Math.max(1, ...sums.map(height)) };
}

/** @param {{days: Sum[]}} props */
function Days({ days }) {
  const { isTold, height, most } = scale(days);
  return html`<figure class="days">
    <figcaption>${isTold ? "Tokens" : "Sessions"} a day, at most ${short.format(most)}</figcaption>
    <ol>${days.map((day) => html`<li title=${`${day.day}: ${counted(day.sessions, "session")}, ${told(day)}`}><span class="column" style=${{ height: `${(100 * height(day)) / most}%` }}></span><span class="away">${day.day}: ${counted(day.sessions, "session")}, ${told(day)}</span></li>`)}</ol>
    <p class="aside ends"><span>${days[0].day}</span><span>today</span></p>
  </figure>`;
}

/** @param {{title: string, sums: Sum[], name: (sum: Sum) => string}} props */
function Bars({ title, sums, name }) {
  const { height, most } = scale(sums);
  return sums.length > 0 && html`<section><h2>${title}</h2><ul class="bars">${sums.slice(0, 12).map(
    (sum) => html`<li><span>${name(sum)}</span><span class="aside">${counted(sum.sessions, "session")} · ${told(sum)}</span><span class="row" style=${{ width: `${(100 * height(sum)) / most}%` }}></span></li>`,
  )}</ul></section>`;
}
