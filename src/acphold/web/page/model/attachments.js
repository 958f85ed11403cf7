// Files of this device as blocks of a prompt, as far as the agent takes them.

/** The longest side of a picture: models see no more of it. */
const SIDE = 1568;
const MOST_TEXT = 1_000_000;

/** @param {File} file @param {{image?: boolean, audio?: boolean, embeddedContext?: boolean}} can @returns {Promise<Received>} */
export async function attachment(file, can) {
  if (file.type.startsWith("image/")) {
    if (!can.image) throw new Error("This agent does not accept pictures.");
    const { data, mimeType } = await picture(file);
    return { type: "image", data, mimeType };
  }
  if (file.size > MOST_TEXT) throw new Error(`${file.name} is larger than 1 MB.`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  const text = new TextDecoder("utf-8", { fatal: true });
  let content;
  try {
    content = text.decode(bytes);
  } catch {
    throw new Error(`${file.name} is not a text file.`);
  }
  const uri = `file:///${encodeURIComponent(file.name)}`;
  if (can.embeddedContext) return { type: "resource", resource: { uri, mimeType: file.type || "text/plain", text: content } };
  return { type: "text", text: `${file.name}:\n\`\`\`\n${content}\n\`\`\`` };
}

/** A picture, made smaller where it is larger than models look at. @param {File} file */
async function picture(file) {
  const bitmap = await createImageBitmap(file, { imageOrientation: "from-image" });
  const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
  const isKept = scale === 1 && file.size < 1_000_000 && ["image/png", "image/jpeg", "image/webp", "image/gif"].includes(file.type);
  let blob = /** @type {Blob} */ (file);
  if (!isKept) {
    const canvas = document.createElement("canvas");
    canvas.width = Math.round(bitmap.width * scale);
    canvas.height = Math.round(bitmap.height * scale);
    canvas.getContext("2d")?.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    blob = await new Promise((resolve, reject) =>
      canvas.toBlob((made) => (made ? resolve(made) : reject(new Error("This picture could not be read."))), "image/jpeg", 0.85),
    );
  }
  bitmap.close();
  const address = await new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.readAsDataURL(blob);
  });
  return { data: address.slice(address.indexOf(",") + 1), mimeType: blob.type };
}
