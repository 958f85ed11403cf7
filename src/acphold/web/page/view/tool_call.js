// A tool call: one line, which opens. What is inside is made when it is opened.
import { useState } from "preact/hooks";
import { baseName, line, shortPath } from "../model/text.js";
import { ContentView } from "./content.js";
import { DiffView, Sum } from "./diff.js";
import { Entries } from "./entries.js";
import { html } from "./html.js";
import { Long } from "./long.js";
import { LastLines, Output } from "./terminal.js";

const SIGNS = /** @type {Record<string, string>} */ ({ read: "Read", edit: "Edit", delete: "Delete", move: "Move", search: "Search", execute: "Run", think: "Think", fetch: "Fetch", switch_mode: "Mode" });
const STANDS = /** @type {Record<string, string>} */ ({ pending: "waits", in_progress: "runs", completed: "done", failed: "failed" });

/** @param {{tool: import("../model/timeline.js").Tool, version: number}} props */
export function ToolView({ tool }) {
  const { title, kind, status, content = [], rawInput, _meta } = tool.fields;
  const [isOpen, setOpen] = useState(false);
  const diffs = content.filter((/** @type {any} */ each) => each?.type === "diff");
  const output = kind === "execute" ? outputOf(tool.fields) : "";
  // What a shell is given says more than that it is one.
  const command = kind === "execute" ? (commandOf(rawInput) ?? "").replace(/^(\/\S*\/)?(ba|z)?sh -l?c /, "") : "";
  const stands = STANDS[status] ? status : status ? "unknown" : "completed";
  return html`<details class=${`tool ${stands}`} open=${isOpen} onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}>
    <summary>
      <span class="mark" role="img" aria-label=${STANDS[stands] ?? line(status)}></span>
      <span class="kind">${SIGNS[kind] ?? "Tool"}</span>
      <span class="title">${titleOf(title, kind)}${command && !String(title).includes(command) && html` <code>${line(command, 160)}</code>`}</span>
      ${diffs.map((/** @type {any} */ diff) => html`<${Sum} diff=${diff} />`)}
      ${tool.children.length > 0 && html`<span class="aside">sub-agent</span>`}
      ${!isOpen && output && html`<${LastLines} text=${output} most=${3} />`}
    </summary>
    ${isOpen && html`<${Inside} tool=${tool} />`}
    ${_meta?.["acphold/failed"] && html`<p class="aside">${line(_meta["acphold/failed"])}</p>`}
    ${tool.children.map((child) => html`<${ChildView} key=${child.key} child=${child} version=${child.version} />`)}
  </details>`;
}

/** @param {unknown} title @param {string} kind */
function titleOf(title, kind) {
  const said = line(title, 240) || "a tool call";
  // The agent often begins with the word that stands before it anyway.
  const word = SIGNS[kind];
  return word && said.toLowerCase().startsWith(`${word.toLowerCase()} `) ? said.slice(word.length + 1) : said;
}

/** @param {{tool: import("../model/timeline.js").Tool}} props */
function Inside({ tool }) {
  const { content = [], locations = [], rawInput, rawOutput, title } = tool.fields;
  const told = content.length > 0 || tool.children.length > 0;
  return html`<div class="inside">
    ${String(title ?? "").length > 100 && html`<pre tabindex="0"><${Long} text=${title} /></pre>`}
    <${Input} input=${rawInput} title=${title} />
    ${locations.length > 0 && html`<p class="places">${locations.map((/** @type {any} */ each) => html`<span class="path" title=${each.path}>${shortPath(String(each.path))}${each.line ? `:${each.line}` : ""}</span> `)}</p>`}
    ${content.map((/** @type {any} */ each) => html`<${Produced} content=${each} />`)}
    ${!told && rawOutput !== undefined && html`<${Output} text=${saidIn(rawOutput) ?? asText(rawOutput)} />`}
  </div>`;
}

/** What the call was given: a command whole, all else as it was sent. @param {{input: any, title?: string}} props */
export function Input({ input, title }) {
  if (input === undefined || input === null || (typeof input === "object" && Object.keys(input).length === 0)) return null;
  const command = commandOf(input);
  if (command !== undefined) {
    if (command === title) return null;
    return html`<pre class="command" tabindex="0"><${Long} text=${command} /></pre>`;
  }
  return html`<details class="given"><summary>What it is given</summary><pre tabindex="0"><${Long} text=${asText(input)} /></pre></details>`;
}

/** The command of a call that has one. @param {any} input @returns {string | undefined} */
export function commandOf(input) {
  const command = input?.command ?? input?.cmd;
  if (Array.isArray(command)) return command.map(String).join(" ");
  return typeof command === "string" ? command : undefined;
}

/** @param {{content: any}} props */
export function Produced({ content }) {
  if (content?.type === "diff") return html`<${DiffView} diff=${content} />`;
  if (content?.type === "terminal") return html`<p class="aside">Its terminal is open elsewhere; what it showed stands here when it is done.</p>`;
  const inner = content?.content;
  return inner?.type === "text" ? html`<${Output} text=${unfenced(String(inner.text ?? ""))} />` : html`<${ContentView} content=${inner} />`;
}

/** Agents put a fence around what a command showed. @param {string} text */
export function unfenced(text) {
  const found = /^\s*(```+)[^\n`]*\n([\s\S]*?)\n?\1\s*$/.exec(text.slice(0, 2_000_000));
  return found ? found[2] : text;
}

/** @param {any} fields */
function outputOf({ content = [], rawOutput }) {
  const texts = content.filter((/** @type {any} */ each) => each?.content?.type === "text").map((/** @type {any} */ each) => unfenced(String(each.content.text ?? "")));
  return texts.length > 0 ? texts.join("\n") : (saidIn(rawOutput) ?? "");
}

/** The text that came out of a call, where agents agree on what it is called. @param {any} raw @returns {string | undefined} */
const saidIn = (raw) => [raw, raw?.output, raw?.message].find((each) => typeof each === "string");

/** @param {any} value */
const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "");

/** A sub-agent, with all that was said in it. @param {{child: import("../model/timeline.js").Child, version: number}} props */
export function ChildView({ child, version }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details class="child" open=${isOpen} onToggle=${(/** @type {any} */ event) => event.target === event.currentTarget && setOpen(event.target.open)}>
    <summary><span class="kind">Sub-agent</span> <span class="title">${line(child.title ?? child.task ?? baseName(child.id))}</span> <span class="aside">${line(child.state ?? "")}</span></summary>
    ${isOpen && child.task && html`<div class="text aside"><${Long} text=${child.task} /></div>`}
    ${isOpen && html`<${Entries} items=${child.timeline.items} version=${version} isInside />`}
  </details>`;
}
