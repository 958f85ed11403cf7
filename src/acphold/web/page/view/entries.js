// What was said and done, one under the other; each is drawn again only when it has changed.
import { Component } from "preact";
import { useState } from "preact/hooks";
import { inClient } from "../model/decisions.js";
import { AT_WORK, COMPACTIONS, CUT, DONE, ENDINGS, SHOWN, SPEAKERS, STEPS, TOLD } from "../model/tables.js";
import { asText, baseName, counted, line, sentence, visible } from "../model/text.js";
import { exactly, moment } from "../model/times.js";
import { sayer } from "../wire/device.js";
import { coded } from "./coded.js";
import { Guard } from "./guard.js";
import { html } from "./html.js";
import { Later } from "./later.js";
import { Long } from "./long.js";
import { useSome } from "./pieces.js";
import { place, sessionPlace } from "./places.js";
import { ProseView } from "./prose.js";
import { ToolView } from "./tool_call.js";

/** @typedef {import("../model/timeline.js").Item} Item */
/** @typedef {import("../model/timeline.js").Question} Question */
/** @typedef {{item: Item, decisions: Question[]}} Told  an item, and what was decided about it right behind it */

/** `asked` are the questions that are drawn beside the conversation: they say what their calls would say here. @param {{items: Item[], version: number, isInside?: boolean, asked?: import("../model/session.js").OpenQuestion[]}} props */
export function Entries({ items, isInside = false, asked = [] }) {
  /** @param {Item} item */
  const isAsked = (item) =>
    asked.some((each) => (item.kind === "question" ? each.id === item.id : item.kind === "tool" && each.params.toolCall?.toolCallId === item.id && (item.fields.status ?? "pending") === "pending"));
  return runsOf(items).map((run) => {
    const entries = run.map(({ item, decisions }) => {
      const made = decisions.filter((each) => !isAsked(each));
      const version = made.reduce((sum, each) => sum + each.version + 1, item.version);
      return html`<${Entry} key=${item.key} item=${item} decisions=${made} version=${version} isInside=${isInside} isAsked=${isAsked(item)} />`;
    });
    return run.length > 1 ? html`<${Looks} key=${`looks ${run[0].item.key}`} run=${run}>${entries}<//>` : entries[0];
  });
}

/** Calls that only look, one right after the other, are of one run. @param {Item[]} items @returns {Told[][]} */
function runsOf(items) {
  /** @type {Told[][]} */
  const runs = [];
  for (const item of items) {
    const run = runs.at(-1) ?? [];
    const last = run.at(-1);
    if (item.kind === "question" && last?.item.kind === "tool" && item.params.toolCall?.toolCallId === last.item.id) last.decisions.push(item);
    else if (isLook(item) && last && isLook(last.item)) run.push({ item, decisions: [] });
    else runs.push([{ item, decisions: [] }]);
  }
  return runs;
}

/** Whether it is a call that only looks: one that failed says why. @param {Item} item */
const isLook = (item) => item.kind === "tool" && (item.fields.kind === "read" || item.fields.kind === "search") && item.fields.status !== "failed" && item.children.length === 0;

/** What was looked at, in one line that opens. @param {{run: Told[], children: unknown}} props */
function Looks({ run, children }) {
  const [isOpen, setOpen] = useState(false);
  const tools = run.map(({ item }) => /** @type {import("../model/timeline.js").Tool} */ (item));
  const number = (/** @type {string} */ kind) => tools.filter((each) => each.fields.kind === kind).length;
  const [reads, searches] = [number("read"), number("search")];
  const found = [reads > 0 && counted(reads, "file"), searches > 0 && counted(searches, "search", "searches")].filter(Boolean).join(", ");
  const isDone = tools.every((each) => each.fields.status === "completed");
  return html`<details class=${`looks ${isDone ? "completed" : "in_progress"}`} open=${isOpen} onToggle=${(/** @type {On<HTMLDetailsElement>} */ event) => setOpen(event.target.open)}>
    <summary><span class="mark" role="img" aria-label=${isDone ? "done" : "running"}></span><span class="kind">${reads > 0 ? "Read" : "Search"}</span><span class="number">${found}</span>${!isOpen && html`<span class="names">${tools.map(({ fields }) => (fields.locations?.[0]?.path ? baseName(asText(fields.locations[0].path)) : line(fields.title, CUT.name))).join(", ")}</span>`}</summary>
    ${children}
  </details>`;
}

/** @extends {Component<{item: Item, decisions: Question[], version: number, isInside: boolean, isAsked: boolean}>} */
class Entry extends Component {
  /** @param {{item: Item, version: number, isAsked: boolean}} next */
  shouldComponentUpdate(next) {
    const { item, version, isAsked } = this.props;
    return next.item !== item || next.version !== version || next.isAsked !== isAsked;
  }

  render() {
    const { item, decisions, isInside, isAsked } = this.props;
    // A place in a sub-agent is one of the session around it.
    const id = item.seq && !isInside ? `e${item.seq}` : undefined;
    return html`<div class=${`entry of-${item.kind}`} id=${id} data-key=${item.key} data-seq=${item.seq || undefined} hidden=${isAsked}><${Guard}><${Drawn} item=${item} decisions=${decisions} version=${item.version} /><//></div>`;
  }
}

