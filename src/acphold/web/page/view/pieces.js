// What is long is drawn in pieces, one in each task: between them a key, a finger and a frame have their turn.
import { useLayoutEffect, useReducer, useRef } from "preact/hooks";

/** Characters of Markdown that are drawn in one task, and those of the block that has the last of them. */
const STEP = 3000;

/** Whether something has been drawn in this task: what is long then waits for one of its own. */
let isTaken = false;

/** Whether a piece may be drawn now. @param {boolean} isLast  which does not wait */
function mayDraw(isLast) {
  const may = isLast || !isTaken;
  if (!isTaken) setTimeout(() => (isTaken = false));
  isTaken = true;
  return may;
}

/** Draw this component again in a task of its own, as long as there is more of it. @param {boolean} isWhole */
function useNext(isWhole) {
  const [, again] = useReducer((/** @type {number} */ count) => count + 1, 0);
  useLayoutEffect(() => {
    if (isWhole) return undefined;
    const next = setTimeout(() => {
      isTaken = false;
      again(0);
    });
    return () => clearTimeout(next);
  });
}

/** How many of a list are drawn by now: each time so many more. @param {number} all @param {number} atOnce */
export function useSome(all, atOnce) {
  const drawn = useRef(0);
  const next = Math.min(all, drawn.current + atOnce);
  if (next !== drawn.current && mayDraw(next === all)) drawn.current = next;
  useNext(drawn.current === all);
  return drawn.current;
}

/**
 * Which blocks of a text are drawn by now. Its end comes first, which is where one reads, then what is
 * above, up to `first`; what comes later grows downwards, so that nothing that is read goes away.
 * @param {import("../model/prose.js").Prose} prose  whose blocks have been asked for @param {number} first
 */
export function useDrawn(prose, first) {
  const drawn = useRef({ from: Infinity, to: 0 });
  const { end } = prose;
  let { from, to } = drawn.current;
  if (from === Infinity) [from, to] = [prose.above(STEP), end];
  else if (to < end) to = prose.below(STEP, to);
  else from = Math.min(from, prose.above(STEP, from));
  const isWhole = from <= first && to >= end;
  if (mayDraw(isWhole)) drawn.current = { from, to };
  else ({ from, to } = drawn.current);
  from = Math.min(Math.max(from, first), end);
  useNext(isWhole);
  return { from, to: to >= end ? Infinity : to, isWhole };
}
