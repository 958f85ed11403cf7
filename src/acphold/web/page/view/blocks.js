// The parts of a question as the server has finished them (`presentation.blocks`): their words, marks and
// cuts stay as they are.
import { useMemo } from "preact/hooks";
import { Prose } from "../model/prose.js";
import { coded, words } from "./coded.js";
import { OneColumn, useWide } from "./columns.js";
import { html } from "./html.js";
import { ProseView } from "./prose.js";
import { TwoColumns } from "./two_columns.js";

/** @typedef {import("../model/calls.js").Block} Block */
/** @typedef {{block: Block, isOpen: boolean, open: () => void}} Part */

/** @param {{parts: Part[], isNarrow: boolean}} props */
export function Blocks({ parts, isNarrow }) {
  const above = parts.filter(({ block }) => !block.name || block.kind === "diff" || block.kind === "command");
  const beside = parts.filter((part) => !above.includes(part));
  return html`${above.map((part) => html`<${VIEWS[part.block.kind]} ...${part} isNarrow=${isNarrow} />`)}
    ${beside.length > 0 && html`<dl class="arguments">${beside.map((part) => html`<div><dt>${part.block.name}</dt><dd><${Given} ...${part} /></dd></div>`)}</dl>`}`;
}

/** @param {Part} part */
const Rest = ({ block, isOpen, open }) => (isOpen ? block.rest : html`<button type="button" class="cut" onClick=${open}>${block.cut}</button>`);

/** @param {Part} part */
function Text(part) {
  const { text, isProse, cut, last } = part.block;
  const prose = useMemo(() => isProse && new Prose(text), [text, isProse]);
  if (prose) return html`<${ProseView} prose=${prose} />`;
  return html`<p class="asks">${coded(text)}${cut && html`<${Rest} ...${part} />`}${last}</p>`;
}

/** @param {Part} part */
const Given = (part) => html`<pre class="command" tabindex="0">${words(part.block.text)}${part.block.cut && html`<${Rest} ...${part} />`}${part.block.last}</pre>`;

/** @param {Part & {isNarrow: boolean}} part */
function Diff({ isNarrow, ...part }) {
  const { name, text, lines = [], folded, added, removed, cut } = part.block;
  const isWide = useWide() && !isNarrow && removed;
  const [from, to] = folded ?? [lines.length, lines.length];
  /** @param {import("../model/calls.js").Row[]} some */
  const rows = (some) => some.map(([sign, text, before, after]) => ({ sign, text, before, after }));
  /** @param {import("../model/calls.js").Row[]} some */
  const draw = (some) => some.length > 0 && (isWide ? html`<${TwoColumns} lines=${rows(some)} />` : html`<${OneColumn} lines=${rows(some)} />`);
  return html`<figure class="diff">
    <figcaption><span class="path">${name}</span> <span class="sum">${added && html`<ins>+${added}</ins>`} ${removed && html`<del>−${removed}</del>`}</span>${text && html` · <span class="aside">${text}</span>`}</figcaption>
    <div class="lines" tabindex="0" role="group" aria-label=${`Changes in ${name}`}>
      ${part.isOpen ? draw(lines) : html`${draw(lines.slice(0, from))}${cut && html`<${Rest} ...${part} />`}${draw(lines.slice(to))}`}
    </div></figure>`;
}

/** @param {Part} part */
const Command = (part) => html`<div>${part.block.name && html`<small>${part.block.name}</small>`}<${Given} ...${part} /></div>`;

const VIEWS = { text: Text, command: Command, path: Given, argument: Given, diff: Diff };
