// After a question appears, goes or moves, nothing can be answered for a moment: a tap was meant for what stood there before.
import { signal } from "@preact/signals";

const CALM_MS = 500;

export const isCalm = signal(true);
let calming = 0;

export function stir() {
  isCalm.value = false;
  clearTimeout(calming);
  calming = setTimeout(() => (isCalm.value = true), CALM_MS);
}
