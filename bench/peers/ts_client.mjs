// A client on the official TypeScript SDK: node ts_client.mjs rate|trip N ROUNDS CMD ARGS...
// Prints a JSON array with a number for each round: the updates a second of a turn with N updates,
// or the median microseconds of N prompts that are answered at once.
import * as acp from "@agentclientprotocol/sdk";
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";

const [way, number, rounds, command, ...rest] = process.argv.slice(2);
const agent = spawn(command, rest, { stdio: ["pipe", "pipe", "inherit"] });
let over = () => {};
const rates = [];

await acp
  .client({ name: "bench" })
  .onNotification("session/update", ({ params }) => {
    // The last one of a flood, alone or joined to others.
    if (params.update.content?.text?.endsWith("!")) over();
  })
  .connectWith(
    acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)),
    async (connection) => {
      await connection.request("initialize", { protocolVersion: 1, clientCapabilities: {} });
      const setup = { cwd: "/tmp", mcpServers: [] };
      const { sessionId } = await connection.request("session/new", setup);
      const flood = (n) => {
        const prompt = [{ type: "text", text: `flood ${n}` }];
        return connection.request("session/prompt", { sessionId, prompt });
      };
      await flood(2000);
      for (let round = 0; way === "trip" && round < +rounds; round++) {
        const taken = [];
        for (let prompt = 0; prompt < +number; prompt++) {
          const began = performance.now();
          await flood(0);
          taken.push((performance.now() - began) * 1000);
        }
        rates.push(taken.sort((a, b) => a - b)[Math.floor(taken.length / 2)]);
      }
      for (let round = 0; way === "rate" && round < +rounds; round++) {
        const all = new Promise((resolve) => (over = resolve));
        const began = performance.now();
        await flood(number);
        await all;
        rates.push(+number / ((performance.now() - began) / 1000));
      }
    },
  );
agent.stdin.end();
console.log(JSON.stringify(rates));
// The agent may need a moment to end; nobody waits for it here.
process.exit(0);
