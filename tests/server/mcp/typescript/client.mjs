// Calls tools of an MCP server with the official TypeScript client.
//
// Arguments: URL, and a JSON list of [tool, arguments]. Prints a JSON list with, for each call, what
// the client returned or the error that it raised. The client holds structured content against the
// output schema of its tool, as listed before.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, calls] = process.argv.slice(2);
const client = new Client({ name: "omnigraph-test", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const { tools } = await client.listTools();
const answers = [];
for (const [name, given] of JSON.parse(calls)) {
  try {
    const result = await client.callTool({ name, arguments: given });
    answers.push({
      name,
      isError: Boolean(result.isError),
      text: result.content.map((block) => block.text).join(""),
      structured: result.structuredContent ?? null,
    });
  } catch (error) {
    answers.push({ name, raised: String(error) });
  }
}
await client.close();
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), answers }));
