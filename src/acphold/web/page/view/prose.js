// Tokens of Markdown as elements: see `model/prose.js`.
import { SHOWN } from "../model/tables.js";
import { Lexer } from "marked";
import { Component, isValidElement } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { markdown } from "../model/prose.js";
import { wordTable } from "../model/text.js";
import { Copy } from "./copy.js";
import { html } from "./html.js";
import { useDrawn, useSome } from "./pieces.js";

markdown.lex = (text) => new Lexer({ gfm: true }).lex(text);

/** Characters that are shown at first of a message that is there already, its last ones; and when somebody asks for more. */
const FIRST = SHOWN.text;

/** @param {{prose: import("../model/prose.js").Prose, version: number}} props */
export function ProseView({ prose }) {
  const blocks = prose.blocks();
  const { omitted } = prose;
  const last = useMemo(() => prose.above(FIRST), [prose]);
  const [asked, setAsked] = useState(Infinity);
  const first = Math.max(omitted, Math.min(last, asked));
  const { from, to, isWhole } = useDrawn(prose, first);
  return html`<div class="prose" aria-busy=${!isWhole || undefined}>
    ${first > omitted
      ? html`<button type="button" class="quiet" onClick=${() => setAsked(prose.above(2 * FIRST, first))}>Show earlier text</button>`
      : omitted > 0 && html`<p class="aside">The beginning of this message is too long to show here.</p>`}
    ${inParts(blocks.slice(from - omitted, to - omitted), from)}
  </div>`;
}

/** Blocks that are laid out together, while they are near what is seen. */
const PART = 4;

/** @param {import("../model/prose.js").Block[]} blocks @param {number} from  the number of the first one */
function inParts(blocks, from) {
  const parts = [];
  for (let at = 0, end = 0; at < blocks.length; at = end) {
    const number = Math.floor((from + at) / PART);
    end = (number + 1) * PART - from;
    const some = blocks.slice(at, end).map((block, place) => html`<${Settled} key=${from + at + place} block=${block} />`);
    parts.push(html`<div class="part" key=${number}>${some}</div>`);
    end = Math.min(end, blocks.length);
  }
  return parts;
}

/** One block, which is drawn again only when it is another one. @extends {Component<{block: import("../model/prose.js").Block}>} */
class Settled extends Component {
  /** @param {{block: import("../model/prose.js").Block}} next */
  shouldComponentUpdate(next) {
    return next.block !== this.props.block;
  }

  render() {
    const { block } = this.props;
    if (block.kind === "code") return html`<${CodeView} ...${block} />`;
    return block.tokens ? tokens(block.tokens) : html`<p>${broken(block.text)}</p>`;
  }
}

/** @param {{language: string, pieces: string[], isOpen: boolean}} code */
function CodeView({ language, pieces, isOpen }) {
  const text = pieces.join("");
  const [coloured, setColoured] = useState(/** @type {{nodes: Drawn[], end: number}[]} */ ([]));
  useEffect(() => {
    if (isOpen || !language || text.length > 60_000) return undefined;
    let isWanted = true;
    void import(COLOURS)
      .then(({ colour }) => isWanted && setColoured(inPieces(colour(text, language) ?? [])))
      .catch(() => {});  // offline, and never loaded: it is read without colours
    return () => void (isWanted = false);
  }, [text, language, isOpen]);
  const plain = useSome(pieces.length, 2);
  const inColours = coloured.slice(0, useSome(coloured.length, 1));
  const isWhole = plain === pieces.length && inColours.length === coloured.length;
  return html`<div class="code" aria-busy=${!isWhole || undefined}>
    <pre tabindex="0"><code>${coloured.length > 0 ? [inColours.map((piece) => piece.nodes), text.slice(inColours.at(-1)?.end)] : pieces.slice(0, plain)}</code></pre>
    <${Copy} text=${text} />
  </div>`;
}

/**
 * @typedef {import("../colours.js").Run} Run
 * @typedef {import("marked").Token} Token
 * @typedef {import("preact").ComponentChildren} Drawn
 */

/** Runs that are coloured in one task. */
const RUNS = 300;

/** Runs as elements, in pieces, and where in the text each of these ends. @param {Run[]} runs */
function inPieces(runs) {
  const found = [];
  for (let at = 0, end = 0; at < runs.length; at += RUNS) {
    const some = runs.slice(at, at + RUNS);
    end += lengthOf(some);
    found.push({ nodes: some.map(run), end });
  }
  return found;
}

/** @param {Run[]} runs @returns {number} */
const lengthOf = (runs) => runs.reduce((sum, each) => sum + (each.scope ? lengthOf(each.inside ?? []) : each.text.length), 0);

/** @param {Run} each @returns {Drawn} */
const run = (each) =>
  each.scope ? html`<span class=${`hl-${each.scope}`}>${each.inside?.map(run)}</span>` : each.text;

/** @param {Token[] | undefined} list @returns {Drawn} */
function tokens(list) {
  return (list ?? []).map(token);
}

