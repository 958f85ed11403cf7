// Markdown that grows: cut into blocks, of which all but the last one stand for good.
//
// `markdown.lex` makes tokens of it and no HTML: `view/prose.js` sets it, so that the model needs no
// package of npm, and makes elements of the tokens. A text is
// never looked at as a whole: what marked takes seconds for, were it long (it is quadratic on some
// texts), comes in pieces of PIECE characters, so a hostile one costs no more than another. And only
// those are read that are shown.
import { visible } from "./text.js";

const PIECE = 6000;
/** Characters that are shown of one message, its last ones; more than that nobody reads on a page. */
const MOST = 240_000;
/** What may begin or end an emphasis: of thousands marked tries each with each, and nobody means them. */
const MARKS = /[*_]+/g;
const MOST_MARKS = 1500;
/** Quotes, lists and emphasis inside of each other. */
const DEEPEST = 50;
/** Characters of a fence in one text node, so that each frame touches the last one alone. */
const CODE_PIECE = 8000;

/**
 * @typedef {import("marked").Token} Token
 * @typedef {{kind: "code", language: string, pieces: string[], isOpen: boolean}} Code
 * @typedef {Piece | Code} Block
 */

/** Tokens of a text, null where it is to be shown as it is written. @type {{lex: (text: string) => Token[] | null}} */
export const markdown = { lex: () => null };

/** A text; its tokens are made when they are asked for first. */
class Piece {
  kind = /** @type {const} */ ("text");
  /** @type {Token[] | null | undefined} */
  #tokens;

  /** @param {string} text @param {Token[] | null} [tokens] */
  constructor(text, tokens) {
    this.text = text;
    this.#tokens = tokens;
  }

  /** Null where it is to be shown as it is written. */
  get tokens() {
    return this.#tokens === undefined ? (this.#tokens = lexed(this.text)) : this.#tokens;
  }
}

export class Prose {
  /** Blocks that stand. @type {Block[]} */
  #settled = [];
  /** @type {number[]} */
  #lengths = [];
  #shown = 0;
  /** How many blocks at its beginning are not shown any more. */
  omitted = 0;
  /** @type {Code | null} */
  #code = null;
  #fence = "";
  /** What follows them. */
  #rest = "";
  /** All of it, as it came. */
  text = "";

  /** @param {string} text */
  constructor(text = "") {
    if (text) this.add(text);
  }

