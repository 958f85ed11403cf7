// What a command showed, in the colours of a terminal; the end of it where it is long.
import { useState } from "preact/hooks";
import { runs } from "../model/ansi.js";
import { counted, visible } from "../model/text.js";
import { html } from "./html.js";

const MOST = 60_000;

/** @param {{text: string}} props */
export function Output({ text }) {
  const [isWhole, setWhole] = useState(false);
  const isCut = text.length > MOST && !isWhole;
  const shown = isCut ? text.slice(text.indexOf("\n", text.length - MOST) + 1 || text.length - MOST) : text;
  return html`<div class="output">
    ${isCut && html`<button type="button" class="quiet" onClick=${() => setWhole(true)}>Show all ${counted(text.split("\n").length, "line")}</button>`}
    <pre tabindex="0">${runs(shown).map(
      (run) => html`<span class=${run.look} style=${{ color: run.colour, background: run.ground }}>${visible(run.text)}</span>`,
    )}</pre>
  </div>`;
}

/** Its last lines, for who has it folded. @param {{text: string, most: number}} props */
export function LastLines({ text, most }) {
  const lines = text.slice(-4000).trimEnd().split("\n").slice(-most);
  const plain = runs(lines.join("\n")).map((run) => run.text).join("");
  return html`<pre class="last">${visible(plain)}</pre>`;
}
