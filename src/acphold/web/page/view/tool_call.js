// A tool call: one line, which opens. What is inside is made when it is opened.
import { useState } from "preact/hooks";
import { withTexts } from "../model/display_terminals.js";
import { argumentsOf } from "../model/permission.js";
import { asText, line, shortPath, wordTable, unfenced } from "../model/text.js";
import { DiffView, Sum } from "./diff.js";
import { Guard } from "./guard.js";
import { html } from "./html.js";
import { Later } from "./later.js";
import { Long } from "./long.js";
import { LastLines, Output } from "./terminal.js";
import { coded } from "./coded.js";

const SIGNS = wordTable({ read: "Read", edit: "Edit", delete: "Delete", move: "Move", search: "Search", execute: "Run", think: "Think", fetch: "Fetch", switch_mode: "Mode" });
const STANDS = wordTable({ pending: "waiting", in_progress: "running", completed: "done", failed: "failed" });

/** @param {{tool: import("../model/timeline.js").Tool, version: number, children: unknown}} props  `children` are its sub-agents */
export function ToolView({ tool, children }) {
  const { title, kind = "other", status = "pending", rawInput, _meta } = tool.fields;
  const content = contentOf(tool);
  const [isOpen, setOpen] = useState(false);
  const diffs = content.filter((each) => each?.type === "diff");
  const output = kind === "execute" ? outputOf(content, tool.fields.rawOutput) : "";
  // What a shell is given says more than that it is one.
  const command = kind === "execute" ? (commandOf(rawInput) ?? "").replace(/^(\/\S*\/)?(ba|z)?sh -l?c /, "") : "";
  const stands = STANDS[status] ? status : "unknown";
  return html`<details class=${`tool ${stands}`} open=${isOpen} onToggle=${(/** @type {On<HTMLDetailsElement>} */ event) => setOpen(event.target.open)}>
    <summary>
      <span class="mark" role="img" aria-label=${STANDS[stands] ?? line(status)}></span>
      <span class="kind">${SIGNS[kind] ?? "Tool"}</span>
      <span class="title">${coded(titleOf(title, kind))}${command && !asText(title).includes(command) && html` <code>${line(command, 160)}</code>`}</span>
      ${diffs.map((diff) => html`<${Sum} diff=${diff} />`)}
      ${tool.children.length > 0 && html`<span class="aside">sub-agent</span>`}
      ${!isOpen && output && html`<${LastLines} text=${output} most=${3} />`}
    </summary>
    ${isOpen && html`<${Inside} tool=${tool} />`}
    ${_meta?.["acphold/failed"] && html`<p class="aside">${line(_meta["acphold/failed"])}</p>`}
    ${children}
  </details>`;
}

/** @param {import("../model/timeline.js").Tool} tool */
function contentOf({ fields, terminals }) {
  const said = fields._meta?.["acphold/rule"]?.words;  // a line of ours, which stands below
  return withTexts((fields.content ?? []).filter((each) => !said || each?.content?.text !== said), terminals);
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
  const { locations = [], rawOutput, title } = tool.fields;
  const content = contentOf(tool);
  // An edit says itself in which file it is.
  const places = locations.filter((each) => each && !content.some((one) => one?.path === each.path));
  const told = content.length > 0 || tool.children.length > 0;
  return html`<div class="inside">
    ${asText(title).length > 100 && html`<pre tabindex="0"><${Long} text=${title} /></pre>`}
    <${Arguments} given=${argumentsOf(tool.fields)} />
    ${places.length > 0 && html`<p class="places">${places.map((each) => html`<span class="path" title=${asText(each.path)}>${shortPath(asText(each.path))}${Number.isInteger(each.line) ? `:${each.line}` : ""}</span> `)}</p>`}
    ${content.map((each) => html`<${Guard}><${Produced} content=${each} /><//>`)}
    ${!told && rawOutput !== undefined && html`<${Output} text=${saidIn(rawOutput) ?? asText(rawOutput)} />`}
  </div>`;
}

/** All that a call is given, nothing of it folded away. @param {{given: import("../model/permission.js").Argument[]}} props */
function Arguments({ given }) {
  if (given.length === 0) return null;
  return html`<dl class="arguments">${given.map(({ name, text }) => html`<div>${name && html`<dt>${line(name, 120)}</dt>`}<dd><pre class="command" tabindex="0"><${Long} text=${text} /></pre></dd></div>`)}</dl>`;
}

/** The command of a call that has one. @param {Received} input @returns {string | undefined} */
function commandOf(input) {
  const command = input?.command ?? input?.cmd;
  if (Array.isArray(command)) return command.map(asText).join(" ");
  return typeof command === "string" ? command : undefined;
}

/** @param {{content: Received, isOneColumn?: boolean}} props */
export function Produced({ content, isOneColumn }) {
  if (content?.type === "diff") return html`<${DiffView} diff=${content} isOneColumn=${isOneColumn} />`;
  if (content?.type === "terminal") return html`<p class="aside">Output appears here when the command finishes.</p>`;
  const inner = content?.content;
  return inner?.type === "text" ? html`<${Output} text=${unfenced(asText(inner.text))} />` : html`<${Later} name="ContentView" content=${inner} />`;
}

/** @param {Received[]} content @param {unknown} rawOutput */
function outputOf(content, rawOutput) {
  const texts = content.filter((each) => each?.content?.type === "text").map((each) => unfenced(asText(each.content.text)));
  return texts.length > 0 ? texts.join("\n") : (saidIn(rawOutput) ?? "");
}

/** The text that came out of a call, where agents agree on what it is called. @param {Received} raw @returns {string | undefined} */
const saidIn = (raw) => [raw, raw?.output, raw?.message].find((each) => typeof each === "string");
