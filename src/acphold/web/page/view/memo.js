// A view that is drawn again only when something that it is given is another.
import { Component } from "preact";
import { html } from "./html.js";

/** @param {(props: any) => any} View  which looks at no signal */
export function memo(View) {
  return class extends Component {
    /** @param {any} next */
    shouldComponentUpdate(next) {
      const props = /** @type {any} */ (this.props);
      return Object.keys({ ...next, ...props }).some((name) => next[name] !== props[name]);
    }

    render() {
      return html`<${View} ...${this.props} />`;
    }
  };
}
