// What a tool call was given. What a question shows of one comes from the server.

/** @typedef {{name: string, text: string}} Argument */

/** All of it but for the title, and the file and the texts that its diffs show. @param {Received} call @returns {Argument[]} */
export function argumentsOf({ rawInput, title, content }) {
  if (rawInput === undefined || rawInput === null) return [];
  if (typeof rawInput !== "object" || Array.isArray(rawInput)) return [{ name: "", text: spelled(rawInput) }];
  const diffs = Array.isArray(content) ? content.filter((each) => each?.type === "diff") : [];
  const told = new Set([title, ...diffs.flatMap(({ path, oldText, newText }) => [path, oldText, newText])]);
  return Object.entries(rawInput).filter(([, value]) => !told.has(value)).map(([name, value]) => ({ name, text: spelled(value) }));
}

/** @param {unknown} value @returns {string} */
function spelled(value) {
  if (typeof value === "string") return value;
  return Array.isArray(value) && value.every((each) => typeof each === "string") ? value.join(" ") : JSON.stringify(value);
}
