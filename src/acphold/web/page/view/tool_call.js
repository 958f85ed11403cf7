// A tool call: one line, which opens. What is inside is made when it is opened.
import { useState } from "preact/hooks";
import { withTexts } from "../model/display_terminals.js";
import { CUT, KINDS, STATUSES } from "../model/tables.js";
import { asText, line, saidIn, unfenced } from "../model/text.js";
import { coded, command } from "./coded.js";
import { html } from "./html.js";
import { Later } from "./later.js";
import { LastLines } from "./terminal.js";


/** @param {{tool: import("../model/timeline.js").Tool, version: number, decisions: import("../model/timeline.js").Question[], children: unknown}} props  the `decisions` stand below; `children` are its sub-agents */
export function ToolView({ tool, decisions, children }) {
  const { title, kind = "other", status = "pending", rawInput, _meta } = tool.fields;
  const content = [...allowed(tool, decisions), ...contentOf(tool)];
  const [isOpen, setOpen] = useState(false);
  const diffs = content.filter((each) => each?.type === "diff" && !(tool.cut && each === content.at(-1)));
  const isCommand = kind === "execute";
  const output = isCommand || status === "failed" ? outputOf(content, tool.fields.rawOutput) : "";
  const why = status === "failed" && (line(_meta?.["acphold/failed"]) || (isCommand ? "" : line(output)) || (!output && decisions.length === 0 && "The agent gave no reason."));
  // What a shell is given says more than that it is one.
  const given = isCommand ? (commandOf(rawInput) ?? "").replace(/^(\/\S*\/)?(ba|z)?sh -l?c /, "") : "";
  const stands = STATUSES[status] ? status : "unknown";
  return html`<details class=${`tool ${stands}`} open=${isOpen} onToggle=${(/** @type {On<HTMLDetailsElement>} */ event) => setOpen(event.target.open)}>
    <summary>
      <span class="mark" role="img" aria-label=${STATUSES[stands] ?? line(status)}></span>
      <span class="kind">${KINDS[kind] ?? "Tool"}</span>
      <span class="title">${isCommand ? commandTitle(titleOf(title, kind), given) : coded(titleOf(title, kind))}</span>
      ${diffs.map((diff) => html`<${Later} name="Sum" diff=${diff} />`)}
      ${tool.children.length > 0 && html`<span class="aside">sub-agent</span>`}
      ${!isOpen && isCommand && output && !tool.cut && html`<${LastLines} text=${output} most=${3} />`}
      ${why && html`<span class="why">${why}</span>`}
    </summary>
    ${isOpen && html`<${Later} name="Inside" tool=${tool} content=${content} />`}
    ${children}
  </details>`;
}

/** What was allowed and done: some agents say at the end only that they did it. @param {import("../model/timeline.js").Tool} tool @param {import("../model/timeline.js").Question[]} decisions @returns {Received[]} */
function allowed({ fields }, decisions) {
  if (fields.status !== "completed" || fields.content?.some((each) => each?.type === "diff")) return [];
  return decisions.flatMap(({ answer, params }) => {
    const chosen = params.options?.find((/** @type {Received} */ each) => each?.optionId === answer?.result?.outcome?.optionId);
    return asText(chosen?.kind).startsWith("allow") && Array.isArray(params.toolCall?.content) ? params.toolCall.content : [];
  }).filter((each) => each?.type === "diff");
}

/** @param {import("../model/timeline.js").Tool} tool */
function contentOf({ fields, terminals }) {
  const said = fields._meta?.["acphold/rule"]?.words;  // a line of ours, which stands below
  return withTexts((fields.content ?? []).filter((each) => !said || each?.content?.text !== said), terminals);
}

/** @param {unknown} title @param {string} kind */
function titleOf(title, kind) {
  const said = line(title, CUT.title) || "a tool call";
  // The agent often begins with the word that stands before it anyway.
  const word = KINDS[kind];
  return word && said.toLowerCase().startsWith(`${word.toLowerCase()} `) ? said.slice(word.length + 1) : said;
}

/** Words that an agent has for a command, and the command; where they are it, or begin it, it alone. @param {string} title @param {string} given */
function commandTitle(title, given) {
  const bare = title.replace(/^`|`$/g, "");
  if (!given || bare.includes(line(given, CUT.title))) return title.includes("`") ? coded(title) : command(title);
  const isBegun = line(given, CUT.title).startsWith(bare.replace(/(…|\.\.\.)$/, ""));
  return html`${!isBegun && html`${coded(title)} `}${command(line(given, CUT.title))}`;
}

/** The command of a call that has one. @param {Received} input @returns {string | undefined} */
function commandOf(input) {
  const command = input?.command ?? input?.cmd;
  if (Array.isArray(command)) return command.map(asText).join(" ");
  return typeof command === "string" ? command : undefined;
}

/** @param {Received[]} content @param {unknown} rawOutput */
function outputOf(content, rawOutput) {
  const texts = content.filter((each) => each?.content?.type === "text").map((each) => unfenced(asText(each.content.text)));
  return texts.length > 0 ? texts.join("\n") : (saidIn(rawOutput) ?? "");
}
