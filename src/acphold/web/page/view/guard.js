// What cannot be drawn is said in its place; everything around it stays.
import { Component } from "preact";
import { html } from "./html.js";

export class Guard extends Component {
  /** @param {unknown} problem */
  componentDidCatch(problem) {
    console.error(problem);
    this.setState({ problem });
  }

  render() {
    const { props, state } = /** @type {any} */ (this);
    return state.problem ? html`<p class="note bad">This content cannot be shown here.</p>` : props.children;
  }
}
