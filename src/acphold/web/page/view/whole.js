// What a question is about, above its answers.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";

/** All of it, in a box that scrolls and says when there is more below: the answers stay on the screen. @param {{children: unknown}} props */
export function Whole({ children }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [isMore, setMore] = useState(false);
  const look = () => {
    const { scrollHeight = 0, scrollTop = 0, clientHeight = 0 } = box.current ?? {};
    setMore(scrollHeight - scrollTop - clientHeight > 4);
  };
  useEffect(() => {
    const [inside] = box.current?.children ?? [];
    const watch = new ResizeObserver(look);
    if (box.current) watch.observe(box.current);
    if (inside) watch.observe(inside);
    return () => watch.disconnect();
  }, []);
  return html`<div class="whole"><div class="scrolls" ref=${box} onScroll=${look}><div class="what">${children}</div></div>
    ${isMore && html`<button type="button" class="quiet more" onClick=${() => box.current?.scrollBy(0, box.current.clientHeight * 0.8)}>More below</button>`}</div>`;
}
