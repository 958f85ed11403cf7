// The client of the official TypeScript SDK, driven over stdin in the words of ACP itself.
//
//     node ts_client.mjs PACKAGE_FOLDER CMD…
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

const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
const ended = new Promise((resolve) => child.on("exit", resolve));
const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));

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
child.stdin.end();
await ended;
process.exit(0);
