// A prompt as blocks of the protocol.

/** Text, and a link for each file that is named behind an `@`. @param {string} text @param {string} cwd */
export function promptBlocks(text, cwd) {
  if (!text) return [];
  const links = [...text.matchAll(/(?:^|\s)@([\w./~+-]+[\w/])/g)].map(([, path]) => ({
    type: "resource_link",
    name: path,
    uri: `file://${encodeURI(path.startsWith("/") ? path : `${cwd.replace(/\/$/, "")}/${path}`)}`,
  }));
  return [{ type: "text", text }, ...links];
}