/** @param {Token} token @returns {Drawn} */
function token(token) {
  switch (token.type) {
    case "paragraph":
      return html`<p>${tokens(token.tokens)}</p>`;
    case "heading":
      // Below the headings of the page, and all on one level, whatever an agent thinks of its words.
      return html`<div class=${`heading depth-${token.depth}`} role="heading" aria-level="3">${tokens(token.tokens)}</div>`;
    case "list":
      return token.ordered
        ? html`<ol dir="auto" start=${token.start || 1}>${token.items.map(item)}</ol>`
        : html`<ul dir="auto">${token.items.map(item)}</ul>`;
    case "blockquote":
      return html`<blockquote dir="auto">${tokens(token.tokens)}</blockquote>`;
    case "code":
      return html`<${CodeView} language=${(token.lang ?? "").split(/\s/, 1)[0]} pieces=${[token.text]} isOpen=${false} />`;
    case "table":
      return table(/** @type {import("marked").Tokens.Table} */ (token));
    case "hr":
      return html`<hr />`;
    case "strong":
      return html`<strong>${tokens(token.tokens)}</strong>`;
    case "em":
      return html`<em>${tokens(token.tokens)}</em>`;
    case "del":
      return html`<del>${tokens(token.tokens)}</del>`;
    case "codespan":
      return html`<code>${token.text}</code>`;
    case "br":
      return html`<br />`;
    case "link":
      return html`<${Link} to=${token.href}>${tokens(token.tokens)}<//>`;
    case "image":
      // Nothing is loaded from anywhere: that would tell them that it is read.
      return html`<${Link} to=${token.href}>${entities(token.text) || "image"}<//>`;
    case "escape":
      return token.text;
    case "text":
      return token.tokens ? tokens(token.tokens) : decoded(token.text);
    case "space":
    case "def":
    case "checkbox":
      return null;
    default:
      return token.raw;  // HTML, as it is written
  }
}

/** @param {import("marked").Tokens.ListItem} item */
function item(item) {
  if (!item.task) return html`<li>${tokens(item.tokens)}</li>`;
  const mark = html`<span class="box" role="img" aria-label=${item.checked ? "done" : "open"}>${item.checked ? "☑" : "☐"}</span>`;
  return html`<li class="task">${mark} <div>${tokens(item.tokens)}</div></li>`;
}

/** @param {import("marked").Tokens.Table} table */
function table(table) {
  /** @param {number} at */
  const side = (at) => (table.align[at] ? `to-${table.align[at]}` : "");
  return html`<div class="table" tabindex="0">
    <table>
      <thead><tr>${table.header.map((cell, at) => html`<th class=${side(at)}>${tokens(cell.tokens)}</th>`)}</tr></thead>
      <tbody>${table.rows.map((row) => html`<tr>${row.map((cell, at) => html`<td class=${side(at)}>${tokens(cell.tokens)}</td>`)}</tr>`)}</tbody>
    </table>
  </div>`;
}

const NAMED = wordTable({ amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", hellip: "…", mdash: "—", ndash: "–" });

/** A text in which a line may end now and then: where it may end nowhere, a browser takes seconds to lay it out. @param {string} text */
function broken(text) {
  if (text.length < 400 || !/\S{400}/.test(text)) return text;
  return (text.match(/[^]{1,80}/g) ?? []).flatMap((piece) => [piece, html`<wbr />`]);
}

/** A text in which Markdown has entities. @param {string} text */
function decoded(text) {
  return broken(entities(text));
}

/** @param {string} text */
function entities(text) {
  return text.replace(/&(#\d{1,6}|[a-z]{2,6});/g, (whole, name) => {
    if (name[0] !== "#") return NAMED[name] ?? whole;
    const point = Number(name.slice(1));
    return point >= 32 && point < 0x2000 ? String.fromCodePoint(point) : whole;
  });
}

/** A link that leads out of the page says where to; what is no address of the web is a text. @param {{to: string, children: Drawn}} props */
export function Link({ to, children }) {
  let url;
  try {
    url = new URL(to);
  } catch {
    url = null;
  }
  const said = typeof children === "string" ? children : textOf(children);
  if (!url || !["http:", "https:", "mailto:"].includes(url.protocol)) {
    return html`<span class="path" title=${to}>${children}${said === to || !to ? "" : html` <span class="target">(${to})</span>`}</span>`;
  }
  const target = url.protocol === "mailto:" ? url.pathname : url.host;
  const isSaid = said === to || said === url.href || said === url.host;
  return html`<a href=${url.href} target="_blank" rel="noopener noreferrer nofollow" title=${url.href}>${children}</a>${isSaid ? "" : html` <span class="target">(${target})</span>`}`;
}

/** @param {Drawn} node @returns {string} */
function textOf(node) {
  if (Array.isArray(node)) return node.map(textOf).join("");
  if (typeof node === "string" || typeof node === "number") return String(node);
  return isValidElement(node) ? textOf(node.props.children) : "";
}
