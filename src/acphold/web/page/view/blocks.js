// The parts of a question as the server has finished them: their words, marks and cuts stay as they are.
import { useMemo } from "preact/hooks";
import { Prose } from "../model/prose.js";
import { coded, words } from "./coded.js";
import { OneColumn, useWide } from "./columns.js";
import { html } from "./html.js";
import { ProseView } from "./prose.js";
import { TwoColumns } from "./two_columns.js";

/** @typedef {import("../model/questions.js").Row} Row */
/** @typedef {import("../model/questions.js").Part & {open: (id: string) => void, isNarrow: boolean}} Part */

/** @param {{parts: import("../model/questions.js").Part[], open: (id: string) => void, isNarrow: boolean}} props */
export function Blocks({ parts, ...rest }) {
  const beside = parts.filter(({ block }) => block.name && (block.kind === "path" || block.kind === "argument"));
  const above = parts.filter((part) => !beside.includes(part));
  return html`${above.map((part) => html`<${VIEWS[part.block.kind]} ...${part} ...${rest} />`)}
    ${beside.length > 0 && html`<dl class="arguments">${beside.map((part) => html`<div><dt>${part.block.name}</dt><dd><${Given} ...${part} ...${rest} /></dd></div>`)}</dl>`}`;
}

/** Its pieces, with what is left out between them. @template T @param {Part} part @param {T[]} pieces @param {(piece: T) => unknown} draw */
const whole = ({ id, isOpen, block, open }, [above, middle, below], draw) => html`${draw(above)}${isOpen ? draw(middle) : html`<button type="button" class="cut" onClick=${() => open(id)}>${block.cut}</button>`}${draw(below)}`;

/** @param {Part} part */
function Text(part) {
  const { text, isProse } = part.block;
  const prose = useMemo(() => isProse && new Prose(text), [text, isProse]);
  return prose ? html`<${ProseView} prose=${prose} />` : html`<p class="asks">${whole(part, part.pieces, coded)}</p>`;
}

/** @param {Part} part */
const Given = (part) => html`<pre class="command" tabindex="0">${whole(part, part.pieces, words)}</pre>`;

/** @param {Part} part */
const Command = (part) => html`<div>${part.block.name && html`<small>${part.block.name}</small>`}<${Given} ...${part} /></div>`;

/** @param {Part} part */
function Diff(part) {
  const { name, text, added, removed, lines: [first] = [] } = part.block;
  const View = useWide() && !part.isNarrow && removed ? TwoColumns : OneColumn;
  /** @param {Row[]} rows */
  const draw = (rows) => rows.length > 0 && html`<${View} lines=${rows.map(([sign, text, before, after]) => ({ sign, text, before, after }))} />`;
  const sum = added || removed ? html`${added && html`<ins>+${added}</ins>`} ${removed && html`<del>−${removed}</del>`}` : first?.[1];
  return html`<figure class="diff">
    <figcaption><span class="path">${name}</span> <span class="sum">${sum}</span>${text && html` · <span class="aside">${text}</span>`}</figcaption>
    ${(added || removed) && html`<div class="lines" tabindex="0" role="group" aria-label=${`Changes in ${name}`}>${whole(part, part.rows, draw)}</div>`}</figure>`;
}

const VIEWS = { text: Text, command: Command, path: Given, argument: Given, diff: Diff };
