// A question as the server has finished it (`presentation.permissions`), and what of it is in sight.

/** @typedef {{optionId: string, kind: string, words: string, name: string, isLong?: boolean}} Offer */
/** @typedef {[sign: "+" | "-" | " " | "@", text: string, before: number, after: number]} Row */
/** @typedef {{kind: "text" | "command" | "path" | "argument" | "diff", text: string, name?: string, rest?: string, last?: string, cut?: string, lines?: Row[], folded?: [number, number], added?: number, removed?: number, isProse?: boolean}} Block */
/** @typedef {{wants: string, blocks: Block[], options: Offer[]}} Shows */
/** @typedef {{block: Block, id: string, isOpen: boolean, pieces: string[], rows: Row[][]}} Part  `pieces` of its text, or `rows` of a diff, from above; the middle ones are empty while it is cut */

/** Its parts; `opened` are the ids of those that are whole though they are long: one that becomes another is cut again. @param {Block[]} blocks @param {string[]} opened @returns {Part[]} */
export const partsOf = (blocks, opened) => blocks.map((block) => {
  const { text, rest = "", last = "", lines = [], folded: [from, to] = [lines.length, lines.length], cut } = block;
  const id = cut ? JSON.stringify(block) : "";
  const isOpen = !id || opened.includes(id);
  return { block, id, isOpen, pieces: [text, isOpen ? rest : "", last], rows: [lines.slice(0, from), isOpen ? lines.slice(from, to) : [], lines.slice(to)] };
});

/** A yes is for what could be read. @param {Part[]} parts */
export const mayAllow = (parts) => parts.every(({ isOpen }) => isOpen);
