// A text that may be longer than anybody reads: its beginning, and a button for the rest.
import { SHOWN } from "../model/tables.js";
import { useState } from "preact/hooks";
import { asText, size, visible } from "../model/text.js";
import { html } from "./html.js";

const FIRST = SHOWN.text;

/** As prose, or as `written`. @param {{text: unknown, written?: (text: string) => unknown}} props */
export function Long({ text, written = visible }) {
  const [shown, setShown] = useState(FIRST);
  const whole = asText(text);
  const rest = whole.length - shown;
  return html`${written(whole.slice(0, shown))}${rest > 0 && html` <button type="button" class="quiet" onClick=${() => setShown(shown + 4 * FIRST)}>${size(rest)} more</button>`}`;
}
