// What is inside a tool call that somebody has opened.
import { useState } from "preact/hooks";
import { CUT, SHOWN } from "../model/tables.js";
import { argumentsOf } from "../model/calls.js";
import { asText, exact, saidIn, shortPath, size, unfenced } from "../model/text.js";
import { wholeEntry } from "../wire/pages.js";
import { ContentView } from "./content.js";
import { DiffView } from "./diff.js";
import { Guard } from "./guard.js";
import { html } from "./html.js";
import { Long } from "./long.js";
import { place } from "./places.js";
import { Output } from "./terminal.js";

/** @param {{tool: import("../model/timeline.js").Tool, content: Received[]}} props */
export function Inside({ tool, content }) {
  const { locations = [], rawOutput, title } = tool.fields;
  // An edit says itself in which file it is.
  const places = locations.filter((each) => each && !content.some((one) => one?.path === each.path));
  const told = content.length > 0 || tool.children.length > 0;
  return html`<div class="inside">
    ${asText(title).length > CUT.title && html`<pre tabindex="0"><${Long} text=${title} /></pre>`}
    <${Arguments} given=${argumentsOf(tool.fields)} />
    ${places.length > 0 && html`<p class="places">${places.map((each) => html`<span class="path" title=${asText(each.path)}>${shortPath(asText(each.path))}${Number.isInteger(each.line) ? `:${each.line}` : ""}</span> `)}</p>`}
    ${content.slice(0, tool.cut ? -1 : undefined).map((each) => html`<${Guard}><${Produced} content=${each} /><//>`)}
    ${tool.cut && html`<${Guard}><${Begun} tool=${tool} cut=${tool.cut} content=${content.at(-1)} /><//>`}
    ${!told && rawOutput !== undefined && html`<${Output} text=${saidIn(rawOutput) ?? asText(rawOutput)} />`}
  </div>`;
}

/** What was read the beginning of, until somebody wants all of it. @param {{tool: import("../model/timeline.js").Tool, cut: import("../model/timeline.js").Cut, content: Received}} props */
function Begun({ tool, cut, content }) {
  const [whole, setWhole] = useState(/** @type {Received} */ (undefined));
  const [told, setTold] = useState("");
  if (whole) return html`<${Produced} content=${whole} />`;
  const show = async () => {
    setTold("Reading…");
    try {
      const update = (await wholeEntry(place.value.id, cut.seq))?.update;
      if (update?.toolCallId !== tool.id) throw new Error("It is no longer there.");
      setWhole(update.content?.at(-1));
    } catch (error) {
      setTold(/** @type {Error} */ (error).message);
    }
  };
  const text = asText(content?.content?.text).replace(/^\s*(```+|~~~+)[\w+#.-]{0,20}[ \t]*\n/, "");
  return html`${content?.type === "diff" ? html`<p class="path">${exact(shortPath(asText(content.path)))}</p>` : html`<${Output} text=${text.slice(0, SHOWN.output)} />`}
    <p><button type="button" class="quiet" onClick=${show}>Show all of it; ${size(cut.bytes)}</button> <span role="status">${told}</span></p>`;
}

/** All that a call is given, nothing of it folded away. @param {{given: import("../model/calls.js").Argument[]}} props */
function Arguments({ given }) {
  if (given.length === 0) return null;
  return html`<dl class="arguments">${given.map(({ name, text }) => html`<div>${name && html`<dt>${exact(name)}</dt>`}<dd><pre class="command" tabindex="0"><${Long} text=${text} written=${exact} /></pre></dd></div>`)}</dl>`;
}

/** @param {{content: Received}} props */
function Produced({ content }) {
  if (content?.type === "diff") return html`<${DiffView} diff=${content} />`;
  if (content?.type === "terminal") return html`<p class="aside">Output appears here when the command finishes.</p>`;
  const inner = content?.content;
  return inner?.type === "text" ? html`<${Output} text=${unfenced(asText(inner.text))} />` : html`<${ContentView} content=${inner} />`;
}
