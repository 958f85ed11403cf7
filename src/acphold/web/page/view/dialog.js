// A question of the page itself, in front of everything: a title to change, or something to confirm.
// Escape and "Cancel" change nothing; the focus goes back to where it was.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";

/** @typedef {{title: string, text?: string, action: string, isBad?: boolean, label?: string, value?: string, mayBeEmpty?: boolean, checks?: string[], all?: string}} Words  with a `label` there is a field, which has `value` at first; of `checks` each has a box, which is not checked, and so have `all` of them */

/**
 * Ask, and wait for the answer: what stands in the field, "" where there is none; null if the person does not want it.
 * @param {Words} words @returns {Promise<string | null>}
 */
export const asked = (words) => inFront(Dialog, words);

/** The same where there are boxes: the places of those that are checked. @param {Words} words @returns {Promise<number[] | null>} */
export const askedWhich = (words) => inFront(Dialog, words);

/** Show a dialog, and wait until it calls `done`; one that is not busy goes with the page that it was about. @param {any} View @param {object} props @returns {Promise<any>} */
export function inFront(View, props) {
  const host = document.body.appendChild(document.createElement("div"));
  return new Promise((resolve) => {
    /** @param {unknown} answer */
    const done = (answer) => {
      removeEventListener("hashchange", leave);
      host.querySelector("dialog")?.close();  // gives the focus back
      render(null, host);
      host.remove();
      resolve(answer);
    };
    const leave = () => host.querySelector("[aria-busy=true]") ?? done(null);
    addEventListener("hashchange", leave);
    render(html`<${View} ...${props} done=${done} />`, host);
  });
}

/** @param {Words & {done: (answer: string | number[] | null) => void}} props */
function Dialog({ title, text, action, isBad, label, value = "", mayBeEmpty = false, checks, all, done }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [words, setWords] = useState(value);
  const [checked, setChecked] = useState(/** @type {number[]} */ ([]));
  const places = (checks ?? []).map((_, place) => place);
  const hasAll = checked.length === places.length;
  useEffect(() => {
    dialog.current?.showModal();
    dialog.current?.querySelector("input")?.select();
  }, []);
  return html`<dialog ref=${dialog} aria-labelledby="dialog-title" aria-describedby=${text && "dialog-text"} onCancel=${(/** @type {Event} */ event) => (event.preventDefault(), done(null))}
    onClick=${(/** @type {Event} */ event) => event.target === dialog.current && done(null)}>
    <form onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), done(checks ? checked : words.trim()))}>
      <h2 id="dialog-title">${title}</h2>
      ${text && html`<p id="dialog-text">${text}</p>`}
      ${label && html`<label>${label}<input value=${words} required=${!mayBeEmpty} maxlength="200" onInput=${(/** @type {On<HTMLInputElement>} */ event) => setWords(event.target.value)} /></label>`}
      ${all && html`<label class="check"><input type="checkbox" checked=${hasAll} onChange=${() => setChecked(hasAll ? [] : places)} /> <span>${all}</span></label>`}
      ${checks?.map((each, place) => html`<label class="check"><input type="checkbox" checked=${checked.includes(place)} onChange=${() => setChecked(places.filter((it) => checked.includes(it) !== (it === place)))} /> <span>${each}</span></label>`)}
      <div class="choice"><button type="button" autofocus=${!label} onClick=${() => done(null)}>Cancel</button>
        <button type="submit" class=${isBad ? "danger" : "main"} disabled=${label && !mayBeEmpty && !words.trim()}>${action}</button></div>
    </form>
  </dialog>`;
}
