// What a command showed, in the colours of a terminal; the end of it where it is long.
import { useState } from "preact/hooks";
import { runs } from "../model/ansi.js";
import { size, visible } from "../model/text.js";
import { html } from "./html.js";

/** Characters that are shown at first, the last ones. */
const FIRST = 60_000;

/** @param {{text: string}} props */
export function Output({ text }) {
  const [most, setMost] = useState(FIRST);
  const begin = text.length - most;
  const isCut = begin > 0;
  const shown = isCut ? text.slice(text.indexOf("\n", begin) + 1 || begin) : text;
  return html`<div class="output">
    ${isCut && html`<button type="button" class="quiet" onClick=${() => setMost(most * 3)}>Show more; ${size(text.length - shown.length)} before</button>`}
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
