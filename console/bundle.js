// Bundles the console into src/console/page of the repository: index.html, console.js and console.css. The server embeds these
// three files. Fails if they are larger than 200 KiB together.
//
//   node bundle.js             writes the files
//   node bundle.js --check     writes nothing; fails if the files do not match the sources

import { readFile, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { build, transform } from "esbuild";
import { feature } from "topojson-client";

const OUTPUT = new URL("../src/console/page/", import.meta.url);
const BYTES_MAX = 200 * 1024;

/** Outline of the land as an SVG path: one unit is a degree, x from 0 at 180 W, y from 0 at 90 N. Small islands are left out. */
async function landPath() {
  const atlas = JSON.parse(await readFile(new URL("node_modules/world-atlas/land-110m.json", import.meta.url), "utf8"));
  const land = feature(atlas, atlas.objects.land);
  const geometries = land.type === "FeatureCollection" ? land.features.map((it) => it.geometry) : [land.geometry];
  const polygons = geometries.flatMap((it) => (it.type === "Polygon" ? [it.coordinates] : it.coordinates));
  const lines = [];
  for (const [ring] of polygons) {
    // Antarctica goes around the pole.
    if (ring.some(([, latitude]) => latitude < -70)) continue;
    const points = [];
    let before = ring[0][0];
    let turn = 0;
    for (const [longitude, latitude] of ring) {
      // A ring that crosses the date line goes on beyond it.
      if (longitude - before > 180) turn -= 360;
      if (longitude - before < -180) turn += 360;
      before = longitude;
      const point = [Math.round(longitude + turn) + 180, 90 - Math.round(latitude)];
      const last = points.at(-1);
      if (last === undefined || last[0] !== point[0] || last[1] !== point[1]) points.push(point);
    }
    if (points.length < 6) continue;
    const crosses = points.some(([x]) => x < 0 || x > 360);
    // The part beyond the date line is seen on the other side.
    for (const shift of crosses ? (points.some(([x]) => x > 360) ? [0, -360] : [0, 360]) : [0]) {
      let [x, y] = points[0];
      let text = `M${x + shift} ${y}l`;
      for (const [nextX, nextY] of points.slice(1)) {
        const [right, down] = [nextX - x, nextY - y];
        text += `${right < 0 || text.endsWith("l") ? "" : " "}${right}${down < 0 ? "" : " "}${down}`;
        [x, y] = [nextX, nextY];
      }
      lines.push(`${text}z`);
    }
  }
  return lines.join("");
}

const { outputFiles } = await build({
  entryPoints: [new URL("src/main.ts", import.meta.url).pathname],
  bundle: true,
  format: "esm",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  target: ["es2022"],
  define: { LAND_PATH: JSON.stringify(await landPath()) },
  write: false,
});
const style = await transform(await readFile(new URL("console.css", import.meta.url), "utf8"), { loader: "css", minify: true });
const files = [
  ["index.html", await readFile(new URL("index.html", import.meta.url), "utf8")],
  ["console.js", outputFiles[0].text],
  ["console.css", style.code],
];
let total = 0;
for (const [name, text] of files) {
  const bytes = Buffer.byteLength(text);
  total += bytes;
  console.log(`${name}: ${bytes} bytes, ${gzipSync(text).length} with gzip`);
  const file = new URL(name, OUTPUT);
  if (!process.argv.includes("--check")) {
    await writeFile(file, text);
  } else if ((await readFile(file, "utf8").catch(() => "")) !== text) {
    console.error(`src/console/page/${name} does not match console/; run npm run build in console/`);
    process.exitCode = 1;
  }
}
console.log(`total: ${total} bytes`);
if (total > BYTES_MAX) {
  console.error(`the page has ${total} bytes; at most ${BYTES_MAX} are allowed`);
  process.exitCode = 1;
}
