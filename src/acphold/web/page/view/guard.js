// Draws a note in place of a view that fails; everything around it stays.
import { Component } from "preact";
import { html } from "./html.js";

/** @extends {Component<{children?: import("preact").ComponentChildren}, {problem?: unknown}>} */
export class Guard extends Component {
  /** @param {unknown} problem */
  componentDidCatch(problem) {
    console.error(problem);
    this.setState({ problem });
  }

  render() {
    return this.state.problem ? html`<p class="note bad">This content cannot be shown here.</p>` : this.props.children;
  }
}
