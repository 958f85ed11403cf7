// Blocks of content that are no text: pictures and sounds as blobs, everything else by its name.
import { useEffect, useState } from "preact/hooks";
import { asText, line, pathLine, size } from "../model/text.js";
import { html } from "./html.js";
import { Long } from "./long.js";

/** Kinds in which a browser runs nothing: no SVG. */
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const SOUNDS = new Set(["audio/wav", "audio/mpeg", "audio/ogg", "audio/webm", "audio/mp4"]);

/** @param {{content: Received}} props */
export function ContentView({ content }) {
  if (content?.type === "image" && PICTURES.has(content.mimeType)) return html`<${Picture} data=${content.data} mimeType=${content.mimeType} />`;
  if (content?.type === "audio" && SOUNDS.has(content.mimeType)) return html`<${Sound} data=${content.data} mimeType=${content.mimeType} />`;
  if (content?.type === "text") return html`<div class="text"><${Long} text=${content.text} /></div>`;
  if (content?.type === "resource") {
    const { uri, text } = content.resource ?? {};
    return html`<details class="file"><summary>${fileName(uri)}</summary>${typeof text === "string" && html`<pre tabindex="0"><${Long} text=${text} /></pre>`}</details>`;
  }
  if (content?.type === "resource_link") return html`<span class="path" title=${asText(content.uri)}>${fileName(content.uri ?? content.name)}</span>`;
  return html`<span class="aside">${line(content?.type ?? "unknown content")} (${size(asText(content?.data).length)})</span>`;
}

/** @param {unknown} uri */
const fileName = (uri) => pathLine(asText(uri ?? "a file").replace(/^file:\/\//, ""));

/** @param {{data: string, mimeType: string}} props */
function Picture({ data, mimeType }) {
  const url = useBlob(data, mimeType);
  return url && html`<a class="picture" href=${url} target="_blank"><img src=${url} alt="A picture" /></a>`;
}

/** @param {{data: string, mimeType: string}} props */
function Sound({ data, mimeType }) {
  const url = useBlob(data, mimeType);
  return url && html`<audio controls src=${url}></audio>`;
}

/** The address of a blob of these bytes, for as long as it is shown. @param {string} data @param {string} mimeType */
function useBlob(data, mimeType) {
  const [url, setUrl] = useState("");
  useEffect(() => {
    let made = "";
    try {
      const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
      made = URL.createObjectURL(new Blob([bytes], { type: mimeType }));
      setUrl(made);
    } catch {
      return undefined;  // no base64: there is nothing to show
    }
    return () => URL.revokeObjectURL(made);
  }, [data, mimeType]);
  return url;
}
