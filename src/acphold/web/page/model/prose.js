// Markdown that grows: cut into blocks, of which all but the last one stand for good.
//
// `marked` makes tokens of it and no HTML; `view/prose.js` makes elements of the tokens. A text is
// never looked at as a whole: what marked takes seconds for, were it long (it is quadratic on some
// texts), comes in pieces of PIECE characters, so a hostile one costs no more than another.
import { Lexer } from "marked";
import { visible } from "./text.js";

const PIECE = 6000;
/** Characters of a fence in one text node, so that each frame touches the last one alone. */
const CODE_PIECE = 8000;

/**
 * @typedef {{kind: "marked", tokens: import("marked").Token[]}} Marked
 * @typedef {{kind: "plain", text: string}} Plain  too long a piece, or one that marked gives up on
 * @typedef {{kind: "code", language: string, pieces: string[], isOpen: boolean}} Code
 * @typedef {Marked | Plain | Code} Block
 */

export class Prose {
  /** Blocks that stand. @type {Block[]} */
  #settled = [];
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
    this.#rest += visible(text);
    while (this.#advance());
  }

  /** What is to be shown; settled blocks are the same objects each time. @returns {Block[]} */
  blocks() {
    if (this.#code) {
      const open = this.#rest && !this.#isEnd(this.#rest) ? [...this.#code.pieces, this.#rest] : this.#code.pieces;
      return [...this.#settled, { ...this.#code, pieces: open }];
    }
    return this.#rest.trim() ? [...this.#settled, lexed(this.#rest)] : this.#settled;
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
        this.#settled.push({ ...code, isOpen: false });
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
    if (last !== undefined && last.length < CODE_PIECE) code.pieces[code.pieces.length - 1] = last + text;
    else code.pieces.push(text);
  }

  #advanceText() {
    const begin = /(?:^|\n)(```+|~~~+)([^\n`]*)\n/.exec(this.#rest);
    if (begin) {
      const before = this.#rest.slice(0, begin.index);
      if (before.length <= PIECE) {
        if (before.trim()) this.#settled.push(lexed(before));
        this.#fence = begin[1];
        this.#code = { kind: "code", language: begin[2].trim().split(/[\s{]/, 1)[0], pieces: [], isOpen: true };
        this.#rest = this.#rest.slice(begin.index + begin[0].length);
        return true;
      }
    }
    if (this.#rest.length > PIECE) {
      // At the end of a paragraph, or of a line, or of a word.
      const window = this.#rest.slice(0, PIECE);
      let cut = window.lastIndexOf("\n\n") + 2;
      if (cut < 2) cut = window.lastIndexOf("\n") + 1;
      const isWhole = cut > 0;
      if (!isWhole) cut = window.lastIndexOf(" ") + 1 || PIECE;
      const piece = window.slice(0, cut);
      this.#settled.push(isWhole ? lexed(piece) : { kind: "plain", text: piece });
      this.#rest = this.#rest.slice(cut);
      return true;
    }
    // Behind an empty line all that stands before the last block stands for good.
    const empty = this.#rest.lastIndexOf("\n\n");
    if (empty < 0 || empty + 2 >= this.#rest.length) return false;
    const block = lexed(this.#rest);
    if (block.kind !== "marked") return false;
    const last = block.tokens.findLastIndex((token) => token.type !== "space");
    if (last < 1) return false;
    const length = block.tokens.slice(0, last).reduce((sum, token) => sum + token.raw.length, 0);
    const raw = this.#rest.slice(0, length);
    if (!this.#rest.startsWith(block.tokens.slice(0, last).map((token) => token.raw).join(""))) return false;
    this.#settled.push(lexed(raw));
    this.#rest = this.#rest.slice(length);
    return false;
  }
}

/** @param {string} text @returns {Marked | Plain} */
function lexed(text) {
  try {
    return { kind: "marked", tokens: new Lexer({ gfm: true }).lex(text) };
  } catch {
    return { kind: "plain", text };  // too deep: what is quoted three thousand times is not read
  }
}
