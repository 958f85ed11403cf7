// What is long is drawn in pieces, one in each task: between them a key, a finger and a frame have their turn.
import { useLayoutEffect, useReducer, useRef } from "preact/hooks";

/** Characters of Markdown that are drawn in one task, and those of the block that has the last of them. */
const STEP = 3000;

/** Draw this component again in a task of its own, as long as there is more of it. @param {boolean} isWhole */
function useNext(isWhole) {
  const [, again] = useReducer((/** @type {number} */ count) => count + 1, 0);
  useLayoutEffect(() => {
    if (isWhole) return undefined;
    const next = setTimeout(again);
    return () => clearTimeout(next);
  });
}

/** How many of a list are drawn by now: each time so many more. @param {number} all @param {number} atOnce */
export function useSome(all, atOnce) {
  const drawn = useRef(0);
  drawn.current = Math.min(all, drawn.current + atOnce);
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
  let { from, to } = drawn.current;
  if (from === Infinity) [from, to] = [Math.max(first, prose.above(STEP)), prose.end];
  else if (to < prose.end) to = prose.below(STEP, to);
  else from = Math.max(first, Math.min(from, prose.above(STEP, from)));
  from = Math.min(Math.max(from, first), prose.end);
  to = Math.min(to, prose.end);
  drawn.current = { from, to };
  const isWhole = from === first && to === prose.end;
  useNext(isWhole);
  return { from, to: to === prose.end ? Infinity : to, isWhole };
}