/** @param {{item: Item, decisions: Question[], version: number}} props */
function Drawn({ item, decisions }) {
  switch (item.kind) {
    case "prompt":
      return html`<${PromptView} item=${item} version=${item.version} />`;
    case "said":
      return item.role === "thought" ? html`<${ThoughtView} item=${item} version=${item.version} />` : html`<${SaidView} item=${item} version=${item.version} />`;
    case "tool":
      return html`<${ToolView} tool=${item} version=${item.version} decisions=${decisions}>
        ${item.children.map((child) => html`<${ChildView} key=${child.key} child=${child} version=${child.version} />`)}
      <//>${decisions.map((each) => html`<${Later} name="DecisionView" key=${each.key} item=${each} version=${each.version} isBelow />`)}`;
    case "plan":
      return html`<${PlanView} entries=${item.entries} />`;
    case "child":
      return html`<${ChildView} child=${item} version=${item.version} />`;
    case "question":
      return html`<${Later} name="DecisionView" item=${item} version=${item.version} />`;
    case "note":
      return html`<p class=${`note ${item.severity === "error" ? "bad" : ""}`}><b>${line(item.title).replace(/[^.!?:…]$/, item.description ? "$&." : "$&")}</b> ${coded(line(item.description, CUT.most))}</p>`;
    case "compaction":
      return html`<details class="thought"><summary>Context ${COMPACTIONS[item.status ?? "in_progress"] ?? line(item.status).replace("_", " ")}${item.error ? `: ${line(item.error)}` : ""}</summary><${ProseView} prose=${item.prose} version=${item.version} /></details>`;
    case "end":
      return html`<${EndView} end=${item} />`;
  }
}

/** How a sub-agent stands, in a word. @param {import("../model/timeline.js").ChildState} told */
const ofChild = ({ state, stopReason }) => (state === "idle" && stopReason ? (DONE[stopReason] ?? stopReason) : (AT_WORK[state ?? ""] ?? state ?? ""));

/** A sub-agent, with all that was said in it. @param {{child: import("../model/timeline.js").Child, version: number}} props */
function ChildView({ child, version }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details class="child" open=${isOpen} onToggle=${(/** @type {On<HTMLDetailsElement>} */ event) => event.target === event.currentTarget && setOpen(event.target.open)}>
    <summary><span class="kind">Sub-agent</span> <span class="title">${line(child.told.title ?? child.told.description ?? baseName(child.id))}</span> <span class="aside">${line(ofChild(child.told))}</span></summary>
    ${isOpen && child.told.description && html`<div class="text aside"><${Long} text=${child.told.description} /></div>`}
    ${isOpen && html`<${Inside} items=${child.timeline.items} version=${version} />`}
  </details>`;
}

/** All that was said in a sub-agent, from its beginning. @param {{items: Item[], version: number}} props */
function Inside({ items, version }) {
  return html`<${Entries} items=${items.slice(0, useSome(items.length, 4))} version=${version} isInside />`;
}

/** @param {{item: import("../model/timeline.js").Prompt, version: number}} props */
function PromptView({ item }) {
  const whose = item.isReported ? `${SPEAKERS.user}, ${TOLD}` : line(sayer(item.user), CUT.name);
  return html`<article class=${`prompt ${item.isReported ? "told" : ""}`}>
    <header><h2>${whose}</h2>${item.author && html` <span>${inClient(item.author)}</span>`} <${Later} name="FromHere" item=${item} /><${When} item=${item} /></header>
    ${blocks(item.content)}
  </article>`;
}

/** Blocks of a message: one that fails hides none beside it. @param {import("../model/timeline.js").Content[]} contents */
const blocks = (contents) => contents.map((content) => html`<${Guard}><${Later} name="ContentView" content=${content} /><//>`);

/** @param {{item: Item}} props */
function When({ item }) {
  const time = item.at && html`<time datetime=${item.at} title=${exactly(item.at)}>${moment(item.at)}</time>`;
  // A link to this place, to be kept or sent on.
  return time && item.seq ? html`<a class="when" href=${sessionPlace(place.peek().id, item.seq)}>${time}</a>` : time;
}

/** @param {{item: import("../model/timeline.js").Said, version: number}} props */
function SaidView({ item, version }) {
  return html`<article class="said">
    <${ProseView} prose=${item.prose} version=${version} />
    ${blocks(item.others)}
  </article>`;
}

/** @param {{item: import("../model/timeline.js").Said, version: number}} props */
function ThoughtView({ item, version }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details class="thought" open=${isOpen} onToggle=${(/** @type {On<HTMLDetailsElement>} */ event) => setOpen(event.target.open)}>
    <summary>Thought${isOpen ? "" : html` <span>${line(item.prose.text.replace(/[*#\u0060]+/g, ""), CUT.part)}</span>`}</summary>
    ${isOpen && html`<${ProseView} prose=${item.prose} version=${version} />`}
  </details>`;
}

/** @param {{entries: Received[]}} props */
function PlanView({ entries }) {
  const done = entries.filter((each) => each?.status === "completed").length;
  return html`<details class="plan" open=${done < entries.length}>
    <summary>Plan <span>${done} of ${entries.length}</span></summary>
    <ol>${entries.map((each) => {
      const status = asText(each?.status);
      return html`<li class=${STEPS[status] ? status : "pending"}><span class="mark" role="img" aria-label=${STEPS[status] ?? STEPS.pending}></span>${line(each?.content, CUT.most)}</li>`;
    })}</ol>
  </details>`;
}

/** @param {{end: import("../model/timeline.js").End}} props */
function EndView({ end }) {
  const words = ENDINGS[end.outcome];
  if (!words) return html`<hr class="end" />`;
  return html`<p class=${`ending ${end.outcome}`}><b>${sentence(words)}${end.resetsAt ? `, resets at ${moment(end.resetsAt)}` : ""}</b>${end.message ? html`<br />${visible(end.message).slice(0, SHOWN.lastOutput)}` : ""}</p>`;
}
