// Where in the page somebody is, as the fragment of its address has it: it can be linked to, goes
// back and forth with the browser, and is never sent to a server.
//
//   #/                      what waits, and the sessions
//   #/session/ID[@SEQ]      a session, at its end or at an entry
//   #/changes/ID[@N]        its changes in files: of all of it, since its last prompt (1), in turn N - 1
//   #/new  #/usage          …
//   #pair=CODE              what `acphold serve` prints
import { signal } from "@preact/signals";

/** @typedef {{name: string, id: string, seq: number}} Place */

/** The place of the address at this moment; `place` follows when the browser tells of it. @returns {Place} */
export function here() {
  const [, name = "", rest = ""] = /^#\/([a-z]*)\/?(.*)$/.exec(location.hash) ?? [];
  const [, id = "", seq = "0"] = /^(.*?)(?:@(\d+))?$/.exec(rest) ?? [];
  try {
    return { name, id: decodeURIComponent(id), seq: Number(seq) };
  } catch {
    return { name: "", id: "", seq: 0 };
  }
}

export const place = signal(here());
addEventListener("hashchange", () => (place.value = here()));

/** @param {string} id @param {number} [seq] */
export const sessionPlace = (id, seq) => `#/session/${encodeURIComponent(id)}${seq ? `@${seq}` : ""}`;

/** The code in a fragment `#pair=CODE`. @param {string} fragment */
export const codeIn = (fragment) => /^#pair=([\w-]{4,40})$/.exec(fragment)?.[1] ?? "";

/** Wait until what is drawn in pieces is there as a whole. @param {Element} element */
export async function whole(element) {
  while (element.isConnected && element.querySelector("[aria-busy]")) await new Promise(requestAnimationFrame);
}

/** @param {string} to */
export const go = (to) => (location.hash = to);
