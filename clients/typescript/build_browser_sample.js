// Bundles the browser sample into build/browser.

import { copyFile } from "node:fs/promises";
import { build } from "esbuild";

await build({
  entryPoints: ["sample/browser/main.ts"],
  bundle: true,
  format: "esm",
  minify: true,
  outdir: "build/browser",
  sourcemap: true,
});
await copyFile("sample/browser/index.html", "build/browser/index.html");
