// A view that is drawn again only when something that it is given is another.
import { Component } from "preact";
import { html } from "./html.js";

/** @template {Record<string, unknown>} P @param {(props: P) => unknown} View  which looks at no signal */
export function memo(View) {
  /** @extends {Component<P>} */
  return class extends Component {
    /** @param {P} next */
    shouldComponentUpdate(next) {
      return Object.keys({ ...next, ...this.props }).some((name) => next[name] !== this.props[name]);
    }

    render() {
      return html`<${View} ...${this.props} />`;
    }
  };
}
