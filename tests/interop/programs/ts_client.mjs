// The client of the official TypeScript SDK, driven over stdin in the words of ACP itself.
//
//     node ts_client.mjs PACKAGE_FOLDER CMD…
//     node ts_client.mjs PACKAGE_FOLDER URL TOKEN [FOLDER_OF_WS]
//
// As python_client.py: requests in, answers out; what CMD reports and asks comes as notifications
// after the SDK has checked it. Permissions are given (`allow_once`).
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";

const [folder, program, ...args] = process.argv.slice(2);
const acp = await import(`${folder}/dist/v1/stable/acp.js`);
const { client: outward } = acp.methods;
const out = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);

const isRemote = program.includes("://");
const [stream, end] = await (isRemote ? remote(program, ...args) : started(program, args));

async function remote(url, token, folderOfWs) {
  const headers = { Authorization: `Bearer ${token}` };
  if (url.startsWith("ws")) {
    const { createWebSocketStream } = await import(`${folder}/dist/transports/ws-stream.js`);
    const { WebSocket } = await import(`${folderOfWs}/wrapper.mjs`);
    return [createWebSocketStream(url, { headers, WebSocket }), async () => {}];
  }
  const { createHttpStream } = await import(`${folder}/dist/transports/http-stream.js`);
  return [createHttpStream(url, { headers }), async () => {}];
}

function started(command, words) {
  const child = spawn(command, words, { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.on("exit", resolve));
  const pipes = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  return [pipes, () => (child.stdin.end(), ended)];
}

await acp
  .client({ name: "ts-client" })
  .onNotification(outward.session.update, ({ params }) => out({ method: "session/update", params }))
  .onRequest(outward.session.requestPermission, ({ params }) => {
    out({ method: "session/request_permission", params });
    const option = params.options.find(({ kind }) => kind === "allow_once");
    if (!option) return { outcome: { outcome: "cancelled" } };
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  })
  .connectWith(stream, async (agent) => {
    for await (const line of createInterface({ input: process.stdin })) {
      const { id, method, params } = JSON.parse(line);
      if (id === undefined) {
        await agent.notify(method, params);
        continue;
      }
      agent.request(method, params).then(
        (result) => out({ id, result }),
        ({ code, message }) => out({ id, error: { code: code ?? 0, message: String(message) } }),
      );
    }
  });
await end();
process.exit(0);
