// Serves the page of the browser sample on http://127.0.0.1:8080, and nothing else.

import { readFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { fileURLToPath, pathToFileURL } from "node:url";

const FILES: Readonly<Record<string, readonly [file: string, type: string]>> = {
  "/": ["index.html", "text/html; charset=utf-8"],
  "/main.js": ["main.js", "text/javascript"],
};

/** Folder that `npm run bundle` writes. */
const FOLDER = new URL("../browser/", import.meta.url);

/** Serves the page on a port of loopback; 0 for any. */
export async function servePage(port: number): Promise<Server> {
  const server = createServer((request, response) => {
    const [file, type] = FILES[new URL(request.url ?? "/", "http://page").pathname] ?? [];
    if (file === undefined || type === undefined) {
      response.writeHead(404).end();
      return;
    }
    readFile(fileURLToPath(new URL(file, FOLDER))).then(
      (content) => response.writeHead(200, { "content-type": type }).end(content),
      () => response.writeHead(500).end("run `npm run bundle` first"),
    );
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  return server;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  await servePage(8080);
  console.log("open http://127.0.0.1:8080 in two tabs");
}