  /** @param {string} text */
  add(text) {
    this.text += text;
    if (this.text.length > 9 * MOST) this.text = this.text.slice(-8 * MOST);
    if (text.length > 2 * MOST) this.omitted++;  // megabytes at once: what would not be shown is not looked at
    this.#rest += visible(text.slice(-2 * MOST));
    while (this.#advance());
  }

  /** What is to be shown; settled blocks are the same objects each time. @returns {Block[]} */
  blocks() {
    if (this.#code) {
      const open = this.#rest && !this.#isEnd(this.#rest) ? [...this.#code.pieces, this.#rest] : this.#code.pieces;
      return [...this.#settled, { ...this.#code, pieces: open }];
    }
    this.#settleParagraphs();  // here, once for each frame, and not for each word that comes
    return this.#rest.trim() ? [...this.#settled, new Piece(this.#rest)] : this.#settled;
  }

  /** Where about so many characters begin that stand before a block, counted with those that are not shown any more. @param {number} characters @param {number} [before] */
  above(characters, before = Infinity) {
    let at = Math.min(before - this.omitted, this.#lengths.length);
    for (let length = before === Infinity ? this.#rest.length : 0; at > 0 && length < characters; ) length += this.#lengths[--at];
    return this.omitted + Math.max(0, at);
  }

  /** Where about so many characters end that begin with a block. @param {number} characters @param {number} from */
  below(characters, from) {
    let at = Math.max(0, from - this.omitted);
    for (let length = 0; at < this.#lengths.length && length < characters; ) length += this.#lengths[at++];
    return this.omitted + at;
  }

  /** Where the blocks end that stand, counted in the same way. */
  get end() {
    return this.omitted + this.#settled.length;
  }

  /** Settle what can be; whether there may be more. */
  #advance() {
    return this.#code ? this.#advanceCode(this.#code) : this.#advanceText();
  }

  /** @param {Code} code */
  #advanceCode(code) {
    let begin = 0;
    for (let end = this.#rest.indexOf("\n"); end >= 0; end = this.#rest.indexOf("\n", begin)) {
      if (this.#isEnd(this.#rest.slice(begin, end))) {
        this.#grow(code, this.#rest.slice(0, begin));
        this.#settle({ ...code, isOpen: false }, code.pieces.reduce((sum, piece) => sum + piece.length, 0));
        this.#code = null;
        this.#rest = this.#rest.slice(end + 1);
        return true;
      }
      begin = end + 1;
    }
    // A line that never ends is taken in, too: no fence is as long as that.
    if (this.#rest.length - begin > CODE_PIECE) begin = this.#rest.length;
    this.#grow(code, this.#rest.slice(0, begin));
    this.#rest = this.#rest.slice(begin);
    return false;
  }

  /** @param {string} line */
  #isEnd(line) {
    const end = line.trim();
    return end.length >= this.#fence.length && end === this.#fence[0].repeat(end.length);
  }

  /** @param {Code} code @param {string} text */
  #grow(code, text) {
    if (!text) return;
    const last = code.pieces.at(-1);
    const rest = last !== undefined && last.length < CODE_PIECE ? `${code.pieces.pop()}${text}` : text;
    for (let at = 0; at < rest.length; at += CODE_PIECE) code.pieces.push(rest.slice(at, at + CODE_PIECE));
    if (code.pieces.length * CODE_PIECE > MOST) code.pieces.splice(0, code.pieces.length - MOST / CODE_PIECE);
  }

  #advanceText() {
    // No more of it is looked at than one piece: a line of ten megabytes is as quick as any other.
    const window = this.#rest.slice(0, PIECE);
    const begin = /(?:^|\n)(```+|~~~+)([^\n`]*)\n/.exec(window);
    if (begin) {
      const before = window.slice(0, begin.index);
      if (before.trim()) this.#settle(new Piece(before), before.length);
      this.#fence = begin[1];
      this.#code = { kind: "code", language: begin[2].trim().split(/[\s{]/, 1)[0], pieces: [], isOpen: true };
      this.#rest = this.#rest.slice(begin.index + begin[0].length);
      return true;
    }
    if (this.#rest.length > PIECE) {
      // At the end of a paragraph, or of a line, or of a word.
      let cut = window.lastIndexOf("\n\n") + 2;
      if (cut < 2) cut = window.lastIndexOf("\n") + 1;
      const isWhole = cut > 0;
      if (!isWhole) cut = window.lastIndexOf(" ") + 1 || PIECE;
      const piece = window.slice(0, cut);
      this.#settle(isWhole ? new Piece(piece) : new Piece(piece, null), cut);
      this.#rest = this.#rest.slice(cut);
      return true;
    }
    return false;
  }

  /** Behind an empty line all that stands before the last block stands for good. */
  #settleParagraphs() {
    const window = this.#rest;
    const empty = window.lastIndexOf("\n\n");
    if (empty < 0 || empty + 2 >= window.length) return;
    const tokens = lexed(window);
    const last = tokens?.findLastIndex((token) => token.type !== "space") ?? 0;
    if (!tokens || last < 1) return;
    const raw = tokens.slice(0, last).map((token) => token.raw).join("");
    if (!window.startsWith(raw)) return;
    this.#settle(new Piece(raw, tokens.slice(0, last)), raw.length);
    this.#rest = window.slice(raw.length);
  }

  /** @param {Block} block @param {number} length */
  #settle(block, length) {
    this.#settled.push(block);
    this.#lengths.push(length);
    this.#shown += length;
    while (this.#shown > MOST && this.#lengths.length > 1) {
      this.#settled.shift();
      this.#shown -= this.#lengths.shift() ?? 0;
      this.omitted++;
    }
  }
}

/** @param {string} text @returns {Token[] | null} */
function lexed(text) {
  if ((text.match(MARKS)?.length ?? 0) > MOST_MARKS) return null;
  try {
    const tokens = markdown.lex(text);
    return !tokens || isDeep(tokens) ? null : tokens;
  } catch {
    return null;  // what is quoted three thousand times marked does not read, either
  }
}

/** Whether there is more inside of each other than a person would write, or the view could show. */
function isDeep(/** @type {Partial<import("marked").Tokens.Generic>[]} */ tokens) {
  let level = tokens;
  for (let depth = 0; depth < DEEPEST && level.length; depth++) {
    level = level.flatMap(({ tokens, items, header, rows }) =>
      [tokens, items, header, rows?.flat()].filter(Array.isArray).flat(),
    );
  }
  return level.length > 0;
}
