// What a command showed, in the colours of a terminal; the end of it where it is long.
import { SHOWN } from "../model/tables.js";
import { Component } from "preact";
import { useMemo, useState } from "preact/hooks";
import { cuts, runs, setBefore } from "../model/ansi.js";
import { size, visible } from "../model/text.js";
import { html } from "./html.js";
import { useSome } from "./pieces.js";

/** Characters that are shown at first, the last ones. */
const FIRST = SHOWN.output;

/** @param {{text: string}} props */
export function Output({ text }) {
  const [most, setMost] = useState(FIRST);
  const pieces = useMemo(() => cuts(text), [text]);
  const first = Math.max(0, pieces.findIndex(([, end]) => end > text.length - most));
  // Its end first, and what is above by and by.
  const drawn = useSome(pieces.length - first, 2);
  const isWhole = drawn === pieces.length - first;
  return html`<div class="output" aria-busy=${!isWhole || undefined}>
    ${first > 0 && html`<button type="button" class="quiet" onClick=${() => setMost(most * 3)}>Show more; ${size(pieces[first][0])} above</button>`}
    <pre tabindex="0">${pieces.slice(pieces.length - drawn).map(([begin, end]) => html`<${Part} key=${begin} whole=${text} text=${text.slice(begin, end)} begin=${begin} />`)}</pre>
  </div>`;
}

/** Some lines of it, which are drawn again only when they are others. @extends {Component<{whole: string, text: string, begin: number}>} */
class Part extends Component {
  /** @param {{text: string}} next */
  shouldComponentUpdate(next) {
    return next.text !== this.props.text;
  }

  render() {
    const { whole, text, begin } = this.props;
    return html`<div class=${text.endsWith("\n") ? "" : "cut"}>${runs(setBefore(whole, begin) + text).map(
      (run) => html`<span class=${run.look} style=${{ color: run.colour, background: run.ground }}>${visible(run.text)}</span>`,
    )}</div>`;
  }
}

/** Its last lines, for who has it folded. @param {{text: string, most: number}} props */
export function LastLines({ text, most }) {
  const lines = text.slice(-SHOWN.lastOutput).trimEnd().split("\n").slice(-most);
  const plain = runs(lines.join("\n")).map((run) => run.text).join("");
  return html`<pre class="last">${visible(plain)}</pre>`;
}
